"""The hinge loss against sampled classes."""

from typing import Any

import keras

from softbench import losses
from softbench.common import PACKAGE, Tensor, check_number
from softbench.heads.components import Compared
from softbench.heads.sampled import SampledHead
from softbench.samplers import Sampler
from softbench.table import Table


@keras.saving.register_keras_serializable(PACKAGE)
class SampledHinge(SampledHead):
    """max(0, margin - o_y + max_j o_j) over m sampled classes (Stratos, appendix A).

    The maximum over the draws takes the place of that over all other classes. The scores are
    trained to rank and not to be log-probabilities: `top_k` is meaningful, the softmax of the
    scores, and so the likelihood and the perplexity, are not calibrated.

    Args:
        sampler: "uniform" by default.
        margin: by which the true class should win.
        others: as in `SampledSoftmax`.

    Raises:
        ValueError: if `num_sampled` < 1, `margin` is not positive, or the sampler is unknown.
    """

    arguments = ("margin",)

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
        margin: float = 1.0,
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
        check_number(0, exclusive=True, margin=margin)
        self.margin = margin

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Compared]) -> Tensor:
        counts = draws[0].log_expected_count
        return losses.hinge(true_logit, sampled[0], None, counts, self.margin)
