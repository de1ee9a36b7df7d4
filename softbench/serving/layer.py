"""The best classes as a layer, for a model to export."""

from typing import Any

import keras
from keras import ops

from softbench import partition
from softbench.common import Tensor, check_positive
from softbench.heads import retrieval


class TopK(keras.layers.Layer):
    """The k best classes as a layer: hidden (..., d) -> {"scores": (..., k), "ids": (..., k)}.

    With `seen`, ids (..., S) padded with -1, the best of the others: k + S are ranked, and these
    taken out. Where fewer than k are left, the scores end with -inf and the ids with -1.

    For the model that is exported; see `softbench.serving`. It has no config (a `.keras`
    file holds the model it is made from), and no weights but those of the head and of the index.

    Args:
        head: a head that has its weights.
        k, approximate, num_candidates: as in `head.top_k`.

    Example:
        >>> head = softbench.FullSoftmax(20)
        >>> scores = head(np.ones((2, 8), "float32"))
        >>> best = softbench.serving.TopK(head, 3)
        >>> tuple(best(np.ones((2, 8), "float32"))["ids"].shape)
        (2, 3)
    """

    def __init__(
        self,
        head: Any,
        k: int = 10,
        approximate: Any = False,
        num_candidates: int = retrieval.NUM_CANDIDATES,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        check_positive(k=k, num_candidates=num_candidates)
        if not head.built:
            raise ValueError(
                "`head` must have its weights: train or load it first. Received: a head that is "
                "not built"
            )
        if k > head.units:
            raise ValueError(f"`k` must be at most {head.units}, the classes. Received: {k}")
        self.head, self.k, self.num_candidates = head, int(k), int(num_candidates)
        self.approximate = approximate
        self.built = True

    def call(
        self, hidden: Tensor, sampler_inputs: Tensor | None = None, seen: Tensor | None = None
    ) -> dict[str, Tensor]:
        """`sampler_inputs`: for a head that takes them; `seen`: int (..., S)."""
        side = {} if sampler_inputs is None else {"sampler_inputs": sampler_inputs}
        more = 0 if seen is None else seen.shape[-1]
        options = {"approximate": self.approximate, "num_candidates": self.num_candidates + more}
        size = min(self.k + more, self.head.units)
        scores, ids = self.head.top_k(hidden, size, **options, **side)
        if seen is not None:
            is_seen = ops.any(ops.equal(ids[..., :, None], seen[..., None, :]), axis=-1)
            left = ops.where(is_seen, -float("inf"), scores)
            scores, ids = partition.largest(left, ops.where(is_seen, -1, ids), self.k)
        return {"scores": scores, "ids": ids}

    def compute_output_spec(
        self,
        hidden: keras.KerasTensor,
        sampler_inputs: keras.KerasTensor | None = None,
        seen: keras.KerasTensor | None = None,
    ) -> dict[str, keras.KerasTensor]:
        shape = (*hidden.shape[:-1], self.k)
        return {
            "scores": keras.KerasTensor(shape, "float32"),
            "ids": keras.KerasTensor(shape, "int32"),
        }
