"""Augment and reduce: a variational bound with one parameter for each training example."""

from typing import Any

import keras
from keras import ops

from softbench import losses
from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.heads.negatives import Negatives
from softbench.heads.sampled import SampledHead
from softbench.labels import check_values, safe_ids
from softbench.ops import SCATTER_UNDER_JIT, gather_rows, is_concrete, scatter_add, scatter_update
from softbench.samplers import Sampler
from softbench.state import add_state, check_one_replica
from softbench.table import Table
from softbench.targets import Targets, check_ids, from_present


@keras.saving.register_keras_serializable(PACKAGE)
class AugmentReduce(SampledHead):
    """The softmax loss bounded with one variational parameter eta for each training example.

    -log p(y) <= log eta - 1 + (1 + sum_{i != y} exp(o_i - o_y)) / eta (Ruiz et al. 2018, for the
    softmax; see `losses.augment_reduce`), an equality at eta = 1 / p(y). Unlike sampled softmax,
    the sum over classes stands outside the logarithm, so samples estimate the bound and its
    gradient without bias. Prediction is the softmax of o, without a correction.

    A training call first moves the eta of its examples towards the estimate of 1 / p(y) from its
    own draws, eta <- (1 - a) eta + a (1 + sum_j exp(o_j - o_y) / E[count_j]) with
    a = (1 + t)^-step_power at the t-th earlier visit of the example, in log space; then it takes
    the loss at the new eta. So eta needs no initial value (a = 1 at the first visit, where the loss
    is that of sampled softmax), and the weight of a draw in the gradient is at most 1 / a
    however stale eta was. The eta of the step has seen the step's draws; that bias goes with a.

    `head(h, labels, example_ids=ids, training=True)`: ids (...) are the integers in [0, N) that
    tell training examples apart. They are not used outside of training. If an id occurs twice in a
    batch, one of its two updates is kept; examples of weight 0 leave their eta as it is.

    Args:
        sampler: "uniform" by default.
        num_examples: N, of the training set.
        step_power: in (0.5, 1], of the decreasing step a.
        others: as in `SampledSoftmax`.

    Raises:
        ValueError: if `num_examples` or `num_sampled` < 1, or `step_power` is not in (0.5, 1]; in
            training, without `example_ids` or with ids that are not integers in [0, N).
            Inside a compiled step an id out of range makes the loss NaN.
    """

    arguments = ("num_examples", "step_power")
    takes_several_labels = False

    def __init__(
        self,
        units: int | None = None,
        sampler: str | dict | Sampler = "uniform",
        num_sampled: int = 100,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        row_optimizer: Any = None,
        num_examples: int,
        step_power: float = 0.9,
        remove_accidental_hits: bool = True,
        ignore_index: int | None = None,
        multi_label: str | None = None,
        max_valid: int | float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            sampler,
            num_sampled,
            table=table,
            use_bias=use_bias,
            normalize=normalize,
            temperature=temperature,
            row_optimizer=row_optimizer,
            remove_accidental_hits=remove_accidental_hits,
            ignore_index=ignore_index,
            multi_label=multi_label,
            max_valid=max_valid,
            seed=seed,
            **kwargs,
        )
        check_positive(num_examples=num_examples)
        check_number(0.5, exclusive=True, step_power=step_power)
        if step_power > 1:
            raise ValueError(f"`step_power` must be at most 1. Received: step_power={step_power}")
        self.num_examples = int(num_examples)
        self.step_power = step_power
        # TensorFlow's scatters do not run under XLA in place, see `softbench.ops`.
        self.supports_jit = self.supports_jit and SCATTER_UNDER_JIT

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        self.log_eta = add_state(self, "log_eta", (self.num_examples,))
        self.visits = add_state(self, "visits", (self.num_examples,))

    def call(
        self,
        hidden: Tensor,
        labels: Tensor | None = None,
        sample_weight: Tensor | None = None,
        sampler_inputs: Tensor | None = None,
        example_ids: Tensor | None = None,
        training: bool | None = None,
        hidden_mask: Tensor | None = None,
        labels_mask: Tensor | None = None,
        negatives: Tensor | None = None,
        negatives_log_count: Tensor | None = None,
        excluded: Tensor | None = None,
    ) -> Tensor:
        """As `SampledHead.call`; `example_ids` (...) in [0, N) are needed in training."""
        side = self._features(hidden, sampler_inputs)
        if labels is None:
            return self.score(hidden, **side)
        targets = self.targets(hidden, labels, sample_weight, hidden_mask, labels_mask)
        own = negatives, negatives_log_count, excluded
        targets, more = self._negatives(hidden, targets, training, *own)
        if training:
            side["example_ids"] = self._flat_ids(example_ids, hidden, sample_weight)
        return self.compare(hidden, targets, training, **side, **more)

    def _flat_ids(
        self, example_ids: Tensor | None, hidden: Tensor, sample_weight: Tensor | None
    ) -> Tensor:
        if example_ids is None:
            raise ValueError(
                "`example_ids` must be given in training: which examples these are. Received: None"
            )
        check_ids("example_ids", example_ids, hidden)
        check_values("example_ids", example_ids, self.num_examples, sample_weight)
        return ops.reshape(example_ids, (-1,))

    def compute_output_spec(
        self, hidden: Tensor, labels: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> keras.KerasTensor:
        if kwargs.get("example_ids") is not None:
            check_ids("example_ids", kwargs["example_ids"], hidden)
        return super().compute_output_spec(hidden, labels, *args, **kwargs)

    def training_loss(
        self,
        hidden: Tensor,
        targets: Targets,
        features: Tensor | None = None,
        negatives: Negatives | None = None,
        example_ids: Tensor | None = None,
    ) -> Tensor:
        """As `SampledHead.training_loss`, of the examples `example_ids` (B,)."""
        check_one_replica("example_ids", "Use one replica, or the JAX backend.")
        ids, in_range = safe_ids(example_ids, self.num_examples)
        if targets.counts is not None or not is_concrete(example_ids):
            valid = in_range if targets.valid is None else ops.logical_and(targets.valid, in_range)
            targets = targets._replace(valid=valid)
            targets = targets._replace(labels=from_present(targets.labels, targets.counts))
        side = {"ids": ids, "counts": targets.present()}
        result = super().training_loss(hidden, targets, features, negatives, **side)
        return ops.where(in_range, result, float("nan"))

    def _losses_and_state(self, hidden, targets, draws, true_rows, sets, ids, counts):
        true_logit, sampled = self._logits(hidden, targets, true_rows, sets)
        (sampled,) = self._masked(sampled, draws, targets)
        arguments = (true_logit, sampled, None, draws[0].log_expected_count)
        log_eta = self._moved(losses.sampled_softmax(*arguments), ids)
        return losses.augment_reduce(*arguments, log_eta), log_eta

    def _moved(self, found: Tensor, ids: Tensor) -> Tensor:
        """log((1 - a) eta + a eta_hat) (B,), given log eta_hat: the loss of sampled softmax."""
        step = ops.power(1.0 + gather_rows(self.visits, ids), -self.step_power)
        first = ops.equal(step, 1.0)
        kept = ops.log1p(-ops.where(first, 0.0, step)) + gather_rows(self.log_eta, ids)
        moved = ops.logaddexp(kept, ops.log(step) + found)
        return ops.stop_gradient(ops.where(first, found, moved))

    def _store(self, state: Tensor, ids: Tensor, counts: Tensor) -> None:
        if not self.table.trainable:
            return
        # An overflow would stay for ever. An example that does not count writes what one that does
        # writes: of two values for one id either could be kept.
        counts = ops.logical_and(counts, ops.isfinite(state))
        weight = ops.cast(counts, "float32")
        ids = from_present(ids, weight)
        value = ops.where(counts, state, gather_rows(self.log_eta, ids))
        scatter_update(self.log_eta, ids, from_present(value, weight))
        scatter_add(self.visits, ids, weight)
