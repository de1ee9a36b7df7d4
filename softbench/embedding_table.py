"""The rows of somebody else's embedding layer as a class table."""

from typing import Any

import keras
from keras import layers, ops

from softbench.common import PACKAGE, Tensor
from softbench.ops import gather_rows, read
from softbench.state import saved_arguments
from softbench.table import Table


@keras.saving.register_keras_serializable(PACKAGE)
class EmbeddingTable(Table):
    """The embeddings (n, d) of a Keras layer as the rows of a head: one variable, saved once.

    Every head makes one of an embedding layer that it is given as `table=`. The scores are those of
    `ReversibleEmbedding(..., reverse=True)`, with its `logit_soft_cap` and its `reverse_dtype`; of
    `tie_weights=False` the rows are its `reverse_embeddings`. The model's optimizer trains them,
    with the sum of what the layer and the head want of a row. Of a layer with LoRA the rows are the
    effective ones, and what is trained is what the layer trains. Several devices pass each over its
    rows alone where these are one variable (n, d); rows with LoRA, or of `tie_weights=False`, they
    send to each other.

    Args:
        embedding: a `keras.layers.Embedding`, a `keras.layers.ReversibleEmbedding`, or a layer
            derived from one, as KerasHub's.
        normalize, temperature: as in `ClassTable`.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: if `embedding` is another layer, or a quantised one, which has no rows to train.

    Example:
        >>> embedding = keras.layers.ReversibleEmbedding(50, 8)
        >>> head = softbench.FullSoftmax(table=embedding)
        >>> tokens, labels = (keras.Input((6,), dtype="int32") for _ in range(2))
        >>> model = keras.Model([tokens, labels], head(embedding(tokens), labels))
        >>> [tuple(weight.shape) for weight in model.trainable_weights]
        [(50, 8)]
    """

    arguments = ("normalize", "temperature")

    def __init__(
        self,
        embedding: layers.Embedding,
        *,
        normalize: bool = False,
        temperature: float = 1.0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(embedding, layers.Embedding):
            raise ValueError(
                "`embedding` must be a `keras.layers.Embedding` or a layer derived from it. "
                f"Received: {type(embedding).__name__}"
            )
        dtype = getattr(embedding, "reverse_dtype", None) or embedding.dtype_policy
        kwargs.setdefault("dtype", dtype)
        super().__init__(
            embedding.input_dim,
            use_bias=False,
            normalize=normalize,
            temperature=temperature,
            logit_soft_cap=getattr(embedding, "logit_soft_cap", None),
            **kwargs,
        )
        self.embedding = embedding
        self.begin(training=False)

    def begin(self, training: bool) -> None:
        """Raise a ValueError if the layer is quantised, which it may become at any time."""
        if mode := getattr(self.embedding, "quantization_mode", None):
            raise ValueError(
                "`embedding` must not be quantised: its rows are integers, which nothing trains. "
                f"Received: quantization_mode={mode!r}"
            )

    def build(self, hidden_shape: tuple) -> None:
        if not self.embedding.built:
            self.embedding.build()

    @property
    def is_shared(self) -> bool:
        """True: the layer that has the rows uses them too."""
        return True

    @property
    def width(self) -> int:
        return self.embedding.output_dim

    @property
    def _is_reversed(self) -> bool:
        """Whether the rows are the columns of a variable (d, n)."""
        return not getattr(self.embedding, "tie_weights", True)

    @property
    def _is_plain(self) -> bool:
        """Whether the rows are those of one variable (n, d)."""
        return not self._is_reversed and not self.embedding.lora_enabled

    @property
    def class_variables(self) -> list[keras.Variable]:
        return [self.embedding.embeddings] if self._is_plain else []

    def gather(self, ids: Tensor) -> list[Tensor]:
        if self._is_plain:
            return [gather_rows(self.embedding.embeddings, ids)]
        if self._is_reversed:  # without a transposed copy of them all
            columns = ops.take(read(self.embedding.reverse_embeddings), ids, axis=1)
            return [ops.moveaxis(columns, 0, -1)]
        return [ops.take(self.all_rows()[0], ids, axis=0)]

    def all_rows(self, training: bool = False) -> list[Tensor]:
        if self._is_plain:
            return [read(self.embedding.embeddings)]
        if self._is_reversed:
            return [ops.transpose(read(self.embedding.reverse_embeddings))]
        return [ops.convert_to_tensor(self.embedding.embeddings)]

    def get_config(self) -> dict:
        # Twice, as in `table.serialized`.
        keras.saving.serialize_keras_object(self.embedding)
        embedding = keras.saving.serialize_keras_object(self.embedding)
        return {**super().get_config(), **saved_arguments(self), "embedding": embedding}

    @classmethod
    def from_config(cls, config: dict) -> "EmbeddingTable":
        embedding = config["embedding"]
        if isinstance(embedding, dict):
            embedding = keras.saving.deserialize_keras_object(embedding)
        return cls(**{**config, "embedding": embedding})
