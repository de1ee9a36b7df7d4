"""The exact softmax cross-entropy."""

from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.heads.positives import check_smoothing, is_repeated
from softbench.heads.table_head import TableHead
from softbench.table import Table
from softbench.targets import Targets, reduced


@keras.saving.register_keras_serializable(PACKAGE)
class FullSoftmax(TableHead):
    """Softmax cross-entropy over all classes: loss = log sum_i exp(o_i) - o_label.

    Args:
        units: n, the number of classes; None with `table`.
        table, use_bias, normalize, temperature: as in `SampledSoftmax`; of a `table` that has no
            `row_optimizer`.
        class_chunk: None, or a number C that bounds the memory of a training step: beside the
            table, its gradient and the hidden vectors it holds about B C float32 scores, or 8 MiB
            of them on a CPU and 16 MiB on an accelerator where that is more. None takes what is
            fastest: at most 128 MiB of scores on a CPU, and 1 GiB on an accelerator.
        regularization: alpha of the self-normalising term alpha * (log Z)^2 added to the loss.
            Ma & Collins 2018, section 5.2 ("reg-MLE"), estimate Z from samples; here it is exact.
        label_smoothing: epsilon of (1 - epsilon) loss(label) + epsilon mean_i loss(i), the mean
            over all classes, as in Keras' cross-entropies.
        ignore_index, multi_label, max_valid: as in every head, see `softbench.heads.base.Head`.
            With `multi_label` a label's loss is -log(e^o_y / (e^o_y + sum of e^o_i over the
            classes that are none of the labels)), computed in float32.
        **kwargs: of `keras.layers.Layer`: name, dtype, trainable.

    Raises:
        ValueError: if `class_chunk` is not None or positive, `regularization` is negative, or
            `label_smoothing` is not in [0, 1), or not 0 with `multi_label`; if the `table` has a
            `row_optimizer`.

    Example:
        >>> table = softbench.ClassTable(4, kernel_initializer="zeros")
        >>> head = softbench.FullSoftmax(table=table)
        >>> losses = head(np.ones((2, 8), "float32"), np.array([0, 3]))
        >>> [round(float(loss), 4) for loss in losses]  # log 4
        [1.3863, 1.3863]
    """

    has_all_classes = True
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
        self.class_chunk = class_chunk
        self.regularization = regularization
        self.label_smoothing = label_smoothing

    def training_loss(self, hidden: Tensor, targets: Targets) -> Tensor:
        labels, label_weight = targets.labels, targets.label_weight
        several = label_weight is not None
        labels = labels if several else ops.expand_dims(labels, -1)
        extra = (label_weight, is_repeated(labels)) if several else ()
        return self.table.class_losses(
            self._loss if several or not self.label_smoothing else self._smoothed_loss,
            hidden,
            labels,
            extra,
            targets.weight,
            self.class_chunk,
            with_sum=self.label_smoothing > 0,
        )

    def _loss(
        self,
        log_rest: Tensor,
        true: Tensor,
        label_weight: Tensor | None = None,
        repeated: Tensor | None = None,
    ) -> Tensor:
        """The loss (B,) of labels with scores (B, P), each among itself and what is no label.

        log Z less a label's score would be a difference of nearly equal numbers where labels hold
        most of Z.
        """
        losses = ops.softplus(log_rest[:, None] - true)
        if label_weight is None:
            loss = losses[:, 0]
        else:
            loss = reduced(losses, label_weight, self.multi_label)
        if not self.regularization:
            return loss
        if repeated is not None:
            true = ops.where(repeated, -float("inf"), true)
        log_z = ops.logsumexp(ops.concatenate([log_rest[:, None], true], axis=-1), axis=-1)
        return loss + self.regularization * log_z**2

    def _smoothed_loss(self, log_rest: Tensor, true: Tensor, rest: Tensor) -> Tensor:
        """The loss with `label_smoothing`, of the sum `rest` (B,) of the other classes' scores.

        (1 - epsilon) loss(label) + epsilon mean_i loss(i) = loss(label) + epsilon (score of the
        label - mean score).
        """
        mean = (rest + true[:, 0]) / self.units
        return self._loss(log_rest, true) + self.label_smoothing * (true[:, 0] - mean)
