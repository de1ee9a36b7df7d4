"""What every head shares: the shape of a call, and what is done to its labels and weights."""

import numbers
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor, check_positive
from softbench.heads import compact, inputs, positives
from softbench.heads.exact import ExactScores
from softbench.heads.targets import targets, without_padding
from softbench.labels import check_values, check_weights, safe_ids
from softbench.ops import is_concrete, read_once
from softbench.state import Arguments, saved_arguments
from softbench.table import deserialized


class Head(ExactScores):
    """Base class of the heads.

    A subclass writes `training_loss` and `prediction_scores`, and calls this class's `build`. One
    whose call takes more than hidden vectors and labels passes the rest to `_call`, flattened and
    by name ("side" inputs); these reach its `training_loss` and `prediction_scores` by that name.

    `head(h)` is the exact score of every class (..., n); `log_softmax` of it is the model.
    `head(h, labels, training=True)` is the training loss of every example and adds their mean to
    the model's losses; `head(h, labels)` does the same with the exact negative log-likelihood, so
    `exp(mean)` is the perplexity.

    Labels are integers of any width. Those out of range raise an error where their values can be
    seen (see `softbench.labels`); inside a compiled step their loss is NaN, and they train nothing.

    Shape letters: B batch (all leading dims), d features, n classes, P labels of an example.

    Args:
        units: n.
        ignore_index: None, or the label (-1, say) of a step that is not there, as if its weight
            were 0.
        multi_label: None: one label for each vector. "mean" or "sum": labels are (..., P), padded
            with -1, and the training loss of an example is the weighted mean or sum of the losses
            of its labels, in which its other labels are no negatives (they stay noise in
            `NoiseContrastive` and `NegativeSampling`, which compare with all of it). The exact
            negative log-likelihood of an example is the mean over its labels in both.
        max_valid: None, or how many of the B vectors (a number, or a share of them) a loss is
            computed for where no more have another weight than 0: padding then costs next to
            nothing. A batch with more is computed as a whole. The losses are the same. On JAX it
            is not for heads with a `row_optimizer`.

    Raises:
        ValueError: if an argument is not as said.
    """

    arguments: Arguments = ("units", "ignore_index", "multi_label", "max_valid")
    takes_several_labels = False

    def __init__(
        self,
        units: int,
        *,
        ignore_index: int | None = None,
        multi_label: str | None = None,
        max_valid: int | float | None = None,
        **kwargs: Any,
    ) -> None:
        # Scores cast to the compute dtype themselves; weights of examples stay as they are.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        check_positive(units=units)
        positives.check_reduction(multi_label, self.takes_several_labels, type(self).__name__)
        compact.check_capacity(max_valid)
        if ignore_index is not None and not isinstance(ignore_index, numbers.Integral):
            raise ValueError(
                "`ignore_index` must be None or an integer. "
                f"Received: ignore_index={ignore_index!r}"
            )
        self.units = int(units)
        self.ignore_index = ignore_index
        self.multi_label = multi_label
        self.max_valid = max_valid
        ignored: list[int] = [] if ignore_index is None else [int(ignore_index)]
        self.padding = tuple(ignored + [positives.PADDING] * bool(multi_label))

    def build(self, hidden_shape: tuple) -> None:
        inputs.check_hidden_shape(hidden_shape)
        self.width = hidden_shape[-1]
        if not self.trainable:
            for part in self._layers:
                part.trainable = False

    def __call__(self, hidden: Tensor, labels: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """As `call`; labels in an array or a list are checked before the backend converts them."""
        if isinstance(labels, np.ndarray | list | tuple):
            labels = np.asarray(labels)
            weight = kwargs.get("sample_weight", args[0] if args else None)
            mask = kwargs.get("hidden_mask", getattr(hidden, "_keras_mask", None))
            found, weight, own = self._targets(hidden, labels, weight, mask)
            self.check_label_values(found, own.get("label_weight", weight))
        return super().__call__(hidden, labels, *args, **kwargs)

    def call(
        self,
        hidden: Tensor,
        labels: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool | None = None,
        hidden_mask: Tensor | None = None,
        labels_mask: Tensor | None = None,
    ) -> Tensor:
        """Scores, or losses when labels are given.

        Args:
            hidden: (..., d).
            labels: integers (...) in [0, n), also as (..., 1); or, with `multi_label`, (..., P)
                padded with -1; or None.
            sample_weight: (...), or None; multiplies the losses, and the added mean is
                sum(weight * loss) / sum(weight). An example of weight 0 is not there: its loss is
                0, whatever its label and its vector, and it moves no row and no statistic. Weights
                must be finite and not negative, which a compiled step cannot check: see to it in
                the data. With `multi_label`, weights (..., P) are those of the labels.
            training: True for the training loss, else the exact negative log-likelihood.
            hidden_mask, labels_mask: bool (...), the masks that Keras attaches to a sequence and
                passes by itself; where one is False the weight is 0.

        Returns:
            float32 (..., n) without labels, (...) with.

        Raises:
            ValueError: if the shapes do not fit, a batch with labels is empty, labels are not
                integers in [0, n), or a weight that can be seen is negative or not finite.
        """
        masks = hidden_mask, labels_mask
        labels, weight, own = self._targets(hidden, labels, sample_weight, *masks)
        return self._call(hidden, labels, weight, training, **own)

    def _targets(
        self, hidden: Tensor, labels: Any, sample_weight: Any = None, *masks: Any
    ) -> tuple[Any, Tensor | None, dict[str, Tensor]]:
        """As `targets.targets`."""
        several = self.multi_label is not None
        return targets(hidden, labels, sample_weight, masks, self.padding, several)

    def example_weight(
        self, hidden: Tensor, labels: Tensor, sample_weight: Tensor | None, *masks: Tensor
    ) -> Tensor | None:
        """The weight (...) of every example: 0 where it is masked, ignored or has no label."""
        return self._targets(hidden, labels, sample_weight, *masks)[1]

    def _call(
        self,
        hidden: Tensor,
        labels: Tensor | None,
        sample_weight: Tensor | None,
        training: bool | None,
        label_weight: Tensor | None = None,
        **side: Tensor,
    ) -> Tensor:
        flat, leading = self._flatten(hidden)
        self.begin(training=bool(training) and labels is not None)
        if labels is None:
            return ops.reshape(self.prediction_scores(flat, **side), (*leading, self.units))
        inputs.check_not_empty(hidden)
        inputs.check_ids("labels", labels, hidden, several=self.multi_label is not None)
        weight = inputs.flat_weight(sample_weight, hidden)
        check_weights(sample_weight)
        if label_weight is None:
            self.check_label_values(labels, sample_weight)
            safe, valid = safe_ids(ops.reshape(labels, (-1,)), self.units)
        else:
            check_weights(label_weight)
            self.check_label_values(labels, label_weight)
            safe, valid, side["label_weight"] = positives.flat(labels, label_weight, self.units)
        counts = None  # all alike, where the values were seen
        if weight is not None or not is_concrete(labels):
            counts = inputs.counted(weight, valid)
            safe = inputs.from_present(safe, counts)
            flat = inputs.without_absent_nan(flat, counts)
        side["labels"] = safe
        with read_once(self.trainable_variables):
            losses = self._example_losses(flat, counts, training, weight is not None, side)
        losses = ops.where(valid, losses, float("nan"))
        if weight is not None:
            losses = ops.where(ops.not_equal(weight, 0), losses * weight, 0.0)
        self.add_loss(inputs.mean_of_weighted(losses, counts))
        return ops.reshape(losses, leading)

    def _example_losses(
        self, hidden: Tensor, weight: Tensor | None, training: bool | None, padded: bool, side: dict
    ) -> Tensor:
        """Losses (B,); `padded` says that some examples may have been given the weight 0."""

        def function(hidden: Tensor, labels: Tensor, weight: Tensor, **side: Tensor) -> Tensor:
            if training:
                return self.training_loss(hidden, labels, weight, **side)
            return self.negative_log_likelihood(hidden, labels, **side)

        if padded and training:
            side = self._without_absent(hidden, weight, side)
        if not padded or self.max_valid is None:
            return function(hidden, weight=weight, **side)
        arrays, variables = {"hidden": hidden, **side}, self.variables if training else []
        return compact.of_present(function, weight, self.max_valid, arrays, variables)

    def _without_absent(self, hidden: Tensor, weight: Tensor, side: dict) -> dict[str, Tensor]:
        """Side inputs of a training step in which examples of weight 0 have no part."""
        return side

    def training_loss(
        self, hidden: Tensor, labels: Tensor, weight: Tensor | None, **side: Tensor
    ) -> Tensor:
        """Loss (B,) of hidden (B, d) and labels (B,); `weight` (B,) is not applied to it.

        The weight is 0 where a label was out of range, which a compiled step finds; None says that
        all examples count alike.
        """
        raise NotImplementedError

    def compute_output_spec(
        self, hidden: Tensor, labels: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> keras.KerasTensor:
        inputs.check_hidden(hidden, self.width)
        if labels is None:
            return keras.KerasTensor((*hidden.shape[:-1], self.units), "float32")
        several = self.multi_label is not None
        if not several and len(labels.shape) == len(hidden.shape) and labels.shape[-1] == 1:
            labels = keras.KerasTensor(labels.shape[:-1], labels.dtype)
        inputs.check_ids("labels", labels, hidden, several)
        return keras.KerasTensor(hidden.shape[:-1], "float32")

    def check_label_values(self, labels: Any, sample_weight: Any = None) -> None:
        """Raise a ValueError unless labels are integers and, where concrete, in [0, n).

        With weights of their shape, labels of weight 0 may be anything. Padding may be there.
        """
        labels = without_padding(labels, self.padding)
        check_values("labels", labels, self.units, sample_weight)

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self)}

    @classmethod
    def from_config(cls, config: dict) -> "Head":
        if "table" in config:
            config = {**config, "table": deserialized(config["table"], cls.__name__)}
        return super().from_config(config)
