"""Encoders: what comes before a head. LSTM language model, sparse bag of features, linear.

Shape letters: B batch, T steps, L features of a bag, v features, d units.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import layers, ops


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


class CarryState(keras.callbacks.Callback):
    """Resets the carried state of every stateful layer when an epoch or an evaluation begins.

    A validation inside `fit` therefore starts clean too, and the next epoch after it.
    """

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        reset_states(self.model)

    def on_test_begin(self, logs: dict | None = None) -> None:
        reset_states(self.model)

    def on_predict_begin(self, logs: dict | None = None) -> None:
        reset_states(self.model)


def reset_states(model: keras.Model) -> None:
    """Sets the carried state of every `CarriedLSTM` of `model` to zero."""
    for layer in model._flatten_layers():
        if isinstance(layer, CarriedLSTM):
            layer.reset_state()


@keras.saving.register_keras_serializable("softbench")
class CarriedLSTM(layers.Layer):
    """LSTM whose last state is the initial state of the next call; gradients stop between calls.

    The state is a tracked non-trainable weight. (`keras.layers.LSTM(stateful=True)` of Keras 3.15
    does not track its own, so on JAX `fit`, `evaluate` and `predict` never carry it.) The
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
        self, units: int, init_scale: float = 0.1, seed: int | None = None, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        _check_sizes(units=units)
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
        self.states = [
            self.add_weight(
                shape=(sequence_shape[0], self.units),
                initializer="zeros",
                trainable=False,
                name=name,
            )
            for name in ("hidden_state", "cell_state")
        ]

    def call(self, sequence: object) -> object:
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
    name: str = "lstm_language_model",
) -> keras.Model:
    """LSTM language model of Zaremba et al. without its softmax.

    Embedding, `num_layers` LSTMs and dropout on the non-recurrent connections (input of each
    LSTM and output of the last). The state is carried: batch i + 1 continues batch i, gradients
    stop between them (see `CarriedBatches`, `CarryState`). Weights and biases start uniform in
    ±`init_scale`; nothing is added to the forget gate (forget bias 0), as in the paper's code.

    Args:
        num_classes: n, number of token ids.
        preset: "small", "medium", "large" or an `LSTMPreset`; the arguments below override it.
        batch_size: B.
        num_steps: T.
        units: d, of the embedding and of every LSTM.
        num_layers: number of LSTMs.
        keep_prob: 1 - dropout rate, in (0, 1].
        init_scale: half width of the initial uniform distribution.
        seed: of weights and dropout.
        name: of the model.

    Returns:
        Functional model, int tokens `(B, T)` -> hidden `(B, T, units)`.

    Raises:
        ValueError: for an unknown preset, a size below 1 or `keep_prob` outside (0, 1].
    """
    given = dict(batch_size=batch_size, num_steps=num_steps, units=units, num_layers=num_layers)
    given.update(keep_prob=keep_prob, init_scale=init_scale)
    size = get_preset(preset)._replace(**{k: v for k, v in given.items() if v is not None})
    _check_sizes(num_classes=num_classes, batch_size=size.batch_size, num_steps=size.num_steps)
    _check_sizes(units=size.units, num_layers=size.num_layers)
    if not 0.0 < size.keep_prob <= 1.0:
        raise ValueError(f"`keep_prob` must be in (0, 1]. Received: {size.keep_prob}")
    seeds = _seeds(seed)

    def drop(hidden: keras.KerasTensor) -> keras.KerasTensor:
        if size.keep_prob == 1.0:
            return hidden
        return layers.Dropout(1.0 - size.keep_prob, seed=seeds())(hidden)

    tokens = keras.Input(batch_shape=(size.batch_size, size.num_steps), dtype="int32")
    initializer = _uniform(size.init_scale, seeds())
    embedding = layers.Embedding(num_classes, size.units, embeddings_initializer=initializer)
    hidden = drop(embedding(tokens))
    for _ in range(size.num_layers):
        hidden = drop(CarriedLSTM(size.units, size.init_scale, seeds())(hidden))
    return keras.Model(tokens, hidden, name=name)


def _check_sizes(**sizes: int) -> None:
    for argument, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(
                f"`{argument}` must be an integer >= 1. Received: {argument}={value!r}"
            )


@keras.saving.register_keras_serializable("softbench")
class WeightedBag(layers.Layer):
    """`sum_j w_j E[id_j]` of bags padded with weight 0; the (B, v) matrix is never built.

    Args:
        num_features: v.
        dim: d.
        normalize: divide by the l2 norm of the sum (a zero sum stays zero).
        embeddings_initializer: of E `(v, d)`; None is normal with deviation d ** -0.5, so that a
            bag whose weights have l2 norm 1 has length near 1.
        **kwargs: of `keras.layers.Layer`.

    Call: `(ids (B, L) int, weights (B, L))` -> `(B, d)`.
    """

    def __init__(
        self,
        num_features: int,
        dim: int,
        normalize: bool = False,
        embeddings_initializer: object = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        _check_sizes(num_features=num_features, dim=dim)
        self.num_features, self.dim, self.normalize = num_features, dim, normalize
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=dim**-0.5)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embedding = layers.Embedding(
            num_features, dim, embeddings_initializer=self.embeddings_initializer
        )

    def build(self, inputs_shape: list) -> None:
        self.embedding.build(inputs_shape[0])

    def call(self, inputs: list) -> object:
        ids, weights = inputs
        rows = self.embedding(ids)
        hidden = ops.einsum("bl,bld->bd", ops.cast(weights, rows.dtype), rows)
        if not self.normalize:
            return hidden
        square = ops.sum(ops.square(hidden), axis=-1, keepdims=True)
        return hidden * ops.rsqrt(ops.where(square > 0, square, 1.0))

    def compute_output_shape(self, inputs_shape: list) -> tuple:
        return (inputs_shape[0][0], self.dim)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "num_features": self.num_features,
            "dim": self.dim,
            "normalize": self.normalize,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


def sparse_bag_encoder(num_features: int, dim: int, normalize: bool = False) -> keras.Model:
    """Functional model `[ids (B, L), weights (B, L)]` -> `(B, dim)`; see `WeightedBag`."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    weights = keras.Input((None,), name="weights")
    bag = WeightedBag(num_features, dim, normalize)
    return keras.Model([ids, weights], bag([ids, weights]), name="sparse_bag_encoder")


def linear_encoder(
    num_features: int, dim: int | None = None, activation: str | None = None
) -> keras.Model:
    """Functional model of dense features `(B, num_features)`: a Dense layer, or the identity.

    Args:
        num_features: width of the input.
        dim: width of the output; None passes the features on as they are.
        activation: of the Dense layer.
    """
    _check_sizes(num_features=num_features, **({} if dim is None else {"dim": dim}))
    features = keras.Input((num_features,), name="features")
    layer = layers.Identity() if dim is None else layers.Dense(dim, activation=activation)
    return keras.Model(features, layer(features), name="linear_encoder")
