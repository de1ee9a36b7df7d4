"""Rows that a model computes from features of the items."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench import item_features
from softbench.class_table import ClassTable
from softbench.common import PACKAGE, Tensor
from softbench.item_features import Features
from softbench.ops import gather_rows, on_distinct, read, recomputed_map
from softbench.state import add_constant, saved_arguments
from softbench.table import Table

CHUNK = 16_384  # items whose inner layers are held at once in a pass over all
_NO_ROW_OPTIMIZER = (
    "an item tower computes its rows, so that there is no row of its own to update; the model's "
    "optimizer trains the tower"
)


@keras.saving.register_keras_serializable(PACKAGE)
class ItemTower(Table):
    """Row i is `model(features[i])`: items by what is known of them, new ones included.

    A training step computes the rows of its labels and draws alone, each distinct item once, in the
    model's training mode; the gradient goes to the weights of the model, which the optimizer of the
    whole trains. What passes over all items (exact scores, `top_k`, an `Index`, the refreshes of
    samplers that follow the table) computes them in chunks, in inference mode. So does
    `FullSoftmax` in training, whose gradient computes each chunk a second time; of more than 16,384
    items it refuses a model with dropout or batch normalisation, which need the training mode.

    The features are weights that nothing trains: they are saved once, in the `.keras` file of a
    model that has the tower, and are no constants of a compiled step.

    Shape letters: n items, N of them, d columns of a row.

    Args:
        model: a Keras model or layer, features of N items -> (N, d). It may hold embeddings, whose
            ids are then among the features.
        features: numbers (n, ...), or a dict of such arrays by the names of the model's inputs.
            Row i is of item i. Integers become int32, other numbers float32.
        use_bias: whether the model returns (N, d + 1) and the last column is the bias of an item.
        normalize, temperature, logit_soft_cap: as in `ClassTable`.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: if `model` is no layer, or does not return one vector for each item; if
            `features` are not as said, are not finite, or differ in their number.

    Example:
        >>> layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)]
        >>> tower = softbench.ItemTower(keras.Sequential(layers), np.eye(9, 5))
        >>> head = softbench.SampledSoftmax(table=tower, sampler="uniform", num_sampled=3)
        >>> scores = head(np.ones((2, 4), "float32"))
        >>> tuple(scores.shape), len(head.trainable_weights)
        ((2, 9), 4)
        >>> more = tower.extended(np.ones((1, 5)))  # a new item, with the trained model
        >>> tuple(softbench.FullSoftmax(table=more)(np.ones((2, 4), "float32")).shape)
        (2, 10)
    """

    arguments = ("use_bias", "normalize", "temperature", "logit_soft_cap")

    def __init__(
        self,
        model: Any,
        features: Any,
        *,
        use_bias: bool = False,
        normalize: bool = False,
        temperature: float = 1.0,
        logit_soft_cap: float | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("row_optimizer", None) is not None:
            raise ValueError(
                f"`row_optimizer` must be None: {_NO_ROW_OPTIMIZER}. Received: a row optimizer"
            )
        if not isinstance(model, keras.layers.Layer):
            raise ValueError(
                "`model` must be a Keras model or layer, from features to one vector for each "
                f"item. Received: {type(model).__name__}"
            )
        arrays = item_features.checked(features)
        units = len(next(iter(arrays.values())) if isinstance(arrays, dict) else arrays)
        super().__init__(
            units,
            use_bias=use_bias,
            normalize=normalize,
            temperature=temperature,
            logit_soft_cap=logit_soft_cap,
            **kwargs,
        )
        self.model = model
        self.features = self._add_features(arrays)
        self.is_filled = True
        self._try_model()
        self.build((None, self.width))

    def _add_features(self, arrays: Features) -> Any:
        if not isinstance(arrays, dict):
            return add_constant(self, "features", arrays)
        return {
            name: add_constant(self, f"features_{name.replace('/', '_')}", array)
            for name, array in arrays.items()
        }

    def _try_model(self) -> None:
        """See of one item what the model returns, and what a call in training mode changes.

        Sets `columns`, d and one more with a bias; `changing`, the variables that such a call
        assigns to (those of dropout and batch normalisation); `adds_losses`, whether it adds some
        (`add_loss`, `activity_regularizer`).
        """
        first = self._features_of(ops.zeros((1,), "int32"))
        if not self.model.built:
            symbolic = lambda x: keras.KerasTensor((None, *x.shape[1:]), x.dtype)  # noqa: E731
            self.model(keras.tree.map_structure(symbolic, first))
        with keras.StatelessScope(collect_losses=True) as scope:
            rows = self.model(first, training=True)
        shape = tuple(getattr(rows, "shape", ()))
        if len(shape) != 2 or shape[0] != 1 or shape[1] <= self.use_bias:
            wanted = "(N, d + 1), the bias last," if self.use_bias else "(N, d)"
            received = f"shape {shape}" if shape else type(rows).__name__
            raise ValueError(
                f"`model` must return an array {wanted} for the features of N items. "
                f"Received: {received} of one item"
            )
        self.columns = shape[1]
        assigned = scope.get_current_value
        others = self.model.non_trainable_variables
        self.changing = [v for v in others if assigned(v) is not None]
        self.adds_losses = bool(scope.losses)

    @property
    def width(self) -> int:
        return self.columns - self.use_bias

    @property
    def class_variables(self) -> list[keras.Variable]:
        """The features. They are not divided over devices."""
        return list(self.features.values()) if isinstance(self.features, dict) else [self.features]

    def begin(self, training: bool) -> None:
        """Raise a ValueError if the features were never loaded."""
        if not self.is_filled:
            raise ValueError(
                "`features` of an ItemTower are in the weights of a model, so that a copy by "
                "`get_config` has none: save and load the model, or use "
                "`softbench.ItemTower(model, features)`. Received: a copy without them"
            )

    def gather(self, ids: Tensor) -> list[Tensor]:
        rows = self._computed(ops.reshape(ids, (-1,)))
        return self._split(ops.reshape(rows, (*ops.shape(ids), self.columns)))

    def all_rows(self, training: bool = False) -> list[Tensor]:
        ids = ops.arange(self.units, dtype="int32")
        if not training or not (self.changing or self.adds_losses):
            return self.gather(ids)
        if self.units > CHUNK:
            raise ValueError(
                f"`table` must be an item tower of at most {CHUNK} items, or one without dropout, "
                "batch normalisation and losses of its layers, for a loss over all items: it is "
                "computed in chunks, twice. Use a head that samples, such as SampledSoftmax. "
                f"Received: {self.units} items"
            )
        return self._split(self._in_training(ids))

    def training_rows(self, id_sets: list[Tensor]) -> list[list[Tensor]]:
        """As `Table.training_rows`, of each distinct item once, in training mode."""
        flat = ops.concatenate([ops.reshape(ids, (-1,)) for ids in id_sets])
        changing = None if self.adds_losses else self.changing
        rows = on_distinct(self._in_training, flat, self.units, changing)
        sets, start = [], 0
        for ids in id_sets:
            shape = ops.shape(ids)
            end = start + math.prod(shape)
            sets.append(self._split(ops.reshape(rows[start:end], (*shape, self.columns))))
            start = end
        return sets

    def _in_training(self, ids: Tensor) -> Tensor:
        """What the model returns of ids (N,) in training mode: float32 (N, columns)."""
        return ops.cast(self.model(self._features_of(ids), training=True), "float32")

    def _computed(self, ids: Tensor) -> Tensor:
        """What the model returns of ids (N,) in inference mode: float32 (N, columns)."""
        size = ids.shape[0]
        if size is None or size <= CHUNK:
            return ops.cast(self.model(self._features_of(ids), training=False), "float32")
        count = -(-size // CHUNK)
        padded = ops.pad(ids, ((0, count * CHUNK - size),))
        # Values instead of the variables: the gradient by them computes each chunk again.
        weights = [read(v) for v in self.model.trainable_variables]
        others = [read(v) for v in self.model.non_trainable_variables]

        def chunk(weights: Any, start: Tensor) -> Tensor:
            features = self._features_of(ops.slice(padded, (start,), (CHUNK,)))
            values = list(weights), others
            rows, _ = self.model.stateless_call(*values, features, training=False)
            return ops.cast(rows, "float32")

        rows = recomputed_map(chunk, weights, ops.arange(count, dtype="int32") * CHUNK)
        return ops.reshape(rows, (count * CHUNK, self.columns))[:size]

    def _features_of(self, ids: Tensor) -> Any:
        """The features of ids (N,), as the model takes them."""
        if isinstance(self.features, dict):
            return {name: gather_rows(v, ids) for name, v in self.features.items()}
        return gather_rows(self.features, ids)

    def _split(self, rows: Tensor) -> list[Tensor]:
        """Rows, and biases if there are any."""
        return [rows[..., :-1], rows[..., -1]] if self.use_bias else [rows]

    def extended(self, features: Any) -> "ItemTower":
        """A tower of these items and more, on the same model: a head on it scores new items.

        Heads on this tower stay as they are. The ids of the new items begin at `units`.

        Args:
            features: as in the constructor, of the new items.

        Raises:
            ValueError: if they have other names, shapes or kinds of numbers than those here.
        """
        self.begin(training=False)
        features = item_features.joined(self._arrays(), item_features.checked(features))
        options = {name: getattr(self, name) for name in self.arguments}
        return ItemTower(self.model, features, **options, dtype=self.dtype_policy)

    def precomputed(self) -> ClassTable:
        """The rows as they are now, as a table that nothing trains: for service and evaluation.

        A head on it scores as one on the tower does, without computing the rows again.
        """
        self.begin(training=False)
        rows = self.all_rows()
        options = {name: getattr(self, name) for name in self.arguments}
        table = ClassTable(
            self.units, self.width, **options, dtype=self.dtype_policy, trainable=False
        )
        for variable, values in zip(table.class_variables, rows, strict=True):
            variable.assign(values)
        return table

    def _arrays(self) -> Features:
        if isinstance(self.features, dict):
            return {name: ops.convert_to_numpy(v) for name, v in self.features.items()}
        return ops.convert_to_numpy(self.features)

    def option_hint(self, name: str) -> str:
        return _NO_ROW_OPTIMIZER if name == "row_optimizer" else super().option_hint(name)

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)
        self.is_filled = True

    def get_build_config(self) -> None:
        """None: the constructor builds it."""

    def get_config(self) -> dict:
        # Twice, as in `table.serialized`.
        keras.saving.serialize_keras_object(self.model)
        model = keras.saving.serialize_keras_object(self.model)
        form = lambda v: {"shape": list(v.shape), "dtype": v.dtype}  # noqa: E731
        features = self.features
        if isinstance(features, dict):
            forms = {"named": {name: form(v) for name, v in features.items()}}
        else:
            forms = {"array": form(features)}
        return {**super().get_config(), **saved_arguments(self), "model": model, "features": forms}

    @classmethod
    def from_config(cls, config: dict) -> "ItemTower":
        """A tower whose features are zeros until its weights are loaded."""
        config = dict(config)
        forms = config.pop("features")
        empty = lambda form: np.broadcast_to(np.zeros((), form["dtype"]), form["shape"])  # noqa: E731
        if "array" in forms:
            features = empty(forms["array"])
        else:
            features = {name: empty(form) for name, form in forms["named"].items()}
        config["model"] = keras.saving.deserialize_keras_object(config["model"])
        tower = cls(features=features, **config)
        tower.is_filled = False
        return tower
