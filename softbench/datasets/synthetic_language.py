"""A generated language with sequential structure and exact probabilities."""

import functools
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.base import LanguageData
from softbench.datasets.draws import SLOTS, draw, random_generator, zipf

_ENTRIES = 1 << 21  # of the probabilities that are held at a time


class SyntheticLanguage:
    """A second-order language with exact conditional probabilities.

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

    Attributes:
        data: the `LanguageData`.
    """

    def __init__(
        self,
        num_classes: int = 10_000,
        num_train: int = 200_000,
        num_valid: int = 20_000,
        num_test: int = 20_000,
        seed: int = 0,
        num_groups: int = 16,
        collocation: float = 0.45,
        exponent: float = 1.1,
    ) -> None:
        check_positive(num_classes=num_classes, num_train=num_train, num_valid=num_valid)
        check_positive(num_test=num_test, num_groups=num_groups)
        if not 0.0 <= collocation <= 1.0:
            raise ValueError(f"`collocation` must be in [0, 1]. Received: {collocation}")
        self._collocation, self._n = collocation, num_classes
        self._groups = min(num_groups, num_classes)
        generator = random_generator(seed)
        weights = zipf(num_classes, exponent, 1.7)
        self._successors = draw(generator, weights, (num_classes, len(SLOTS)))
        shape = (self._groups, self._groups, len(SLOTS))
        self._next_group = generator.integers(self._groups, size=shape)
        self._ranks = zipf(-(-num_classes // self._groups), exponent, 0.0)
        raw = self._generate(generator, num_train + num_valid + num_test)
        counts = np.bincount(raw[:num_train], minlength=num_classes)
        self._raw_id = np.argsort(-counts, kind="stable")
        new_id = np.empty(num_classes, np.int32)
        new_id[self._raw_id] = np.arange(num_classes)
        streams = np.split(new_id[raw], [num_train, num_train + num_valid])
        counts = counts[self._raw_id]
        self.data = LanguageData(
            "synthetic_language",
            *streams,
            num_classes,
            None,
            counts,
            truth=self._truth,
            valid_truth=functools.partial(self._truth, "valid"),
        )

    def _generate(self, generator: np.random.Generator, size: int) -> np.ndarray:
        """Draws the text; all random numbers come first, so the loop only follows tables."""
        follows = (generator.random(size) < self._collocation).tolist()
        slot = draw(generator, SLOTS, size).tolist()
        base = (draw(generator, self._ranks, size) * self._groups).tolist()
        successors = self._successors
        next_group = self._next_group.ravel().tolist()
        groups, n = self._groups, self._n
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

    def true_log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Exact log p(y_t | y_{t-1}, y_{t-2}) under the generator, for every t >= 2.

        `exp(-mean)` of it is the perplexity that no model can beat, up to sampling noise.

        Args:
            tokens: `(N,)` stream (or a consecutive section of one) in the ids of `data`.

        Returns:
            float64 `(N - 2,)`.
        """
        raw = self._raw_id[np.asarray(tokens)]
        first, last, target = raw[:-2], raw[1:-1], raw[2:]
        followed = (self._successors[last] == target[:, None]) @ SLOTS
        chosen = self._next_group[first % self._groups, last % self._groups]
        group = (chosen == (target % self._groups)[:, None]) @ SLOTS
        ranked = group * self._in_group()[target]
        return np.log(self._collocation * followed + (1.0 - self._collocation) * ranked)

    def _in_group(self) -> np.ndarray:
        """z(y | g(y)) of each class, float64 `(n,)`, by raw id."""
        ids, groups = np.arange(self._n), self._groups
        last_rank = (len(self._ranks) - 1) * groups + ids % groups
        folded = (ids < groups) & (last_rank >= self._n) & (len(self._ranks) > 1)
        return self._ranks[ids // groups] + np.where(folded, self._ranks[-1], 0.0)

    def _truth(self, split: str = "test") -> Iterator[tuple[np.ndarray, sp.csr_matrix]]:
        """See `LanguageData.truth`; the last token before the split is a context as well."""
        before = self.data.valid if split == "test" else self.data.train
        tokens = np.append(before[-1:], getattr(self.data, split))
        raw, targets = self._raw_id[tokens], tokens[2:]
        in_group, group = self._in_group(), np.arange(self._n) % self._groups
        size = max(1, _ENTRIES // self._n)
        for start in range(0, len(targets), size):
            labels = targets[start : start + size]
            first, last = (raw[start + i :][: len(labels)] for i in range(2))
            rows = np.arange(len(labels))[:, None]
            of_groups = np.zeros((len(labels), self._groups))
            chosen = self._next_group[first % self._groups, last % self._groups]
            np.add.at(of_groups, (rows, chosen), SLOTS)
            p = (1.0 - self._collocation) * of_groups[:, group] * in_group
            np.add.at(p, (rows, self._successors[last]), self._collocation * SLOTS)
            ones, ends = np.ones(len(labels), np.float32), np.arange(len(labels) + 1)
            yield p[:, self._raw_id], sp.csr_matrix((ones, labels, ends), p.shape)


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
    """Returns `SyntheticLanguage(...).data`; see there for the distribution and the arguments."""
    return SyntheticLanguage(
        num_classes, num_train, num_valid, num_test, seed, num_groups, collocation, exponent
    ).data
