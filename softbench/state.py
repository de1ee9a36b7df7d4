"""What a layer keeps besides what it trains: state in its weights, arguments in its config."""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.distribution import CLASS_ROWS
from softbench.ops import planned_shards, replicas

Arguments = tuple[str, ...]  # names that `saved_arguments` saves


def add_state(
    layer: keras.layers.Layer,
    name: str,
    shape: tuple = (),
    initializer: Any = "zeros",
    dtype: str = "float32",
    per_class: bool = False,
) -> keras.Variable:
    """A weight of `layer` that is saved with it, never trained and never cast.

    `per_class`: it has a row for each class, or block of classes. Devices divide these rows if a
    `softbench.distribution.layout_map` is in use, and if they can be cut evenly.
    """
    shards = (class_shards if per_class else planned_shards)(f"{layer.path}/{name}", shape)
    # Keras compiles the initializer of a large variable that is divided: what one reads of other
    # variables would be constants of its program. So such a variable is made first, then assigned.
    later = callable(initializer) and shards > 1 and not _in_stateless_scope()
    options = {"initializer": "zeros" if later else initializer, "trainable": False}
    variable = layer.add_weight(name=name, shape=shape, dtype=dtype, autocast=False, **options)
    if later:
        variable.assign(initializer(shape, dtype))
    return variable


def class_shards(path: str, shape: tuple) -> int:
    """Say that the variable that will be added at `path` has a row for each class, or block.

    Returns into how many shards these rows are cut; if they cannot be cut evenly, they are not.
    """
    CLASS_ROWS.add(path)
    shards = planned_shards(path, shape)
    if shape[0] % shards:
        CLASS_ROWS.remove(path)
    return shards


def _in_stateless_scope() -> bool:
    """Whether Keras puts initializers off, and assignments go nowhere."""
    with keras.StatelessScope() as scope:
        return scope.original_scope is not None


def add_constant(
    layer: keras.layers.Layer, name: str, value: np.ndarray, per_class: bool = False
) -> keras.Variable:
    """`add_state` of an array, as float32 or int32."""
    dtype = "float32" if np.issubdtype(value.dtype, np.floating) else "int32"

    def initializer(shape: tuple, dtype: Any = None) -> Any:
        return ops.convert_to_tensor(value, dtype=dtype)

    return add_state(layer, name, value.shape, initializer, dtype, per_class)


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
