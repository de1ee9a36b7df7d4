"""Noise-contrastive estimation of conditional models."""

from typing import Any

import keras
from keras import ops

from softbench import losses
from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.heads.components import Compared
from softbench.heads.sampled import SampledHead
from softbench.samplers import Sampler
from softbench.table import Table

OBJECTIVES = ("binary", "ranking")


@keras.saving.register_keras_serializable(PACKAGE)
class NoiseContrastive(SampledHead):
    """NCE with K draws of noise (Ma & Collins 2018).

    `ranking`: cross-entropy of the true class among {y, K draws} with scores s - log q; consistent
    for every conditional model. `binary`: logistic regression of the true class against K draws;
    consistent only if log Z(x) is constant, gamma with `learn_log_partition`, else 0 (their
    section 4.3 has a counterexample). Prediction is the softmax of s in both, without log q, which
    the loss has taken off. Of `binary`, exp(s - gamma) is an estimate of p(y|x) by itself, as good
    as the model can normalise itself; of `ranking`, s is known up to a constant of each input.

    Args:
        sampler: the noise: name, config dict, or `Sampler`. "unigram" needs `counts`.
        num_sampled: K.
        objective: "binary" or "ranking".
        learn_log_partition: learn gamma, one scalar for all inputs (binary only).
        regularization: alpha of alpha * (log Z_hat)^2, Z_hat estimated from noise (section 5.2).
        regularization_samples: draws for Z_hat; None means n / 10, as in the paper.
        remove_accidental_hits: mask draws that equal the label; False, as in `tf.nn.nce_loss`,
            because NCE's noise includes the label.
        others: as in `SampledSoftmax`.

    Raises:
        ValueError: on an unknown objective, `num_sampled` < 1, a negative `regularization`, or
            `learn_log_partition` with ranking, where gamma cancels.

    Example:
        >>> noise = {"class_name": "unigram", "config": {"counts": [5, 3, 1, 1]}}
        >>> head = softbench.NoiseContrastive(4, sampler=noise, num_sampled=20)
        >>> tuple(head(np.ones((2, 8), "float32"), np.array([0, 3]), training=True).shape)
        (2,)
    """

    arguments = ("learn_log_partition", "regularization", "regularization_samples")
    exclude_labels = False
    needs_counts = True

    def __init__(
        self,
        units: int | None = None,
        sampler: str | dict | Sampler = "unigram",
        num_sampled: int = 100,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        row_optimizer: Any = None,
        objective: str = "binary",
        learn_log_partition: bool = False,
        regularization: float = 0.0,
        regularization_samples: int | None = None,
        remove_accidental_hits: bool = False,
        ignore_index: int | None = None,
        multi_label: str | None = None,
        max_valid: int | float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if objective not in OBJECTIVES:
            raise ValueError(
                f"`objective` must be one of {OBJECTIVES}. Received: objective={objective!r}"
            )
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
        check_number(0, regularization=regularization)
        if regularization_samples is not None:
            check_positive(regularization_samples=regularization_samples)
        if learn_log_partition and objective == "ranking":
            raise ValueError(
                "`learn_log_partition` must be False with objective='ranking', where a constant "
                "cancels. Received: learn_log_partition=True"
            )
        size = regularization_samples or max(1, self.units // 10)
        if regularization:
            self.set_sizes = (self.num_sampled, size)
        self.objective_name = objective
        self.learn_log_partition = learn_log_partition
        self.regularization = regularization
        self.regularization_samples = regularization_samples

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        if self.learn_log_partition:
            self.log_partition = self.add_weight(
                name="log_partition", shape=(), initializer="zeros", autocast=False
            )

    def shift(self, true_logit: Tensor, sampled: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        if not self.learn_log_partition:
            return true_logit, sampled
        gamma = ops.convert_to_tensor(self.log_partition, dtype="float32")
        return true_logit - gamma, [sampled[0] - gamma, *sampled[1:]]

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Compared]) -> Tensor:
        noise = draws[0]
        counts = noise.true_log_expected_count, noise.log_expected_count
        function = losses.nce_ranking if self.objective_name == "ranking" else losses.nce_binary
        loss = function(true_logit, sampled[0], *counts)
        if self.regularization:
            penalty = losses.log_partition_penalty(sampled[1], draws[1].log_expected_count)
            loss = loss + self.regularization * penalty
        return loss

    def get_config(self) -> dict:
        return {**super().get_config(), "objective": self.objective_name}
