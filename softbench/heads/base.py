"""What every head shares: the shape of a call, and what is done to its labels and weights."""

import numbers
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor, check_positive
from softbench.heads import compact, inputs, positives
from softbench.heads.exact import ExactScores
from softbench.ops import read_once
from softbench.state import Arguments, SavedGenerators, saved_arguments
from softbench.table import deserialized
from softbench.targets import (
    PADDING,
    Targets,
    check_ids,
    check_labels,
    make_targets,
    without_absent_nan,
    without_last_one,
)


class Head(SavedGenerators, ExactScores):
    """Base class of the heads.

    A subclass writes `training_loss` and `prediction_scores`, and calls this class's `build`. One
    whose call takes more than hidden vectors and labels passes the rest to `score` or `compare`,
    flattened and by name ("side" inputs); these reach its `training_loss` and `prediction_scores`
    by that name.

    `head(h)` is the exact score of every class (..., n); `log_softmax` of it is the model.
    `head(h, labels, training=True)` is the training loss of every example and adds their mean to
    the model's losses; `head(h, labels)` does the same with the exact negative log-likelihood, so
    `exp(mean)` is the perplexity.

    Labels are integers of any width. Those out of range raise an error where their values can be
    seen (see `softbench.labels`); inside a compiled step their loss is NaN, and they train nothing.

    Shape letters: B batch (all leading dims), d features, n classes, P labels of an example.

    Args:
        units: n, the number of classes.
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
    takes_negatives = False  # whether its call has `negatives` and `excluded`
    has_all_classes = False  # whether its training loss compares with every class

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
        self.padding = tuple(ignored + [PADDING] * bool(multi_label))

    def build(self, hidden_shape: tuple) -> None:
        inputs.check_hidden_shape(hidden_shape)
        self.width = hidden_shape[-1]
        if not self.trainable:
            for part in self._layers:
                part.trainable = False

    def __call__(self, hidden: Tensor, labels: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """As `call`; labels in an array or a list are checked before the backend converts them."""
        for name in ("negatives", "excluded"):
            if not self.takes_negatives and kwargs.get(name) is not None:
                raise ValueError(
                    f"`{name}` must be left out: {type(self).__name__} draws no classes. Use a "
                    f"head with a sampler. Received shape: {np.shape(kwargs[name])}"
                )
        if isinstance(labels, np.ndarray | list | tuple):
            labels = np.asarray(labels)
            weight = kwargs.get("sample_weight", args[0] if args else None)
            mask = kwargs.get("hidden_mask", getattr(hidden, "_keras_mask", None))
            self.targets(hidden, labels, weight, mask)
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
        if labels is None:
            return self.score(hidden)
        targets = self.targets(hidden, labels, sample_weight, hidden_mask, labels_mask)
        return self.compare(hidden, targets, training)

    def targets(
        self, hidden: Tensor, labels: Any, sample_weight: Any = None, *masks: Any
    ) -> Targets:
        """What hidden vectors (..., d) are compared with; arguments as of `call`."""
        inputs.check_not_empty(hidden)
        return make_targets(
            hidden,
            labels,
            sample_weight,
            masks,
            units=self.units,
            padding=self.padding,
            several=self.multi_label is not None,
        )

    def score(self, hidden: Tensor, **side: Tensor) -> Tensor:
        """Scores (..., n) of hidden (..., d)."""
        flat, leading = self._flatten(hidden)
        self.begin(training=False)
        return ops.reshape(self.prediction_scores(flat, **side), (*leading, self.units))

    def compare(
        self, hidden: Tensor, targets: Targets, training: bool | None, **side: Tensor
    ) -> Tensor:
        """Losses (...) of hidden (..., d), times their weights; their mean is added."""
        flat, leading = self._flatten(hidden)
        self.begin(training=bool(training))
        flat = without_absent_nan(flat, targets.counts)
        with read_once(self.trainable_variables):
            losses = self._example_losses(flat, targets, training, side)
        if targets.valid is not None:
            losses = ops.where(targets.valid, losses, float("nan"))
        if targets.weight is not None:
            present = ops.not_equal(targets.weight, 0)
            losses = ops.where(present, losses * targets.weight, 0.0)
        self.add_loss(inputs.mean_of_weighted(losses, targets.counts))
        return ops.reshape(losses, leading)

    def _example_losses(
        self, hidden: Tensor, targets: Targets, training: bool | None, side: dict
    ) -> Tensor:
        """Losses (B,), not multiplied by their weights."""

        def function(hidden: Tensor, targets: Targets, side: dict) -> Tensor:
            if training:
                return self.training_loss(hidden, targets, **side)
            return self.negative_log_likelihood(hidden, targets, **side)

        if targets.weight is None:
            return function(hidden, targets, side)
        if training:
            side = self._without_absent(hidden, targets.counts, side)
        if self.max_valid is None:
            return function(hidden, targets, side)
        variables = self.variables if training else []
        arrays = hidden, targets, side
        return compact.of_present(function, targets.counts, self.max_valid, arrays, variables)

    def _without_absent(self, hidden: Tensor, weight: Tensor, side: dict) -> dict[str, Tensor]:
        """Side inputs of a training step in which examples of weight 0 have no part."""
        return side

    def training_loss(self, hidden: Tensor, targets: Targets, **side: Tensor) -> Tensor:
        """Loss (B,) of hidden (B, d) and its targets, whose weights are not applied to it."""
        raise NotImplementedError

    def compute_output_spec(
        self, hidden: Tensor, labels: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> keras.KerasTensor:
        inputs.check_hidden(hidden, self.width)
        if labels is None:
            return keras.KerasTensor((*hidden.shape[:-1], self.units), "float32")
        several = self.multi_label is not None
        labels = labels if several else without_last_one(labels, hidden)
        check_ids("labels", labels, hidden, several)
        return keras.KerasTensor(hidden.shape[:-1], "float32")

    def check_label_values(self, labels: Any, sample_weight: Any = None) -> None:
        """Raise a ValueError unless labels are integers and, where concrete, in [0, n).

        With weights of their shape, labels of weight 0 may be anything. Padding may be there.
        """
        check_labels(labels, self.units, self.padding, sample_weight)

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self)}

    @classmethod
    def from_config(cls, config: dict) -> "Head":
        if "table" in config:
            config = {**config, "table": deserialized(config["table"], cls.__name__)}
        return super().from_config(config)
