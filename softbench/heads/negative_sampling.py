"""Negative sampling, with the correction that makes its scores softmax scores."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from softbench import losses
from softbench.common import PACKAGE, Tensor, check_number
from softbench.heads.components import Compared
from softbench.heads.sampled import SampledHead
from softbench.samplers import Proposal, Sampler
from softbench.table import Table

OBJECTIVES = ("mean", "gbce")


@keras.saving.register_keras_serializable(PACKAGE)
class NegativeSampling(SampledHead):
    """Logistic regression of the true class against draws from p_n(y|x) (Bamler & Mandt).

    loss = -log sigmoid(xi_y) - 1/m sum_j log sigmoid(-xi_j), j ~ p_n (eq. 2), xi the scores of the
    table. Prediction is the softmax of xi + log p_n (eq. 5), which is what `head(h)`, `top_k` and
    the exact likelihood use: the better p_n fits the data, the less is left for xi to learn, and
    the higher the signal-to-noise ratio of the gradient (theorem 2).

    A class that p_n never draws has probability 0 in prediction.

    Recommenders train on the sum of the negatives instead of their mean, with a weight beta on the
    true class against overconfidence: `objective="gbce"` (Petrov & Macdonald 2023),
    loss = -beta log sigmoid(xi_y) - sum_j log(1 - sigmoid(xi_j)),
    beta = alpha (t (1 - 1/alpha) + 1/alpha), alpha = m / (n - 1). With t = 0 it is binary
    cross-entropy with m negatives. Prediction is the same: at the minimum xi + log p_n is
    log p(y|x) up to a constant. The paper draws uniformly from the items that are not the label
    (`remove_accidental_hits=True`).

    Args:
        sampler: the noise p_n: name, config dict, or `Sampler`. It may depend on the input, but
            not on the rest of the batch: one with shared draws must not depend on the input.
        num_sampled: m, the negatives for each positive; 1 as in the paper. The loss is their mean,
            so that m changes its noise and not its minimum (with "gbce" their sum).
        objective: "mean", eq. 2, or "gbce".
        t: of gBCE, in [0, 1]; 0 leaves the weight at 1, with 1 sigmoid(xi) is calibrated for
            uniform draws. The softmax of xi + log p_n does not depend on it at the minimum.
        regularization: lambda of eq. 6, on the squared softmax scores (xi + log p_n)^2 of the
            true class and, in the mean, of the negatives.
        remove_accidental_hits: mask draws that equal the label; False, because eq. 5 needs the
            label among the negatives.
        others: as in `SampledSoftmax`.

    Raises:
        ValueError: on a negative `regularization`, or one with "gbce", `num_sampled` < 1, an
            unknown `objective`, t outside [0, 1], or a sampler whose distribution depends on the
            batch.

    Example:
        >>> table = softbench.ClassTable(4, kernel_initializer="zeros")
        >>> head = softbench.NegativeSampling(table=table, sampler="uniform")
        >>> scores = head(np.ones((1, 8), "float32"))  # 0 + log 1/4
        >>> [round(float(score), 4) for score in scores[0]]
        [-1.3863, -1.3863, -1.3863, -1.3863]
    """

    arguments = ("t", "regularization")
    exclude_labels = False

    def __init__(
        self,
        units: int | None = None,
        sampler: str | dict | Sampler = "adversarial",
        num_sampled: int = 1,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        row_optimizer: Any = None,
        objective: str = "mean",
        t: float = 0.75,
        regularization: float = 0.0,
        remove_accidental_hits: bool = False,
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
        _check_objective(objective, t, regularization)
        self.objective_name, self.t = objective, t
        self.regularization = regularization
        self.needs_counts = bool(regularization)
        if self.sampler.depends_on and not self.sampler.per_example:
            raise ValueError(
                "`sampler` must have a distribution that prediction can evaluate for one input: "
                "share_draws=True makes this one depend on the batch. "
                f"Received: {type(self.sampler).__name__}"
            )

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Compared]) -> Tensor:
        draw = draws[0]
        counts = draw.true_log_expected_count, draw.log_expected_count
        if self.objective_name == "gbce":
            beta = losses.gbce_beta(self.units, self.num_sampled, self.t)
            return losses.gbce(true_logit, sampled[0], *counts, beta)
        arguments = true_logit, sampled[0], *counts
        return losses.negative_sampling(*arguments, self.regularization, draw.num_drawn)

    def prediction_scores(
        self,
        hidden: Tensor,
        ids: Tensor | None = None,
        features: Tensor | None = None,
        **side: Tensor,
    ) -> Tensor:
        """xi + log p_n(.|x) of all classes (B, n), or (B, m) of `ids` (B, m) or (1, m)."""
        noise = self._noise(hidden if features is None else features)
        size = self.num_sampled
        if ids is None:
            log_noise = self._of_inputs(noise.log_count_all(size))
        elif ids.shape[0] == 1:
            log_noise = self._of_inputs(noise.class_pass(size)(ids[0]))
        else:
            log_noise = noise.log_count_for(ids, size)
        return self.table.scores(hidden, ids) + log_noise - noise.log_scale(size)

    def scorer(
        self, hidden: Tensor, features: Tensor | None = None, **side: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """As `Head.scorer`; what the noise needs once for all classes is computed here."""
        noise = self._noise(hidden if features is None else features)
        log_count, scale = noise.class_pass(self.num_sampled), noise.log_scale(self.num_sampled)

        def scores(ids: Tensor) -> Tensor:
            return self.table.scores(hidden, ids[None]) + self._of_inputs(log_count(ids)) - scale

        return scores

    def _noise(self, features: Tensor) -> Proposal:
        """p_n for the inputs (B, v), of one row where it does not depend on them."""
        if not self.sampler.depends_on:
            features = features[:1]
        return self.sampler.propose(self.table, features)

    def _of_inputs(self, log_noise: Tensor) -> Tensor:
        """log p_n (B, m), or one row of it where all are equal."""
        return log_noise if self.sampler.depends_on else log_noise[:1]

    @property
    def scores_have_bias(self) -> bool:
        return True

    def _score_bias(self) -> Tensor:
        size, noise = self.num_sampled, self._noise(ops.zeros((1, self.width)))
        noise = noise.log_count_all(size)[0] - noise.log_scale(size)
        return super()._score_bias() + noise if self.table.use_bias else noise

    def check_inner_products(self) -> None:
        super().check_inner_products()
        if self.sampler.depends_on:
            raise ValueError(
                "`sampler` must be one whose distribution is the same for all inputs: prediction "
                "adds log p_n, which an index cannot hold otherwise; use the exact `top_k`. "
                f"Received: {type(self.sampler).__name__}"
            )

    def get_config(self) -> dict:
        return {**super().get_config(), "objective": self.objective_name}


def _check_objective(objective: str, t: float, regularization: float) -> None:
    """Raise a ValueError unless the arguments of the loss fit together."""
    if objective not in OBJECTIVES:
        raise ValueError(
            f"`objective` must be one of {OBJECTIVES}. Received: objective={objective!r}"
        )
    check_number(0, regularization=regularization, t=t)
    if t > 1:
        raise ValueError(f"`t` must be in [0, 1]. Received: t={t!r}")
    if regularization and objective == "gbce":
        raise ValueError(
            "`regularization` must be 0 with objective='gbce': it belongs to eq. 6 of Bamler & "
            f"Mandt. Received: regularization={regularization!r}"
        )
