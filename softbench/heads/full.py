"""The exact softmax cross-entropy."""

from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.heads import positives
from softbench.heads.positives import check_smoothing
from softbench.heads.table_head import TableHead
from softbench.ops import read
from softbench.table import DENSE_CLASSES

# Scores (B, n) computed at once by default. A step holds about four numbers for each: 2^28.
DENSE_SCORES = 2**26
CHUNK_SCORES = 2**24  # of a chunk: of fewer, TensorFlow copies the table's gradient too often


def default_class_chunk(batch: int | None, units: int) -> int | None:
    """`class_chunk` for B examples, None if not known yet, and n classes."""
    if batch is None:
        return None if units <= DENSE_CLASSES else DENSE_CLASSES
    return None if batch * units <= DENSE_SCORES else max(1, CHUNK_SCORES // batch)


@keras.saving.register_keras_serializable(PACKAGE)
class FullSoftmax(TableHead):
    """Softmax cross-entropy over all classes: loss = log sum_i exp(o_i) - o_label.

    Args:
        units: n, the number of classes.
        class_chunk: a number streams the log-partition and its gradient over that many classes at
            a time and never holds (B, n), for a second computation of the scores in the backward
            pass. None computes the (B, n) scores at once where B n <= 2^26, so that a step holds
            at most about 2^28 numbers (1 GiB) of that shape, and otherwise streams over 2^24 / B
            classes at a time. Where B is not known when the step is compiled, as in `fit` on
            TensorFlow, it streams over 65,536 classes at a time if there are more: the same bound
            for B up to 1024.
        regularizer_alpha: alpha of the self-normalising term alpha * (log Z)^2 added to the loss.
            Ma & Collins 2018, section 5.2 ("reg-MLE"), estimate Z from samples; here it is exact.
        label_smoothing: epsilon of (1 - epsilon) loss(label) + epsilon mean_i loss(i), the mean
            over all classes, as in Keras' cross-entropies; for the mean score a step passes over
            the rows once more.
        use_bias, normalize, temperature, absolute, kernel_initializer, bias_initializer: of the
            `ClassTable`.
        ignore_index, multi_label, max_valid: as in every head, see `softbench.heads.base.Head`.
            With `multi_label` a label's loss is -log(e^o_y / (e^o_y + sum of e^o_i over the
            classes that are none of the labels)), computed in float32.

    Raises:
        ValueError: if `class_chunk` is not None or positive, `regularizer_alpha` is negative, or
            `label_smoothing` is not in [0, 1), or not 0 with `absolute` or `multi_label`.

    Example:
        >>> head = softbench.FullSoftmax(4, kernel_initializer="zeros")
        >>> losses = head(np.ones((2, 8), "float32"), np.array([0, 3]))
        >>> [round(float(loss), 4) for loss in losses]  # log 4
        [1.3863, 1.3863]
    """

    arguments = ("class_chunk", "regularizer_alpha", "label_smoothing")
    takes_several_labels = True

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
        label_smoothing: float = 0.0,
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
        check_smoothing(label_smoothing, kwargs.get("multi_label"))
        if label_smoothing and absolute:
            raise ValueError(
                "`label_smoothing` must be 0 with absolute=True, whose mean score is not linear. "
                f"Received: label_smoothing={label_smoothing}"
            )
        options = {"normalize": normalize, "temperature": temperature, "absolute": absolute}
        super().__init__(units, use_bias=use_bias, **options, **kwargs)
        self.class_chunk = class_chunk
        self.regularizer_alpha = regularizer_alpha
        self.label_smoothing = label_smoothing

    def training_loss(
        self,
        hidden: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        label_weight: Tensor | None = None,
    ) -> Tensor:
        """As `Head.training_loss`; with `label_weight` (B, P) labels are (B, P)."""
        chunk = self.class_chunk or default_class_chunk(hidden.shape[0], self.units)
        if label_weight is not None:
            return self._loss_of_several(hidden, labels, label_weight, chunk)
        if chunk is None:
            scores = self.table.scores(hidden)
            log_z = ops.logsumexp(scores, axis=-1)
            # A mask, not a gather: the gradient of a gather is a scatter into (B, n).
            ids = ops.arange(self.units, dtype="int32")
            is_true = ops.equal(ops.expand_dims(labels, -1), ids)
            true = ops.sum(ops.where(is_true, scores, 0.0), axis=-1)
        else:
            log_z = self.table.log_partition(hidden, chunk)
            true = self.table.scores(hidden, ops.expand_dims(labels, -1))[:, 0]
        loss = log_z - true
        if self.label_smoothing:
            loss = loss + self.label_smoothing * (true - self._mean_score(hidden))
        return loss + self.regularizer_alpha * log_z**2 if self.regularizer_alpha else loss

    def _loss_of_several(
        self, hidden: Tensor, labels: Tensor, label_weight: Tensor, chunk: int | None
    ) -> Tensor:
        """The loss (B,) of labels (B, P): each among itself and the classes that are none of them.

        These are added up by themselves. What is left of log Z after the labels would be a
        difference of nearly equal numbers where the labels hold most of it.
        """
        if chunk is None and self.compute_dtype != "float32":
            chunk = self.units  # where it is streamed, products are float32
        log_rest = self.table.log_partition(hidden, chunk, left_out=labels)[:, None]
        true = self.table.paired_logits(hidden[:, None], *self.table.gather(labels))
        losses = ops.softplus(log_rest - true)
        loss = positives.reduced(losses, label_weight, self.multi_label)
        if not self.regularizer_alpha:
            return loss
        true = ops.where(positives.is_repeated(labels), -float("inf"), true)
        log_z = ops.logsumexp(ops.concatenate([log_rest, true], axis=-1), axis=-1)
        return loss + self.regularizer_alpha * log_z**2

    def _mean_score(self, hidden: Tensor) -> Tensor:
        """The mean (B,) of the scores of all classes, from the mean of their rows."""
        row = ops.mean(self.table.normalized(read(self.table.kernel)), axis=0)
        mean = ops.matmul(self.table.normalized(hidden), row[:, None])[:, 0]
        mean = mean / self.table.temperature
        if self.table.bias is None:
            return mean
        return mean + ops.mean(ops.cast(read(self.table.bias), "float32"))
