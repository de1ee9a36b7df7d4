"""LSTM language models of Zaremba et al. (2014): sizes, schedules, state carried between batches.

Shape letters: B batch, T steps, n classes, d units.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import layers, ops

from softbench.common import PACKAGE, Tensor, check_positive
from softbench.models.embedding import embedding
from softbench.rows import RowOptimizer


class LSTMPreset(NamedTuple):
    """Model and training settings, table 1 and section 4.1 of the paper.

    `learning_rate` and `clip_norm` refer to the loss summed over the T steps and averaged over
    the batch: with the mean over all tokens, the rate is T times as large, the norm a T-th.
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
    """Rate in epoch 0, 1, ...: `learning_rate * decay ** max(epoch + 1 - decay_after_epoch, 0)`."""
    preset = get_preset(preset)
    return preset.learning_rate * preset.decay ** max(epoch + 1 - preset.decay_after_epoch, 0)


class CarryState(keras.callbacks.Callback):
    """Resets the carried state of every stateful layer when an epoch or an evaluation begins.

    A validation inside `fit` therefore starts clean too, and the next epoch after it.
    """

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        reset_states(self.model)

    on_test_begin = on_predict_begin = on_epoch_begin


def reset_states(model: keras.Model) -> None:
    """Sets the carried state of every `CarriedLSTM` of `model` to zero."""
    for layer in model._flatten_layers():
        if isinstance(layer, CarriedLSTM):
            layer.reset_state()


@keras.saving.register_keras_serializable(PACKAGE)
class CarriedLSTM(layers.Layer):
    """LSTM whose last state is the initial state of the next call; gradients stop between calls.

    The state is a tracked non-trainable weight. (`keras.layers.LSTM(stateful=True)` of Keras 3.15
    does not track its state, so on JAX `fit`, `evaluate` and `predict` never carry it.) The
    steps run in Keras' loop: at B = T = 20, 200 units on CPU, unrolling it was slower on JAX, with
    28 s of compilation, and gained nothing on TensorFlow.

    Args:
        units: d.
        init_scale: kernels and biases start uniform in ±`init_scale`, with nothing added to the
            forget gate.
        seed: of the initial weights.
        **kwargs: of `keras.layers.Layer`.

    Call: `(B, T, features)` with B and T fixed -> `(B, T, units)`.
    """

    def __init__(
        self, units: int, init_scale: float = 0.1, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive(units=units)
        self.units, self.init_scale, self.seed = units, init_scale, seed
        seeds = _seeds(seed)
        self.lstm = layers.LSTM(
            units,
            kernel_initializer=_uniform(init_scale, seeds()),
            recurrent_initializer=_uniform(init_scale, seeds()),
            bias_initializer=_uniform(init_scale, seeds()),
            unit_forget_bias=False,
            return_sequences=True,
            return_state=True,
            dtype=self.dtype_policy,
        )

    def build(self, sequence_shape: tuple) -> None:
        self.lstm.build(sequence_shape)
        shape = (sequence_shape[0], self.units)
        self.states = [
            self.add_weight(shape=shape, initializer="zeros", trainable=False, name=name)
            for name in ("hidden_state", "cell_state")
        ]

    def call(self, sequence: Tensor) -> Tensor:
        initial = [ops.convert_to_tensor(state) for state in self.states]
        outputs, *final = self.lstm(sequence, initial_state=initial)
        for state, value in zip(self.states, final, strict=True):
            state.assign(ops.cast(value, state.dtype))
        return outputs

    def reset_state(self) -> None:
        """Sets the carried state to zero."""
        for state in self.states:
            state.assign(ops.zeros(state.shape, state.dtype))

    def compute_output_shape(self, sequence_shape: tuple) -> tuple:
        return (*sequence_shape[:-1], self.units)

    def get_config(self) -> dict:
        config = {"units": self.units, "init_scale": self.init_scale, "seed": self.seed}
        return {**super().get_config(), **config}


def _uniform(scale: float, seed: int | None) -> keras.initializers.Initializer:
    return keras.initializers.RandomUniform(-scale, scale, seed=seed)


def _seeds(seed: int | None) -> Callable[[], int | None]:
    """Returns a function that gives a new seed at every call; always None for None."""
    generator = random.Random(seed)
    return lambda: None if seed is None else generator.randrange(2**31)


def lstm_language_model(
    num_classes: int,
    preset: str | LSTMPreset = "small",
    *,
    batch_size: int | None = None,
    num_steps: int | None = None,
    units: int | None = None,
    num_layers: int | None = None,
    keep_prob: float | None = None,
    init_scale: float | None = None,
    seed: int | None = None,
    row_optimizer: RowOptimizer | None = None,
    name: str = "lstm_language_model",
) -> keras.Model:
    """LSTM language model without its softmax: embedding, `num_layers` LSTMs, dropout.

    Dropout is on the non-recurrent connections (input of each LSTM and output of the last). The
    state is carried: batch i + 1 continues batch i, gradients stop between them (see
    `CarriedBatches`, `CarryState`). Weights and biases start uniform in ±`init_scale`; nothing is
    added to the forget gate (forget bias 0), as in the paper's code.

    Args:
        num_classes: n, number of token ids.
        preset: "small", "medium", "large" or an `LSTMPreset`; the arguments below override its
            B (`batch_size`), T (`num_steps`), d (`units`, of the embedding and of every LSTM),
            `num_layers`, `keep_prob` (1 - dropout rate, in (0, 1]) and `init_scale`.
        seed: of weights and dropout.
        row_optimizer: None, or what updates the touched rows of the input embedding (see
            `RowEmbedding`): for n beyond some 50,000.
        name: of the model.

    Returns:
        Functional model, int tokens `(B, T)` -> hidden `(B, T, units)`.

    Raises:
        ValueError: for an unknown preset, a size below 1 or `keep_prob` outside (0, 1].
    """
    overrides = dict(batch_size=batch_size, num_steps=num_steps, units=units, num_layers=num_layers)
    overrides.update(keep_prob=keep_prob, init_scale=init_scale)
    size = get_preset(preset)._replace(**{k: v for k, v in overrides.items() if v is not None})
    check_positive(num_classes=num_classes, batch_size=size.batch_size, num_steps=size.num_steps)
    check_positive(units=size.units, num_layers=size.num_layers)
    if not 0.0 < size.keep_prob <= 1.0:
        raise ValueError(f"`keep_prob` must be in (0, 1]. Received: {size.keep_prob}")
    seeds = _seeds(seed)

    def drop(hidden: keras.KerasTensor) -> keras.KerasTensor:
        if size.keep_prob == 1.0:
            return hidden
        return layers.Dropout(1.0 - size.keep_prob, seed=seeds())(hidden)

    tokens = keras.Input(batch_shape=(size.batch_size, size.num_steps), dtype="int32")
    initializer = _uniform(size.init_scale, seeds())
    words = embedding(num_classes, size.units, row_optimizer, initializer)
    hidden = drop(words(tokens))
    for _ in range(size.num_layers):
        hidden = drop(CarriedLSTM(size.units, size.init_scale, seeds())(hidden))
    return keras.Model(tokens, hidden, name=name)
