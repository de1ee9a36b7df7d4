"""The best classes as a layer, for a model to export."""

from typing import Any

import keras

from softbench.common import Tensor, check_positive
from softbench.heads import retrieval


class TopK(keras.layers.Layer):
    """The k best classes as a layer: hidden (..., d) -> {"scores": (..., k), "ids": (..., k)}.

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
        self.head, self.k, self.num_candidates = head, int(k), int(num_candidates)
        self.approximate = approximate
        self.built = True

    def call(self, hidden: Tensor, sampler_inputs: Tensor | None = None) -> dict[str, Tensor]:
        """`sampler_inputs`: for a head that takes them."""
        side = {} if sampler_inputs is None else {"sampler_inputs": sampler_inputs}
        options = {"approximate": self.approximate, "num_candidates": self.num_candidates}
        scores, ids = self.head.top_k(hidden, self.k, **options, **side)
        return {"scores": scores, "ids": ids}

    def compute_output_spec(
        self, hidden: keras.KerasTensor, sampler_inputs: keras.KerasTensor | None = None
    ) -> dict[str, keras.KerasTensor]:
        shape = (*hidden.shape[:-1], self.k)
        return {
            "scores": keras.KerasTensor(shape, "float32"),
            "ids": keras.KerasTensor(shape, "int32"),
        }
