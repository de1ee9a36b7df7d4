"""A generated language with sequential structure and exact probabilities."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.base import LanguageData
from softbench.datasets.draws import SLOTS, draw, random_generator, zipf

_ENTRIES = 1 << 21  # of the probabilities that are held at a time


def synthetic_language(
    num_classes: int = 10_000,
    num_train: int = 200_000,
    num_valid: int = 20_000,
    num_test: int = 20_000,
    seed: int = 0,
    num_groups: int = 16,
    collocation: float = 0.45,
    exponent: float = 1.1,
) -> LanguageData:
    """A second-order language with exact conditional probabilities, its `truth`.

    Every class has a group g and a rank inside it. With a = `collocation`,

        p(y_t | y_{t-1}, y_{t-2}) = a s(y_t | y_{t-1})
                                    + (1 - a) r(g(y_t) | g(y_{t-2}), g(y_{t-1})) z(y_t | g(y_t))

    s: 4 fixed successors of each class, drawn from a Zipf distribution over the vocabulary; r: 4
    possible groups after each pair of groups; z: a Zipf distribution over the members of the
    group. The first term is what a bigram model learns; of the second it sees only the average
    over y_{t-2}, so a recurrent model can be better than any bigram model. Ids are sorted by
    decreasing train count.

    Args:
        num_classes: n.
        num_train, num_valid, num_test: tokens of the streams, consecutive sections of one text.
        seed: everything depends on it.
        num_groups: G (at most n of them are used).
        collocation: a, in [0, 1].
        exponent: of the Zipf distributions. Weights are (rank + 1) ** -exponent inside a group and
            (rank + 2.7) ** -exponent for the successors, ranks counted from 0.
    """
    check_positive(num_classes=num_classes, num_train=num_train, num_valid=num_valid)
    check_positive(num_test=num_test, num_groups=num_groups)
    if not 0.0 <= collocation <= 1.0:
        raise ValueError(f"`collocation` must be in [0, 1]. Received: {collocation}")
    groups, generator = min(num_groups, num_classes), random_generator(seed)
    weights = zipf(num_classes, exponent, 1.7)
    source = Source(
        num_classes,
        collocation,
        draw(generator, weights, (num_classes, len(SLOTS))),
        generator.integers(groups, size=(groups, groups, len(SLOTS))),
        zipf(-(-num_classes // groups), exponent, 0.0),
    )
    raw = source.text(generator, num_train + num_valid + num_test)
    counts = np.bincount(raw[:num_train], minlength=num_classes)
    raw_id = np.argsort(-counts, kind="stable")
    new_id = np.empty(num_classes, np.int32)
    new_id[raw_id] = np.arange(num_classes)
    train, valid, test = np.split(new_id[raw], [num_train, num_train + num_valid])
    return LanguageData(
        "synthetic_language",
        train,
        valid,
        test,
        num_classes,
        None,
        counts[raw_id],
        truth=functools.partial(source.examples, raw_id, np.append(valid[-1:], test)),
        valid_truth=functools.partial(source.examples, raw_id, np.append(train[-1:], valid)),
    )


class Source(NamedTuple):
    """How the text is drawn; ids here are those before they are sorted by count.

    Attributes:
        num_classes: n; the group of class y is y modulo G, its rank y // G.
        collocation: a.
        successors: `(n, 4)`.
        next_group: `(G, G, 4)`.
        ranks: probabilities of the ranks inside a group.
    """

    num_classes: int
    collocation: float
    successors: np.ndarray
    next_group: np.ndarray
    ranks: np.ndarray

    def text(self, generator: np.random.Generator, size: int) -> np.ndarray:
        """Draws the text; all random numbers come first, so the loop only follows tables."""
        groups, n, successors = len(self.next_group), self.num_classes, self.successors
        follows = (generator.random(size) < self.collocation).tolist()
        slot = draw(generator, SLOTS, size).tolist()
        base = (draw(generator, self.ranks, size) * groups).tolist()
        next_group = self.next_group.ravel().tolist()
        text = [0] * size
        before = last = 0  # group of the token before the last one; the last token
        for t in range(size):
            group = last % groups
            if follows[t]:
                last = int(successors[last, slot[t]])
            else:
                chosen = next_group[(before * groups + group) * len(SLOTS) + slot[t]]
                last = base[t] + chosen
                if last >= n:  # the shorter groups have no such rank
                    last = chosen
            before = group
            text[t] = last
        return np.array(text, np.int32)

    def _in_group(self) -> np.ndarray:
        """z(y | g(y)) of each class, float64 `(n,)`."""
        ids, groups = np.arange(self.num_classes), len(self.next_group)
        last_rank = (len(self.ranks) - 1) * groups + ids % groups
        folded = (ids < groups) & (last_rank >= self.num_classes) & (len(self.ranks) > 1)
        return self.ranks[ids // groups] + np.where(folded, self.ranks[-1], 0.0)

    def examples(
        self, raw_id: np.ndarray, tokens: np.ndarray
    ) -> Iterator[tuple[np.ndarray, sp.csr_matrix]]:
        """See `LanguageData.truth`.

        Args:
            raw_id: `(n,)`, the id here of each class of the data.
            tokens: the split, and the last token before it, which is a context as well.
        """
        raw, targets, groups = raw_id[tokens], tokens[2:], len(self.next_group)
        in_group, group = self._in_group(), np.arange(self.num_classes) % groups
        size = max(1, _ENTRIES // self.num_classes)
        for start in range(0, len(targets), size):
            labels = targets[start : start + size]
            first, last = (raw[start + i :][: len(labels)] for i in range(2))
            rows = np.arange(len(labels))[:, None]
            of_groups = np.zeros((len(labels), groups))
            np.add.at(of_groups, (rows, self.next_group[first % groups, last % groups]), SLOTS)
            p = (1.0 - self.collocation) * of_groups[:, group] * in_group
            np.add.at(p, (rows, self.successors[last]), self.collocation * SLOTS)
            ones, ends = np.ones(len(labels), np.float32), np.arange(len(labels) + 1)
            yield p[:, raw_id], sp.csr_matrix((ones, labels, ends), p.shape)
