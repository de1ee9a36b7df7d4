"""Draws in proportion to the exponential of codewords' scores, at a cost that n does not change."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import (
    PACKAGE,
    Tensor,
    check_counts,
    check_length,
    check_positive,
)
from softbench.groups import check_splits, similar
from softbench.ops import matmul_transposed, read
from softbench.samplers.base import check_width
from softbench.samplers.codebook import fit, search
from softbench.samplers.codebook.distribution import CodebookDistribution, Query
from softbench.samplers.codebook.follow import FollowingCodebook
from softbench.samplers.proposal import Independent
from softbench.state import Arguments


class CodebookProposal(Independent):
    """Draws by a `CodebookDistribution` of one query: of every example, or of groups of them."""

    def __init__(self, sampler: Any, table: Any, hidden: Tensor, exclude: Tensor | None) -> None:
        super().__init__(sampler.units, sampler.rows, ops.shape(hidden)[0])
        self.distribution = sampler.distribution(table)
        self.query: Query = self.distribution.query(
            ops.stop_gradient(hidden), exclude, sampler.rows
        )

    def draw_with_log_q(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        return self.distribution.draw(self.query, num_sampled, seed)

    def log_q(self, ids: Tensor) -> Tensor:
        return self.distribution.log_prob(self.query, ids)

    def log_q_all(self) -> Tensor:
        return self.distribution.log_prob_all(self.query)


EQUAL = "equal"  # counts of an unweighted k-means


@keras.saving.register_keras_serializable(PACKAGE)
class Codebook(FollowingCodebook):
    """q(i | h) = w_i exp(s(h, c1[k1(i)]) + s(h, c2[k2(i)])) / Z(h), of c_i ~ c1[k1] + c2[k2].

    The class vectors are quantised by two codebooks of K codewords each, by k-means weighted with
    the class counts: the cells of frequent classes are small, which is where the softmax has its
    mass. (`counts="equal"` weighs all equally, as the MIDX samplers of arXiv 2501.08563 do: uniform
    within a cell without a prior, by popularity with the counts as `prior`.) Scores are the
    table's, <h, c> / temperature, of normalised vectors where the table normalises;
    w_i = prior_i^prior_power e^(b_i), both left out where there is none.

    With W[k1, k2] the sum of w over a cell, E1 = exp(s(h, c1)) and E2 = exp(s(h, c2)),
    Z = sum_k1 E1 (E2 W^T): one (B, K) x (K, K) product, whatever n is. A draw finds k1, then k2,
    then a class of the cell by w. Draws leave the label out exactly: its own mass is not in W. With
    `share_draws` the batch shares m draws of its mixture q_bar(i) = 1/B sum_b q(i | h_b), whose
    cells have the masses W ((E1 / Z)^T E2) / B. `log_prob` is exact for the codebook in use,
    however old it is. A score of a codeword that is 30 or more below the best of its codebook
    counts as 30 below: see `CodebookDistribution`.

    Cost: O(B K (d + K)) and O(log n) for a draw. Memory: three or four int32 for each class
    (seven or eight with weights), and with a `row_optimizer` one more.

    How it follows the table. A full fit when built: k-means++ with candidates and Lloyd passes, on
    all or on 256 K classes. With a `row_optimizer` the codewords stay, in each step, the means of
    the rows of their cells: 1,024 of the touched rows are looked at, in proportion to their
    weights, each for a weight that it stands for. Cells are looked for again for n /
    `refresh_every` classes a step in turn, 1,024 at most, and come into use together when all had
    their turn. Otherwise every `refresh_every`-th training step makes one Lloyd pass over all
    classes, O(n K d), and computes the weights afresh. `refresh(table)`, another full fit, is for a
    table that was assigned by hand.

    Args:
        num_codewords: K; with fewer classes, their number.
        quantizer: "residual": the second codebook is of what the first leaves over; "product": one
            codebook for either half of the features; "single": one codebook alone, K cells.
        within_cell: "weights": by w_i; "exact": the class is drawn anew from the softmax of the
            scores in its window of `window` classes, successive ones in the order of the cells:
            closer to the softmax, for `window` rows a draw (or all n scores, where that is less).
        window: see `within_cell`.
        counts: of the classes (n,), the weights of the k-means; "equal" for an unweighted one.
            None: those of the labels that training has seen, which are 0 when it is built.
        prior: counts of the classes (n,), or None for 1. A class with count 0 is never drawn.
        prior_power: of the prior.
        refresh_every: training steps between passes, at least so many with a `row_optimizer`.
        share_draws: as for every sampler. With a number G of groups, a power of two, a head puts
            similar examples together (halves of halves of the batch, at the median of the main
            direction), and each group draws from its own mixture.
        seed: of the draws, and of the k-means. On TensorFlow draws are the same with and without
            `jit_compile`; losses differ by rounding.

    Raises:
        ValueError: if an argument is not in its range, the counts do not fit the table, its rows
            are not finite, or its scores are absolute values (not sums over codewords).

    Example:
        >>> config = {"num_codewords": 4, "counts": [5, 3, 1, 1, 1, 1]}
        >>> head = softbench.SampledSoftmax(6, {"class_name": "codebook", "config": config}, 2)
        >>> head.sampler.num_codewords
        4
    """

    shares_by_groups = True
    arguments: Arguments = (
        "num_codewords",
        "quantizer",
        "within_cell",
        "window",
        "counts",
        "prior",
        "prior_power",
        "refresh_every",
    )

    def __init__(
        self,
        num_codewords: int = 128,
        quantizer: str = "residual",
        within_cell: str = "weights",
        window: int = 32,
        counts: Sequence[float] | str | None = None,
        prior: Sequence[float] | None = None,
        prior_power: float = 1.0,
        refresh_every: int = 20,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_codewords=num_codewords, window=window, refresh_every=refresh_every)
        if quantizer not in fit.QUANTIZERS:
            raise ValueError(
                f"`quantizer` must be one of {fit.QUANTIZERS}. Received: quantizer={quantizer!r}"
            )
        if within_cell not in ("weights", "exact"):
            raise ValueError(
                f"`within_cell` must be 'weights' or 'exact'. Received: within_cell={within_cell!r}"
            )
        if self.rows is not None and self.rows > 1:
            check_splits(self.rows)
            if within_cell == "exact":
                raise ValueError(
                    "`share_draws` must be True or False with within_cell='exact', or take "
                    f"within_cell='weights'. Received: share_draws={self.share_draws}"
                )
        self.num_codewords = int(num_codewords)
        self.quantizer = quantizer
        self.within_cell = within_cell
        self.window = int(window)
        self.counts: Any = counts
        if isinstance(counts, str) and counts != EQUAL:
            raise ValueError(
                f"`counts` must be numbers, {EQUAL!r} or None. Received: counts={counts!r}"
            )
        if counts is not None and not isinstance(counts, str):
            self.counts = check_counts(counts)
        self.prior = None if prior is None else check_counts(prior, "prior")
        self.prior_power = prior_power
        self.refresh_every = int(refresh_every)

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        if table is None:
            raise ValueError("`table` must be the ClassTable to draw from. Received: table=None")
        if table.absolute:
            raise ValueError(
                "`absolute` scores are not sums over codewords; use another sampler, for example "
                "'quadratic'. Received: absolute=True"
            )
        if self.quantizer == "product" and table_shape[-1] < 2:
            raise ValueError(
                "`quantizer='product'` needs a table of two features or more; use 'residual'. "
                f"Received shape: {tuple(table_shape)}"
            )
        for name in ("counts", "prior"):
            if isinstance(getattr(self, name), np.ndarray):
                check_length(getattr(self, name), table_shape[0], name)
        super().build(table_shape, num_sampled, table)

    def distribution(self, table: Any) -> CodebookDistribution:
        """Masses of cells and classes by the codewords as they are."""
        exact = self.within_cell == "exact"
        return CodebookDistribution(
            table,
            self.cells,
            self.codewords,
            lambda hidden: fit.halves(hidden, self.quantizer),
            min(self.window, self.units) if exact else None,
        )

    def propose(self, table, hidden, exclude=None, targets=None):
        check_width(table, hidden)
        return CodebookProposal(self, table, hidden, exclude)

    def arrange(self, hidden: Tensor) -> Tensor | None:
        return None if self.rows in (None, 1) else similar(hidden, self.rows)

    def index(self) -> Any:
        return self

    def candidates(self, table: Any, hidden: Tensor, size: int, k: int) -> search.Candidates:
        """M = `size` classes of the best cells for hidden (B, d), k of them known for certain.

        A cell's score is that of its codewords and the log of its classes' mean weight.
        """
        self._check_built(table)
        parts = fit.halves(table.normalized(hidden) / table.temperature, self.quantizer)
        first, second = (
            matmul_transposed(part, read(codewords))
            for part, codewords in zip(parts, self.codewords, strict=True)
        )
        edges = read(self.cells.edges)
        mass, classes = (
            ops.cast(ops.maximum(x, 1), "float32")
            for x in (self.cells.masses(), edges[1:] - edges[:-1])
        )
        scores = ops.reshape(first[:, :, None] + second[:, None, :], (-1, self.cells.size))
        scores = scores + ops.log(mass / classes)
        return search.candidates(scores, edges, read(self.cells.order), size, k)
