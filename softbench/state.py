"""What a layer keeps besides what it trains: state in its weights, arguments in its config."""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.ops import even_layout, filled_later, replicas

Arguments = tuple[str, ...]  # names that `saved_arguments` saves


def add_state(
    layer: keras.layers.Layer,
    name: str,
    shape: tuple = (),
    initializer: Any = "zeros",
    dtype: str = "float32",
) -> keras.Variable:
    """A weight of `layer` that is saved with it, never trained and never cast."""
    path = f"{layer.path}/{name}"
    later = callable(initializer) and filled_later(path, shape)
    options = {"initializer": "zeros" if later else initializer, "trainable": False}
    with even_layout(path, shape):
        variable = layer.add_weight(name=name, shape=shape, dtype=dtype, autocast=False, **options)
    if later:
        variable.assign(initializer(shape, dtype))
    return variable


def add_constant(layer: keras.layers.Layer, name: str, value: np.ndarray) -> keras.Variable:
    """`add_state` of an array, as float32 or int32."""
    dtype = "float32" if np.issubdtype(value.dtype, np.floating) else "int32"

    def initializer(shape: tuple, dtype: Any = None) -> Any:
        return ops.convert_to_tensor(value, dtype=dtype)

    return add_state(layer, name, value.shape, initializer, dtype)


def check_one_replica(name: str, remedy: str) -> None:
    """Raise a ValueError if each replica of a `tf.distribute` strategy would change state alone."""
    if replicas() > 1:
        raise ValueError(
            f"`{name}` needs state that each replica of a `tf.distribute` strategy would change by "
            f"its own part of the batch; it is not supported with more than one. {remedy} "
            f"Received: {replicas()} replicas"
        )


class SavedGenerators:
    """A layer that saves the states of its random number generators, which Keras leaves out.

    Without them a loaded model would draw again what it has drawn before. It comes before the Keras
    layer among the bases of a class.
    """

    def _generators(self) -> dict[str, keras.random.SeedGenerator]:
        generator = keras.random.SeedGenerator
        return {name: own for name, own in vars(self).items() if isinstance(own, generator)}

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)  # type: ignore[misc]
        for name, generator in self._generators().items():
            store[name] = ops.convert_to_numpy(generator.state)

    def load_own_variables(self, store: Any) -> None:
        arrays = {key: store[key] for key in list(store.keys())}
        for name, generator in self._generators().items():
            generator.state.assign(arrays.pop(name))
        super().load_own_variables(arrays)  # type: ignore[misc]


def saved_arguments(owner: Any) -> dict[str, Any]:
    """The constructor's arguments that the classes of `owner` list in `arguments`, for its config.

    Each is an attribute of the same name. Arrays become lists, and Keras' objects their configs.
    """
    classes = reversed(type(owner).__mro__)
    names = [name for cls in classes for name in vars(cls).get("arguments", ())]
    return {name: _plain(getattr(owner, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if hasattr(value, "get_config"):
        return keras.saving.serialize_keras_object(value)
    return list(value) if isinstance(value, tuple) else value
