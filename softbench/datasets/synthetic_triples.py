"""Generated triples of a knowledge graph, the tail to be predicted."""

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import TripleData
from softbench.datasets.draws import SLOTS, draw, random_generator, zipf

GROUPS = 16


def synthetic_triples(
    num_classes: int = 2_000,
    num_relations: int = 20,
    num_train: int = 20_000,
    num_valid: int = 1_000,
    num_test: int = 1_000,
    seed: int = 0,
) -> TripleData:
    """Triples (head, relation, tail) in which head and relation tell much about the tail.

    Every entity is in one of 16 groups. Heads follow a Zipf distribution, relations the uniform
    one; the tail is one of the 4 entities that the group of the head and the relation have, with
    probabilities 0.5, 0.25, 0.15 and 0.1. Ids go by decreasing frequency as a tail in `train`.

    Args:
        num_classes: n, the number of entities.
        num_relations: number of relations.
        num_train, num_valid, num_test: triples of each split.
        seed: everything depends on it.
    """
    check_positive(num_classes=num_classes, num_relations=num_relations, num_train=num_train)
    check_positive(num_valid=num_valid, num_test=num_test)
    generator = random_generator(seed, 2)
    weights, size = zipf(num_classes, 1.0, 4.0), num_train + num_valid + num_test
    tails_of = draw(generator, weights, (GROUPS, num_relations, len(SLOTS)))
    heads = draw(generator, weights, size)
    relations = generator.integers(num_relations, size=size)
    tails = tails_of[heads % GROUPS, relations, draw(generator, SLOTS, size)]
    counts = np.bincount(tails[:num_train], minlength=num_classes)
    order = np.argsort(-counts, kind="stable")
    new_id = np.argsort(order)
    triples = np.stack([new_id[heads], relations, new_id[tails]], axis=-1).astype(np.int32)
    return TripleData(
        "synthetic_triples",
        *np.split(triples, [num_train, num_train + num_valid]),
        num_classes=num_classes,
        num_relations=num_relations,
        entities=[str(entity) for entity in order],
        relations=[str(relation) for relation in range(num_relations)],
        counts=counts[order],
    )
