"""The hinge loss against sampled classes."""

from typing import Any

import keras

from softbench import losses
from softbench.common import PACKAGE, Tensor, check_number
from softbench.heads.sampled import SampledHead
from softbench.samplers import Sampler, Samples


@keras.saving.register_keras_serializable(PACKAGE)
class SampledHinge(SampledHead):
    """max(0, margin - o_y + max_j o_j) over m sampled classes (Stratos, appendix A).

    The maximum over the draws takes the place of that over all other classes. The scores are
    trained to rank and not to be log-probabilities: `top_k` is meaningful, the softmax of the
    scores, and so the likelihood and the perplexity, are not calibrated.

    Args:
        margin: by which the true class should win.
        units, sampler, num_sampled, remove_accidental_hits, use_bias, normalize, temperature,
            absolute, row_optimizer, kernel_initializer, bias_initializer, seed: as in
            `SampledSoftmax`.

    Raises:
        ValueError: if `num_sampled` < 1, `margin` is not positive, or the sampler is unknown.
    """

    arguments = ("margin",)

    def __init__(
        self,
        units: int,
        sampler: str | dict | Sampler = "uniform",
        num_sampled: int = 100,
        margin: float = 1.0,
        remove_accidental_hits: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, sampler, num_sampled, remove_accidental_hits, seed, **kwargs)
        check_number(0, exclusive=True, margin=margin)
        self.margin = margin

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Samples]) -> Tensor:
        counts = draws[0].log_expected_count
        return losses.hinge(true_logit, sampled[0], None, counts, self.margin)
