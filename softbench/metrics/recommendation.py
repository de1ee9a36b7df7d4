"""The metrics of recommenders, from ranked ids alone: by users, by groups of them, by buckets.

Shape letters: N users, n items, K ranked ids, R labels and S seen items of a user, D depths.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.metrics.at_k import BUCKETS, LikelihoodTotals, class_buckets, hits, ndcg

MEASURES = ("precision", "recall", "ndcg", "mrr", "map")  # means over users with labels


def ranking(
    top_ids: np.ndarray,
    labels: np.ndarray,
    num_items: int,
    ks: Sequence[int] = (10,),
    *,
    seen: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    novelty: np.ndarray | None = None,
) -> dict[str, float]:
    """The metrics of recommenders of some users' rankings; `RecommendationTotals` defines them.

    Args:
        top_ids, labels, seen, groups: as in `RecommendationTotals.update`, of all users.
        num_items, ks, counts, novelty: as in `RecommendationTotals`.

    Returns:
        {name: value}, as "recall_at_10", "ndcg_at_10_tail" and "map_at_10_of_<group>".

    Raises:
        ValueError: for arrays of wrong shapes or ids; if no user has a label.

    Example:
        >>> top_ids = np.array([[4, 1, 0, 2], [0, 4, 3, 1]])
        >>> labels = np.array([[1, 3], [4, -1]])
        >>> seen = np.array([[4], [0]])
        >>> scores = softbench.metrics.ranking(top_ids, labels, num_items=5, ks=(2,), seen=seen)
        >>> [scores[name] for name in ("recall_at_2", "map_at_2", "mrr_at_2", "coverage_at_2")]
        [0.75, 0.75, 1.0, 0.8]
    """
    totals = RecommendationTotals(ks, num_items, counts, novelty)
    totals.update(top_ids, labels, seen=seen, groups=groups)
    scores = totals.result()
    if "users" not in scores:
        raise ValueError("`labels` must have a user with a label. Received: none")
    return scores


def item_novelty(users: np.ndarray, items: np.ndarray, num_items: int) -> np.ndarray:
    """The self-information of every item: -log2(users who have had it / all users), in bits.

    A user who has had an item several times counts once. An item that nobody has had counts as if
    one user had.

    Args:
        users, items: int (E,), the interactions of training; any whole numbers for the users.
        num_items: n.

    Returns:
        float64 (n,).

    Reference: Zhou et al. (2010), their I; RecTools' MeanInvUserFreq is the mean over lists of it.
    """
    names, users = np.unique(users, return_inverse=True)
    pairs = np.unique(users.astype(np.int64) * num_items + np.asarray(items))
    had = np.bincount(pairs % num_items, minlength=num_items)
    return -np.log2(np.maximum(had, 1) / max(len(names), 1))


def without_seen(top_ids: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Ranked ids (N, K) without those of `seen` (N, S), padded with -1: the others, then -1."""
    size = 1 + max(top_ids.max(initial=0), seen.max(initial=0))
    first = size * np.arange(len(top_ids), dtype=np.int64)[:, None]
    is_seen = np.isin(first + np.maximum(top_ids, 0), (first + seen)[seen >= 0])
    unseen = np.where(is_seen, -1, top_ids)
    return np.take_along_axis(unseen, np.argsort(unseen < 0, axis=1, kind="stable"), axis=1)


