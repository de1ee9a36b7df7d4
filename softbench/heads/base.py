"""What every head shares: the class table, the exact scores, and the shape of a call."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from softbench import partition
from softbench.checks import check_positive
from softbench.ops import is_concrete
from softbench.table import DENSE_CLASSES, ClassTable

Tensor = Any

TABLE_OPTIONS = ("use_bias", "normalize", "temperature", "absolute")


class Head(keras.layers.Layer):
    """Base class of the heads. A subclass writes `training_loss`, one loss per example.

    `head(h)` is the exact score of every class (..., n); `log_softmax` of it is the model.
    `head(h, labels, training=True)` is the training loss of every example and adds their mean to
    the model's losses; `head(h, labels)` does the same with the exact negative log-likelihood, so
    `exp(mean)` is the perplexity.

    Labels out of range raise an error where their values can be seen; inside a compiled step their
    loss is NaN.

    Shape letters: B batch (all leading dims), d features, n classes.
    """

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        absolute: bool = False,
        row_optimizer: Any = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        # The table casts to the compute dtype itself; weights of examples stay as they are.
        super().__init__(autocast=False, **kwargs)
        if isinstance(row_optimizer, dict):
            row_optimizer = keras.saving.deserialize_keras_object(row_optimizer)
        self.table = ClassTable(
            units,
            use_bias=use_bias,
            normalize=normalize,
            temperature=temperature,
            absolute=absolute,
            row_optimizer=row_optimizer,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            dtype=self.dtype_policy,
            name="table",
        )
        self.units = self.table.units
        self.supports_jit = self.table.supports_jit

    def build(self, hidden_shape: tuple) -> None:
        if len(hidden_shape) < 2 or hidden_shape[-1] is None:
            raise ValueError(
                "`hidden` must have shape (..., d) with at least one batch dimension and a known "
                f"d. Received shape: {tuple(hidden_shape)}"
            )
        self.table.build((None, hidden_shape[-1]))

    def call(
        self,
        hidden: Tensor,
        labels: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Scores, or losses when labels are given.

        Args:
            hidden: (..., d).
            labels: integers (...) in [0, n), or None.
            sample_weight: (...), or None; multiplies the losses, and the added mean is
                sum(weight * loss) / sum(weight).
            training: True for the training loss, else the exact negative log-likelihood.

        Returns:
            float32 (..., n) without labels, (...) with.

        Raises:
            ValueError: if the shapes do not fit, or labels are not integers in [0, n).
        """
        return self._call(hidden, labels, sample_weight, training, self.training_loss)

    def _call(
        self,
        hidden: Tensor,
        labels: Tensor | None,
        sample_weight: Tensor | None,
        training: bool | None,
        training_loss: Callable,
    ) -> Tensor:
        self._check_hidden(hidden)
        flat, leading = self._flatten(hidden)
        if labels is None:
            return ops.reshape(self.prediction_scores(flat), (*leading, self.units))
        self._check_labels(labels, hidden)
        if is_concrete(labels):
            self.check_label_values(labels)
        flat_labels = ops.reshape(ops.cast(labels, "int32"), (-1,))
        weight = None
        if sample_weight is not None:
            if len(sample_weight.shape) != len(labels.shape):
                raise ValueError(
                    "`sample_weight` must have the shape of `labels`, "
                    f"{tuple(labels.shape)}. Received shape: {tuple(sample_weight.shape)}"
                )
            weight = ops.reshape(sample_weight, (-1,))
        safe = ops.clip(flat_labels, 0, self.units - 1)
        if training:
            losses = training_loss(flat, safe, weight)
        else:
            losses = self.negative_log_likelihood(flat, safe)
        losses = ops.where(ops.equal(safe, flat_labels), losses, float("nan"))
        if weight is not None:
            losses = losses * ops.cast(weight, "float32")
        self.add_loss(mean_of_weighted(losses, weight))
        return ops.reshape(losses, leading)

    def training_loss(self, hidden: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        """Loss (B,) of hidden (B, d) and labels (B,); `weight` (B,) is not applied to it."""
        raise NotImplementedError

    def prediction_scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Scores whose softmax is the model: of all classes (B, n) or of `ids` (m,) or (B, m)."""
        return self.table.scores(hidden, ids)

    def negative_log_likelihood(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """-log softmax(scores)[label] (B,), exact, streamed over classes when n is large."""
        true = self.prediction_scores(hidden, ops.expand_dims(labels, -1))[:, 0]
        if self.units <= DENSE_CLASSES:
            log_z = ops.logsumexp(self.prediction_scores(hidden), axis=-1)
        else:
            log_z = partition.log_partition(
                lambda ids: self.prediction_scores(hidden, ids), hidden, self.units, DENSE_CLASSES
            )
        return log_z - true

    def top_k(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best classes, streamed over classes: `(scores, ids)`, each (..., k).

        Among equal scores the lower id comes first.

        Raises:
            ValueError: unless 1 <= k <= n.
        """
        check_positive(k=k)
        if k > self.units:
            raise ValueError(
                f"`k` must be at most the number of classes {self.units}. Received: k={k}"
            )
        hidden = ops.convert_to_tensor(hidden)
        self._check_hidden(hidden)
        flat, leading = self._flatten(hidden)
        scores, ids = partition.top_k(
            lambda ids: self.prediction_scores(flat, ids), flat, self.units, DENSE_CLASSES, k
        )
        return ops.reshape(scores, (*leading, k)), ops.reshape(ids, (*leading, k))

    def _flatten(self, hidden: Tensor) -> tuple[Tensor, tuple]:
        return ops.reshape(hidden, (-1, hidden.shape[-1])), tuple(ops.shape(hidden)[:-1])

    def _check_hidden(self, hidden: Tensor) -> None:
        width = self.table.kernel.shape[-1]
        if len(hidden.shape) < 2 or hidden.shape[-1] != width:
            raise ValueError(
                f"`hidden` must have shape (..., {width}) with at least one batch dimension. "
                f"Received shape: {tuple(hidden.shape)}"
            )

    def _check_labels(self, labels: Tensor, hidden: Tensor) -> None:
        """Raise a ValueError unless type and shape of labels fit those of hidden."""
        self._check_label_dtype(labels)
        expected, received = tuple(hidden.shape[:-1]), tuple(labels.shape)
        pairs = zip(expected, received, strict=False)
        if len(expected) != len(received) or any(
            a != b for a, b in pairs if a is not None and b is not None
        ):
            raise ValueError(
                f"`labels` must have the shape of `hidden` without its last dimension, {expected}. "
                f"Received shape: {received}"
            )

    def compute_output_spec(
        self, hidden, labels=None, sample_weight=None, training=None, **kwargs
    ) -> keras.KerasTensor:
        self._check_hidden(hidden)
        if labels is None:
            return keras.KerasTensor((*hidden.shape[:-1], self.units), "float32")
        self._check_labels(labels, hidden)
        return keras.KerasTensor(hidden.shape[:-1], "float32")

    def check_label_values(self, labels: Any) -> None:
        """Raise a ValueError unless concrete labels are integers in [0, n)."""
        self._check_label_dtype(labels)
        values = ops.convert_to_numpy(labels)
        if values.size and (values.min() < 0 or values.max() >= self.units):
            raise ValueError(
                f"`labels` must be in [0, {self.units}). "
                f"Received values from {values.min()} to {values.max()}"
            )

    def _check_label_dtype(self, labels: Any) -> None:
        dtype = keras.backend.standardize_dtype(labels.dtype)
        if "int" not in dtype:
            raise ValueError(
                "`labels` must be integers (a `keras.Input` of labels needs dtype='int32'). "
                f"Received dtype: {dtype}"
            )

    def get_config(self) -> dict:
        table = self.table
        row_optimizer = table.row_optimizer
        return {
            **super().get_config(),
            "units": self.units,
            **{name: getattr(table, name) for name in TABLE_OPTIONS},
            "row_optimizer": row_optimizer and keras.saving.serialize_keras_object(row_optimizer),
            "kernel_initializer": keras.initializers.serialize(table.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(table.bias_initializer),
        }


def mean_of_weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    """sum(losses) / sum(weight) of losses already multiplied by their weights; 0 if all are 0."""
    if weight is None:
        return ops.mean(losses)
    total = ops.sum(ops.cast(weight, "float32"))
    return ops.sum(losses) / ops.where(total > 0, total, 1.0)
