"""The exact softmax cross-entropy."""

from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.heads.positives import check_smoothing, is_repeated
from softbench.heads.table_head import TableHead
from softbench.table import DENSE_CLASSES, Table
from softbench.targets import Targets, reduced

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
        units: n, the number of classes; None with `table`.
        table, use_bias, normalize, temperature: as in `SampledSoftmax`; of a `table` that has no
            `row_optimizer`.
        class_chunk: a number streams the log-partition and its gradient over that many classes at
            a time and never holds (B, n), for a second computation of the scores in the backward
            pass. None computes the (B, n) scores at once where B n <= 2^26, so that a step holds
            at most about 2^28 numbers (1 GiB) of that shape, and otherwise streams over 2^24 / B
            classes at a time. Where B is not known when the step is compiled, as in `fit` on
            TensorFlow, it streams over 65,536 classes at a time if there are more: the same bound
            for B up to 1024.
        regularization: alpha of the self-normalising term alpha * (log Z)^2 added to the loss.
            Ma & Collins 2018, section 5.2 ("reg-MLE"), estimate Z from samples; here it is exact.
        label_smoothing: epsilon of (1 - epsilon) loss(label) + epsilon mean_i loss(i), the mean
            over all classes, as in Keras' cross-entropies; for the mean score a step passes over
            the rows once more.
        ignore_index, multi_label, max_valid: as in every head, see `softbench.heads.base.Head`.
            With `multi_label` a label's loss is -log(e^o_y / (e^o_y + sum of e^o_i over the
            classes that are none of the labels)), computed in float32.
        **kwargs: of `keras.layers.Layer`: name, dtype, trainable.

    Raises:
        ValueError: if `class_chunk` is not None or positive, `regularization` is negative, or
            `label_smoothing` is not in [0, 1), or not 0 with `multi_label` or a table of `absolute`
            scores; if the `table` has a `row_optimizer`.

    Example:
        >>> table = softbench.ClassTable(4, kernel_initializer="zeros")
        >>> head = softbench.FullSoftmax(table=table)
        >>> losses = head(np.ones((2, 8), "float32"), np.array([0, 3]))
        >>> [round(float(loss), 4) for loss in losses]  # log 4
        [1.3863, 1.3863]
    """

    arguments = ("class_chunk", "regularization", "label_smoothing")
    takes_several_labels = True

    def __init__(
        self,
        units: int | None = None,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        class_chunk: int | None = None,
        regularization: float = 0.0,
        label_smoothing: float = 0.0,
        ignore_index: int | None = None,
        multi_label: str | None = None,
        max_valid: int | float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            table=table,
            use_bias=use_bias,
            normalize=normalize,
            temperature=temperature,
            ignore_index=ignore_index,
            multi_label=multi_label,
            max_valid=max_valid,
            **kwargs,
        )
        if self.table.row_optimizer is not None:
            raise ValueError(
                "`table` must have row_optimizer=None: the full softmax touches every row at every "
                f"step. Received: row_optimizer={self.table.row_optimizer!r}"
            )
        if class_chunk is not None:
            check_positive(class_chunk=class_chunk)
        check_number(0, regularization=regularization)
        check_smoothing(label_smoothing, multi_label)
        if label_smoothing and self.table.absolute:
            raise ValueError(
                "`label_smoothing` must be 0 with a table of absolute=True, whose mean score is "
                f"not linear. Received: label_smoothing={label_smoothing}"
            )
        self.class_chunk = class_chunk
        self.regularization = regularization
        self.label_smoothing = label_smoothing

    def training_loss(self, hidden: Tensor, targets: Targets) -> Tensor:
        labels, label_weight = targets.labels, targets.label_weight
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
        return loss + self.regularization * log_z**2 if self.regularization else loss

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
        loss = reduced(losses, label_weight, self.multi_label)
        if not self.regularization:
            return loss
        true = ops.where(is_repeated(labels), -float("inf"), true)
        log_z = ops.logsumexp(ops.concatenate([log_rest, true], axis=-1), axis=-1)
        return loss + self.regularization * log_z**2

    def _mean_score(self, hidden: Tensor) -> Tensor:
        """The mean (B,) of the scores of all classes, from the mean of their rows."""
        rows, *biases = self.table.all_rows()
        row = ops.mean(self.table.normalized(rows), axis=0)
        mean = ops.matmul(self.table.normalized(hidden), row[:, None])[:, 0]
        mean = mean / self.table.temperature
        return mean + ops.mean(ops.cast(biases[0], "float32")) if biases else mean
