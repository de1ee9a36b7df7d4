"""The one-vs-each bound on the softmax loss."""

import keras

from softbench import losses
from softbench.common import PACKAGE, Tensor
from softbench.heads.components import Compared
from softbench.heads.sampled import SampledHead


@keras.saving.register_keras_serializable(PACKAGE)
class OneVsEach(SampledHead):
    """-log p(y) <= -sum_{i != y} log sigmoid(o_y - o_i), from m sampled classes (Titsias 2016).

    The sum over the other classes is estimated without bias, each draw weighted by 1 / E[count].
    Prediction is the softmax of o; the bound, not the likelihood, is what training minimises.

    Args:
        sampler: "uniform" by default.
        remove_accidental_hits: mask draws that equal the label. Without it a hit adds a constant.
        others: as in `SampledSoftmax`.

    Raises:
        ValueError: if `num_sampled` < 1 or the sampler is unknown.
    """

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Compared]) -> Tensor:
        return losses.one_vs_each(true_logit, sampled[0], None, draws[0].log_expected_count)
