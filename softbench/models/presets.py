"""Sizes and schedules of the LSTM language models of Zaremba et al. (2014)."""

from typing import NamedTuple


class LSTMPreset(NamedTuple):
    """Model and training settings of Zaremba et al. (2014), table 1 and section 4.1.

    `learning_rate` and `clip_norm` refer to the loss summed over the T steps and averaged over
    the batch, as in the paper; `mean_loss_learning_rate` and `mean_loss_clip_norm` convert them.
    """

    units: int
    num_layers: int
    num_steps: int
    batch_size: int
    init_scale: float
    keep_prob: float
    learning_rate: float
    decay: float
    decay_after_epoch: int
    epochs: int
    clip_norm: float


PRESETS = {
    "small": LSTMPreset(200, 2, 20, 20, 0.1, 1.0, 1.0, 0.5, 4, 13, 5.0),
    "medium": LSTMPreset(650, 2, 35, 20, 0.05, 0.5, 1.0, 0.8, 6, 39, 5.0),
    "large": LSTMPreset(1500, 2, 35, 20, 0.04, 0.35, 1.0, 1.0 / 1.15, 14, 55, 10.0),
}


def get_preset(preset: str | LSTMPreset) -> LSTMPreset:
    """Returns the preset of a name; an `LSTMPreset` is returned as it is."""
    if isinstance(preset, LSTMPreset):
        return preset
    if preset not in PRESETS:
        raise ValueError(f"`preset` must be one of: {', '.join(PRESETS)}. Received: {preset!r}")
    return PRESETS[preset]


def zaremba_learning_rate(preset: str | LSTMPreset, epoch: int) -> float:
    """Learning rate in epoch 0, 1, ...: `learning_rate * decay ** max(epoch + 1 - after, 0)`.

    It is constant for the first `decay_after_epoch` epochs.
    """
    preset = get_preset(preset)
    return preset.learning_rate * preset.decay ** max(epoch + 1 - preset.decay_after_epoch, 0)


def mean_loss_learning_rate(preset: str | LSTMPreset, epoch: int) -> float:
    """SGD rate for the loss averaged over all B T tokens: T times the rate for the summed loss.

    With g' = g / T the gradient of the mean, `(T lr) clip(g', c / T) = lr clip(g, c)` exactly.
    """
    return zaremba_learning_rate(preset, epoch) * get_preset(preset).num_steps


def mean_loss_clip_norm(preset: str | LSTMPreset) -> float:
    """Global gradient-norm limit for the loss averaged over all tokens: the paper's over T."""
    preset = get_preset(preset)
    return preset.clip_norm / preset.num_steps
