"""The exact softmax cross-entropy."""

from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.heads.table_head import TableHead


@keras.saving.register_keras_serializable(PACKAGE)
class FullSoftmax(TableHead):
    """Softmax cross-entropy over all classes: loss = log sum_i exp(o_i) - o_label.

    Args:
        units: n, the number of classes.
        class_chunk: None computes the (B, n) scores at once. A number streams the log-partition
            and its gradient over that many classes at a time and never holds (B, n), for a second
            computation of the scores in the backward pass.
        regularizer_alpha: alpha of the self-normalising term alpha * (log Z)^2 added to the loss.
            Ma & Collins 2018, section 5.2 ("reg-MLE"), estimate Z from samples; here it is exact.
        use_bias, normalize, temperature, absolute, kernel_initializer, bias_initializer: of the
            `ClassTable`.

    Raises:
        ValueError: if `class_chunk` is not None or positive, or `regularizer_alpha` is negative.

    Example:
        >>> head = softbench.FullSoftmax(4, kernel_initializer="zeros")
        >>> losses = head(np.ones((2, 8), "float32"), np.array([0, 3]))
        >>> [round(float(loss), 4) for loss in losses]  # log 4
        [1.3863, 1.3863]
    """

    arguments = ("class_chunk", "regularizer_alpha")

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        absolute: bool = False,
        class_chunk: int | None = None,
        regularizer_alpha: float = 0.0,
        row_optimizer: None = None,
        **kwargs: Any,
    ) -> None:
        if row_optimizer is not None:
            raise ValueError(
                "`row_optimizer` must be None: the full softmax touches every row at every step. "
                f"Received: row_optimizer={row_optimizer!r}"
            )
        if class_chunk is not None:
            check_positive(class_chunk=class_chunk)
        check_number(0, regularizer_alpha=regularizer_alpha)
        options = {"normalize": normalize, "temperature": temperature, "absolute": absolute}
        super().__init__(units, use_bias=use_bias, **options, **kwargs)
        self.class_chunk = class_chunk
        self.regularizer_alpha = regularizer_alpha

    def training_loss(self, hidden: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        if self.class_chunk is None:
            scores = self.table.scores(hidden)
            log_z = ops.logsumexp(scores, axis=-1)
            # A mask, not a gather: the gradient of a gather is a scatter into (B, n).
            ids = ops.arange(self.units, dtype="int32")
            is_true = ops.equal(ops.expand_dims(labels, -1), ids)
            true = ops.sum(ops.where(is_true, scores, 0.0), axis=-1)
        else:
            log_z = self.table.log_partition(hidden, self.class_chunk)
            true = self.table.scores(hidden, ops.expand_dims(labels, -1))[:, 0]
        loss = log_z - true
        return loss + self.regularizer_alpha * log_z**2 if self.regularizer_alpha else loss
