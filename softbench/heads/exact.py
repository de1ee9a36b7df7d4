"""What a head says exactly, whatever it trained on: scores, their likelihood, the best classes."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from softbench import partition
from softbench.common import Tensor, check_positive
from softbench.heads import inputs, retrieval
from softbench.ops import by_shards
from softbench.targets import Targets, reduced


class ExactScores(keras.layers.Layer):
    """The part of a head that predicts; `Head` has the call and the letters.

    Attributes:
        units: n.
        width: d.
    """

    units: int
    width: int

    def begin(self, training: bool) -> None:
        """Called before anything is computed; `training` says that rows may be updated."""

    def prediction_scores(
        self, hidden: Tensor, ids: Tensor | None = None, **side: Tensor
    ) -> Tensor:
        """Scores whose softmax is the model: of all classes (B, n), or (B, m) of `ids`.

        ids are (B, m), or (1, m) that all examples are compared with.
        """
        raise NotImplementedError

    def scorer(self, hidden: Tensor, **side: Tensor) -> Callable[[Tensor], Tensor]:
        """ids (C,) -> `prediction_scores` (B, C), for a pass over all classes in chunks."""
        return lambda ids: self.prediction_scores(hidden, ids[None], **side)

    def negative_log_likelihood(self, hidden: Tensor, targets: Targets, **side: Tensor) -> Tensor:
        """-log softmax(scores)[label] (B,), exact, streamed over classes when n is large.

        Of several labels it is the weighted mean.
        """
        labels, weight = targets.labels, targets.label_weight
        if weight is None:
            return self._label_losses(hidden, ops.expand_dims(labels, -1), **side)[:, 0]
        return reduced(self._label_losses(hidden, labels, **side), weight, "mean")

    def _label_losses(self, hidden: Tensor, labels: Tensor, **side: Tensor) -> Tensor:
        """-log softmax(scores) (B, P) of labels (B, P)."""
        if partition.class_chunk(self.units, hidden.shape[0]) >= self.units:
            scores = self.prediction_scores(hidden, **side)
            true = ops.take_along_axis(scores, labels, axis=-1)
            return ops.logsumexp(scores, axis=-1, keepdims=True) - true

        def part(first: Tensor, count: int, hidden: Tensor, labels: Tensor, side: dict) -> tuple:
            scorer = self.scorer(hidden, **side)
            return partition.log_partition(scorer, hidden, labels, count, first)

        def join(found: tuple) -> tuple:
            return ops.logsumexp(found[0], axis=0), ops.max(found[1], axis=0)

        log_z, true = self._over_classes(part, join, hidden, labels, side)
        return log_z - true

    def _over_classes(
        self, function: Callable, join: Callable, *arrays: Tensor | dict[str, Tensor]
    ) -> Any:
        """`function(first, count, *arrays)` for the classes [first, first + count)."""
        return by_shards(function, join, self.units, self.class_variables, self.variables, *arrays)

    @property
    def class_variables(self) -> list[keras.Variable]:
        """The variables (n, ...) that scores are made from."""
        return []

    def top_k(
        self,
        hidden: Tensor,
        k: int,
        approximate: Any = False,
        num_candidates: int = retrieval.NUM_CANDIDATES,
    ) -> tuple[Tensor, Tensor]:
        """The k best classes: `(scores, ids)`, each (..., k).

        Exact, streamed over classes: among equal scores the lower id comes first. Or approximate:
        the classes of a codebook's best cells are scored exactly, and the k best of them are
        returned. Scores are those of `head(hidden)`, but a class whose cell is not among the best
        is missed. The cost for each example is that of the cells' scores and of M rows.

        Args:
            hidden: (..., d).
            k: how many classes.
            approximate: False; True for the codebook of the head's sampler ("codebook" or
                "top_and_tail"); or a `softbench.serving.Index` of this head.
            num_candidates: M, how many classes are scored exactly; at most n are. More find more
                of the best.

        Raises:
            ValueError: unless 1 <= k <= n and k <= num_candidates; with `approximate`, if there is
                no codebook, or the scores are not inner products of the class table.
        """
        return self._top_k(hidden, k, approximate, num_candidates)

    def _top_k(
        self, hidden: Tensor, k: int, approximate: Any, num_candidates: int, **side: Tensor
    ) -> tuple[Tensor, Tensor]:
        check_positive(k=k)
        if k > self.units:
            raise ValueError(
                f"`k` must be at most the number of classes {self.units}. Received: k={k}"
            )
        hidden = ops.convert_to_tensor(hidden)
        if not self.built:
            self.build(tuple(hidden.shape))
        flat, leading = self._flatten(hidden)
        self.begin(training=False)
        if approximate is False:

            def part(first: Tensor, count: int, hidden: Tensor, side: dict) -> tuple:
                scorer = self.scorer(hidden, **side)
                return partition.top_k(scorer, hidden, count, k, first)

            join = lambda found: partition.best_of(found, k)  # noqa: E731
            scores, ids = self._over_classes(part, join, flat, side)
        else:
            scores, ids = retrieval.top_k(self, flat, k, approximate, num_candidates, side)
        return ops.reshape(scores, (*leading, k)), ops.reshape(ids, (*leading, k))

    def _flatten(self, hidden: Tensor) -> tuple[Tensor, tuple]:
        inputs.check_hidden(hidden, self.width)
        return inputs.flat_vectors(hidden), tuple(ops.shape(hidden)[:-1])