class RecommendationTotals:
    """The metrics of recommenders, added up by batches of users.

    Means over the users who have labels, of the first k of a user's ranking:

    precision_at_k: labels among them / k;
    recall_at_k: labels among them / labels of the user; with one label each, the hit rate;
    ndcg_at_k: sum over ranks r of a label of 1 / log2(r + 1), over the largest possible for so many
        labels (RecTools: `NDCG(k, divide_by_achievable=True)`);
    mrr_at_k: 1 / (rank of the first label), 0 if it is beyond k;
    map_at_k: sum over ranks r of a label of precision_at_r, over the labels of the user.

    Of all rankings, also those of users without labels:

    coverage_at_k: share of the n items that are among the first k of any user;
    novelty_at_k: mean over users of the mean novelty of the first k.

    With `counts`, the first five again for each bucket of items of `class_buckets`, "_head",
    "_torso" and "_tail" behind the name: only labels of the bucket count as such, and the users are
    those who have one. With groups of users, all but coverage again for each, "_of_<group>" behind
    the name. "users" is how many had labels. `LikelihoodTotals` has the likelihood.

    Equal scores are in the order in which the model ranked them: `head.top_k` has the lower id
    first. A label twice counts once. A label that is seen counts as missed, since seen items are
    not recommended; take it off `seen` if having it again is to be predicted.

    Args:
        ks: depths.
        num_items: n.
        counts: `(n,)` training interactions of each item; None leaves the buckets out.
        novelty: `(n,)`, of `item_novelty`; None leaves it out.

    Raises:
        ValueError: for depths out of [1, n], or arrays of other shapes.
    """

    def __init__(
        self,
        ks: Sequence[int],
        num_items: int,
        counts: np.ndarray | None = None,
        novelty: np.ndarray | None = None,
    ) -> None:
        for k in ks:
            check_positive(ks=k)
        if max(ks) > num_items:
            raise ValueError(f"`ks` must be at most {num_items}, the items. Received: {max(ks)}")
        for name, values in {"counts": counts, "novelty": novelty}.items():
            if values is not None and np.shape(values) != (num_items,):
                raise ValueError(
                    f"`{name}` must have shape ({num_items},). Received: shape={np.shape(values)}"
                )
        self.ks, self.num_items = tuple(ks), num_items
        self._novelty = None if novelty is None else np.asarray(novelty, np.float64)
        self._buckets = None if counts is None else class_buckets(counts)
        self._likelihood = LikelihoodTotals(counts)
        self._shown = np.zeros((len(self.ks), num_items), bool)
        # By what is behind the names: users with labels, sums over them; rankings, sums of novelty.
        self._users: Counter[str] = Counter()
        shape = len(MEASURES), len(self.ks)
        self._sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(shape))
        self._lists: Counter[str] = Counter()
        self._novelties: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(shape[1]))

    def update(
        self,
        top_ids: np.ndarray,
        labels: np.ndarray,
        nll: np.ndarray | None = None,
        confidence: np.ndarray | None = None,
        *,
        seen: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> None:
        """Adds a batch of users.

        Args:
            top_ids: int `(N, K)`, distinct ids by decreasing score. K is at least max(ks) and, with
                `seen`, enough for as many unseen ids. -1: the model recommends no more.
            labels: int `(N,)`, or `(N, R)` padded with -1: the items to be recommended.
            nll: as `labels`, -log p of each; None leaves the likelihood out.
            confidence: `(N,)`, the probability of the first of the ranked ids; None leaves the
                calibration out.
            seen: int `(N, S)` padded with -1: items that are taken out of the ranking, in which
                the others move up.
            groups: `(N,)`, to which group each user belongs.

        Raises:
            ValueError: for wrong shapes or ids, an id twice in a ranking, a ranking that has too
                few unseen ids.
        """
        top_ids = self._ids("top_ids", top_ids, 2)
        users = len(top_ids)
        labels = self._ids("labels", labels, np.ndim(labels), users).reshape(users, -1)
        ordered = np.sort(top_ids, axis=1)
        if np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)):
            raise ValueError("`top_ids` must be distinct in every row. Received: an id twice")
        if np.any((top_ids[:, :-1] < 0) & (top_ids[:, 1:] >= 0)):
            raise ValueError("`top_ids` must have -1 at its end alone. Received: an id behind -1")
        if groups is not None and np.shape(groups) != (users,):
            raise ValueError(
                f"`groups` must have shape ({users},). Received: shape={np.shape(groups)}"
            )
        if seen is not None:
            top_ids = self._unseen(top_ids, self._ids("seen", seen, 2, users))
        kept = (labels >= 0) & ~_is_repeated(labels)
        truth = _sparse(labels, kept, self.num_items)
        is_hit = hits(np.maximum(top_ids, 0), truth, self.ks) & (top_ids >= 0)
        top_ids, is_hit = top_ids[:, : max(self.ks)], is_hit[:, : max(self.ks)]
        if nll is not None:
            nll = np.asarray(nll).reshape(labels.shape)[kept]
        self._likelihood.update(truth, is_hit[:, 0], nll, confidence)
        sizes = kept.sum(axis=1)
        for name, rows in _groups(groups, users):
            self._add(name, is_hit[rows], sizes[rows])
            self._add_novelty(name, top_ids[rows])
        if self._buckets is not None:
            of_ranked, of_labels = self._buckets[top_ids], self._buckets[labels]
            for index, name in enumerate(BUCKETS):
                sizes = (kept & (of_labels == index)).sum(axis=1)
                self._add(f"_{name}", is_hit & (of_ranked == index), sizes)
        for index, k in enumerate(self.ks):
            self._shown[index, top_ids[:, :k][top_ids[:, :k] >= 0]] = True

    def _ids(self, name: str, ids: np.ndarray, dims: int, rows: int | None = None) -> np.ndarray:
        """Ids as an array, or a ValueError."""
        ids, n = np.asarray(ids), self.num_items
        if not np.issubdtype(ids.dtype, np.integer) or ids.ndim != dims or dims not in (1, 2):
            raise ValueError(
                f"`{name}` must be whole numbers, a row for each user. "
                f"Received: shape={ids.shape}, dtype={ids.dtype}"
            )
        if rows not in (None, len(ids)):
            raise ValueError(f"`{name}` must have {rows} rows, as `top_ids`. Received: {len(ids)}")
        if ids.size and not -1 <= ids.min() <= ids.max() < n:
            raise ValueError(
                f"`{name}` must be in [0, {n}), or -1 for none. "
                f"Received: {ids.min()} to {ids.max()}"
            )
        return ids

    def _unseen(self, top_ids: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """`without_seen`, or a ValueError where a ranking ends before it has enough ids."""
        unseen, deepest = without_seen(top_ids, seen), max(self.ks)
        is_short = ((unseen >= 0).sum(axis=1) < deepest) & np.all(top_ids >= 0, axis=1)
        for row in np.flatnonzero(is_short):
            ranked = int((unseen[row] >= 0).sum())
            possible = self.num_items - len(np.unique(seen[row][seen[row] >= 0]))
            if ranked < min(deepest, possible):
                raise ValueError(
                    f"`top_ids` must have {min(deepest, possible)} ids that are not `seen` in "
                    f"every row: rank {deepest} more than the most that a user has seen. "
                    f"Received: {ranked} in row {row}"
                )
        return unseen

    def _add(self, name: str, is_hit: np.ndarray, sizes: np.ndarray) -> None:
        """Adds hits (N, K) of users with so many labels (N,)."""
        is_hit, sizes = is_hit[sizes > 0], sizes[sizes > 0]
        count = np.cumsum(is_hit, axis=1)
        precision = np.cumsum(is_hit * count / np.arange(1, is_hit.shape[1] + 1), axis=1)
        rank = 1.0 + is_hit.argmax(axis=1)
        self._users[name] += len(sizes)
        for column, k in enumerate(self.ks):
            ranked = count[:, k - 1]
            values = (
                ranked / k,
                ranked / sizes,
                ndcg(is_hit, sizes, k),
                (ranked > 0) / rank,
                precision[:, k - 1] / sizes,
            )
            self._sums[name][:, column] += [value.sum() for value in values]

    def _add_novelty(self, name: str, top_ids: np.ndarray) -> None:
        if self._novelty is None:
            return
        top_ids = top_ids[(top_ids >= 0).any(axis=1)]
        values = np.where(top_ids >= 0, self._novelty[top_ids], 0.0)
        self._lists[name] += len(top_ids)
        for column, k in enumerate(self.ks):
            ranked = np.maximum((top_ids[:, :k] >= 0).sum(axis=1), 1)
            self._novelties[name][column] += (values[:, :k].sum(axis=1) / ranked).sum()

    def result(self) -> dict[str, float]:
        """The metrics of all batches; those of a bucket or group without users are left out."""
        scores = self._likelihood.result()
        for name, users in self._users.items():
            if not users:
                continue
            scores[f"users{name}"] = users
            for measure, sums in zip(MEASURES, self._sums[name], strict=True):
                for k, value in zip(self.ks, sums, strict=True):
                    scores[f"{measure}_at_{k}{name}"] = float(value / users)
        for name, lists in self._lists.items():
            for k, value in zip(self.ks, self._novelties[name], strict=True):
                if lists:
                    scores[f"novelty_at_{k}{name}"] = float(value / lists)
        for k, shown in zip(self.ks, self._shown, strict=True):
            scores[f"coverage_at_{k}"] = float(shown.mean())
        return scores


def _groups(groups: np.ndarray | None, users: int) -> Iterator[tuple[str, np.ndarray]]:
    """What is behind the names, and rows: of all users, and of those of each group."""
    yield "", np.ones(users, bool)
    for group in [] if groups is None else np.unique(groups):
        yield f"_of_{group}", np.asarray(groups) == group


def _is_repeated(ids: np.ndarray) -> np.ndarray:
    """Which ids (N, R) are in their row before, bool."""
    order = np.argsort(ids, axis=1, kind="stable")
    ordered, repeated = np.take_along_axis(ids, order, axis=1), np.zeros(ids.shape, bool)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return repeated


def _sparse(labels: np.ndarray, kept: np.ndarray, num_items: int) -> sp.csr_matrix:
    """Those of the labels (N, R) that are kept, csr `(N, n)` of ones in their order."""
    ends, items = np.append(0, np.cumsum(kept.sum(axis=1))), labels[kept]
    shape = len(labels), num_items
    return sp.csr_matrix((np.ones(len(items), np.float32), items, ends), shape)
