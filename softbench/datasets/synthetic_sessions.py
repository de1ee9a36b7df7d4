"""Generated histories: each user keeps to one group of items, and mostly goes on to a near one."""

import numpy as np

from softbench.common import check_positive
from softbench.datasets.interaction_files import LEAST, SessionData

_STAY = 0.8  # probability of a step to one of the next items of the group


def synthetic_sessions(
    num_users: int = 2_000,
    num_items: int = 1_000,
    num_groups: int = 20,
    length: int = 20,
    seed: int = 0,
) -> SessionData:
    """Users with `length` items each; item i belongs to group i % `num_groups`.

    A user goes on to one of the next four items of the group, or starts anew in it.

    Args:
        num_users, num_items, num_groups: sizes; a group has one item or more.
        length: items of a user, 3 or more.
        seed: of all draws.
    """
    check_positive(num_users=num_users, num_items=num_items, num_groups=num_groups)
    if length < LEAST or num_groups > num_items:
        raise ValueError(
            f"`length` must be {LEAST} or more and `num_groups` at most `num_items`. "
            f"Received: length={length}, num_groups={num_groups}, num_items={num_items}"
        )
    rng = np.random.default_rng(seed)
    in_group, shape = num_items // num_groups, (num_users, length)
    stay, step = rng.random(shape) < _STAY, rng.integers(1, 5, shape)
    place = rng.integers(in_group, size=shape)
    for column in range(1, length):
        onward = (place[:, column - 1] + step[:, column]) % in_group
        place[:, column] = np.where(stay[:, column], onward, place[:, column])
    items = place * num_groups + rng.integers(num_groups, size=(num_users, 1))
    counts = np.bincount(items[:, :-2].ravel(), minlength=num_items)
    names = [str(item) for item in range(num_items)]
    users = [str(user) for user in range(num_users)]
    ends = np.arange(num_users + 1, dtype=np.int64) * length
    flat = items.ravel().astype(np.int32)
    return SessionData("synthetic_sessions", flat, ends, num_items, users, names, counts)
