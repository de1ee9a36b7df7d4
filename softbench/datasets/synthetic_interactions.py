"""Generated histories of users with a taste, in which an item tells much about the next."""

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import InteractionData
from softbench.datasets.draws import SLOTS, draw, random_generator, zipf
from softbench.datasets.interactions import LEAST, item_lists, leave_one_out, renumbered

GROUPS = TASTES = 8


def synthetic_interactions(
    num_classes: int = 2_000,
    num_users: int = 4_000,
    max_items: int = 16,
    seed: int = 0,
) -> InteractionData:
    """Histories of up to `max_items` distinct items, split by leave-one-out.

    Every item is in one of 8 groups, every user has one of 8 tastes. The next item is one of the 4
    that the group of the item before and the taste have, with probabilities 0.5, 0.25, 0.15 and
    0.1; every fourth item, and the first, follows a Zipf distribution. What a user has had already
    is left out. Ids go by decreasing frequency in `train`.

    Args:
        num_classes: n, the number of items.
        num_users: U.
        max_items: longest history, at least 3.
        seed: everything depends on it.
    """
    check_positive(num_classes=num_classes, num_users=num_users)
    if max_items < LEAST:
        raise ValueError(f"`max_items` must be at least {LEAST}. Received: {max_items}")
    generator = random_generator(seed, 4)
    weights = zipf(num_classes, 1.0, 4.0)
    next_of = draw(generator, weights, (GROUPS, TASTES, len(SLOTS)))
    taste = generator.integers(TASTES, size=num_users)
    steps = draw(generator, weights, (num_users, max_items))
    slots = draw(generator, SLOTS, (num_users, max_items))
    for step in range(1, max_items):
        if step % 4:
            steps[:, step] = next_of[steps[:, step - 1] % GROUPS, taste, slots[:, step]]
    sizes = generator.integers(LEAST, max_items + 1, num_users)
    lists = [list(dict.fromkeys(row[:k].tolist())) for row, k in zip(steps, sizes, strict=True)]
    users = np.repeat(np.arange(num_users), [len(items) for items in lists])
    splits = leave_one_out(item_lists(users, np.concatenate(lists), num_users))
    counts = np.bincount(splits[0].items, minlength=num_classes)
    order = np.argsort(-counts, kind="stable")
    return InteractionData(
        "synthetic_interactions",
        *renumbered(splits, order),
        num_classes=num_classes,
        items=[str(item) for item in order],
        counts=counts[order],
        users=[str(user) for user in range(num_users)],
    )
