"""Sampled softmax cross-entropy."""

from typing import Any

import keras

from softbench import losses
from softbench.common import PACKAGE, Tensor
from softbench.heads import objectives
from softbench.heads.components import Compared
from softbench.heads.positives import check_smoothing
from softbench.heads.sampled import SampledHead
from softbench.samplers import Sampler
from softbench.table import Table


@keras.saving.register_keras_serializable(PACKAGE)
class SampledSoftmax(SampledHead):
    """Sampled softmax cross-entropy (Rawat et al. 2019, eq. 5; Jean et al. 2015).

    loss = -o_t + log(exp(o_t) + sum_j exp(o_j - log E[count_j])) over m draws from the sampler.
    With a per-example sampler the draws exclude the label. Prediction needs no correction.

    Recommenders have losses of the same draws that rank instead, see `softbench.losses.bsl`, `psl`
    and `sl_at_k`. Scores trained with them are good for `top_k`; their softmax, and so the exact
    likelihood and the perplexity, is not calibrated.

    Args:
        units: n, the number of classes; None with `table`.
        sampler: name, config dict, or `Sampler`. None is "rff" with `normalize=True` (for a
            temperature near 0.1), and otherwise "codebook", which follows scores of any scale.
        num_sampled: m.
        table: None, or the `ClassTable` to use, which has the five options below and rarer ones:
            initializers, bfloat16 rows, absolute scores. Heads that are given one table share it.
        use_bias: whether scores have a bias for each class.
        normalize: whether vectors and rows are divided by their l2 norms.
        temperature: what inner products are divided by; the paper's tau is 1 / temperature.
        row_optimizer: `RowSGD`, `RowAdagrad` or `RowAdam` to update touched rows only, or None.
        objective: "softmax", "bsl", "psl" or "sl_at_k"; or {"class_name": "psl", "config":
            {"activation": "relu"}} with further arguments of that function in `softbench.losses`.
            The `tau` of "psl" is half the temperature of the table unless it is given: the paper
            halves cosines. "bsl" needs `normalize=True` and `use_bias=False`, or a table with a
            `logit_soft_cap`.
        correct_true_logit: True subtracts log E[count] from the true logit too, and draws from all
            n classes: the convention of `tf.nn.sampled_softmax_loss`.
        label_smoothing: epsilon of (1 - epsilon) loss(label) + epsilon mean_i loss(i) over all
            classes; the mean score is estimated by (o_t + sum_j o_j / E[count_j]) / n.
        remove_accidental_hits: mask draws that equal the label, or one of several labels.
        ignore_index, multi_label, max_valid: as in every head, see `softbench.heads.base.Head`.
            With `multi_label` a label's loss has no other label of the example among the draws.
        seed: of the draws.
        **kwargs: of `keras.layers.Layer`: name, dtype, trainable.

    Raises:
        ValueError: if `num_sampled` < 1, the sampler is unknown, or `label_smoothing` is not in
            [0, 1), or not 0 where the label may be among the draws or with `multi_label`; if the
            objective or a parameter of it is unknown, or it is not "softmax" with
            `correct_true_logit` or `label_smoothing`; if `units` or an option of the table is given
            with `table`.

    Example:
        >>> head = softbench.SampledSoftmax(1000, sampler="log_uniform", num_sampled=50)
        >>> x, y = keras.Input((16,)), keras.Input((), dtype="int32")
        >>> keras.Model([x, y], head(x, y)).compile("adam")  # the head adds its own loss
        >>> tuple(head(np.zeros((2, 16), "float32")).shape)
        (2, 1000)
    """

    arguments = ("correct_true_logit", "label_smoothing")

    def __init__(
        self,
        units: int | None = None,
        sampler: str | dict | Sampler | None = None,
        num_sampled: int = 100,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        row_optimizer: Any = None,
        objective: str | dict = "softmax",
        correct_true_logit: bool = False,
        label_smoothing: float = 0.0,
        remove_accidental_hits: bool = True,
        ignore_index: int | None = None,
        multi_label: str | None = None,
        max_valid: int | float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_smoothing(label_smoothing, multi_label)
        if label_smoothing and (correct_true_logit or not remove_accidental_hits):
            raise ValueError(
                "`label_smoothing` must be 0 with correct_true_logit=True or "
                "remove_accidental_hits=False: its estimate is from draws of other classes. "
                f"Received: label_smoothing={label_smoothing}"
            )
        if objective != "softmax" and (correct_true_logit or label_smoothing):
            raise ValueError(
                "`objective` must be 'softmax' with `correct_true_logit` or `label_smoothing`. "
                f"Received: objective={objective!r}, correct_true_logit={correct_true_logit}, "
                f"label_smoothing={label_smoothing}"
            )
        if sampler is None:
            normalized = normalize or getattr(table, "normalize", False)
            sampler = "rff" if normalized else "codebook"
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
        self.objective_given = objective
        self.compared = objectives.get(objective, self.table)
        self.correct_true_logit = correct_true_logit
        self.exclude_labels = not correct_true_logit
        self.needs_counts = correct_true_logit
        self.label_smoothing = label_smoothing

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Compared]) -> Tensor:
        draw = draws[0]
        true_count = draw.true_log_expected_count if self.correct_true_logit else None
        arguments = (true_logit, sampled[0], true_count, draw.log_expected_count)
        loss = self.compared(*arguments)
        if not self.label_smoothing:
            return loss
        gap = true_logit - losses.mean_logit(*arguments, num_classes=self.units)
        return loss + self.label_smoothing * gap

    def get_config(self) -> dict:
        return {**super().get_config(), "objective": self.objective_given}
