"""A Keras model of an encoder and a head, for data that yields `(x, y)`."""

import copy
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from softbench.common import PACKAGE
from softbench.heads.negatives import NAMES
from softbench.labels import check_weights
from softbench.learning_rate import check_optimizer
from softbench.metrics import Perplexity, PrecisionAtK
from softbench.state import saved_arguments


class LabelledBatch(NamedTuple):
    """What a training or test step passes to `Classifier.call` instead of `x`."""

    inputs: Any
    labels: Any
    sample_weight: Any


def split_inputs(x: Any) -> tuple[Any, dict[str, Any]]:
    """What the encoder takes of `x`, and what the head does in training, by name.

    Of a dict with `negatives` or `excluded` the encoder takes the rest.
    """
    if not isinstance(x, Mapping) or not {"negatives", "excluded"} & set(x):
        return x, {}
    rest = {name: value for name, value in x.items() if name not in NAMES}
    return rest, {name: x[name] for name in NAMES if name in x}


class MaskOf(keras.layers.Layer):
    """The mask (...) that Keras has attached to hidden vectors (..., d), or all True."""

    supports_masking = True  # Keras checks it; masks are not passed on

    def call(self, hidden: Any, mask: Any = None) -> Any:
        return ops.ones(ops.shape(hidden)[:-1], "bool") if mask is None else mask


@keras.saving.register_keras_serializable(PACKAGE)
class Classifier(keras.Model):
    """`head(encoder(x))` with the usual `fit`, `evaluate` and `predict`.

    `fit` minimises the head's training loss; compile it with an optimizer and no loss. `evaluate`
    returns the exact negative log-likelihood as `loss`, `perplexity`, which is exp(loss), and
    `precision_at_k` for every k in `top_k`: means over all that counts, by its weight, whatever the
    batches. `predict` returns the exact scores of all classes.

    Args:
        encoder: a Keras model or layer, x -> hidden (..., d); or x -> a dict of `hidden` and what
            else the head's call takes by name: `sampler_inputs`, `example_ids`.
        head: a softbench head.
        top_k: which precisions `evaluate` computes; () for none.
        inputs_to_sampler: pass x, one array (..., v), to the head as `sampler_inputs`: the features
            that its sampler was fitted to.

    If x is a dict with `negatives` (..., k), integers padded with -1, the head takes these in
    training, with `negatives_log_count` if x has it, and the encoder takes the other entries, as a
    dict. `FullSoftmax`, which compares with all classes, needs none and leaves them out. So it is
    with `excluded` (..., E), which `FullSoftmax` cannot take.

    Callbacks that watch `val_perplexity` or a `val_precision_at_k` know which way is better.
    `class_weight` is for one label an example; other labels take `sample_weight` of their shape.

    Example:
        >>> model = softbench.Classifier(keras.layers.Dense(8), softbench.FullSoftmax(4))
        >>> model.compile("adam")
        >>> x, y = np.ones((6, 3), "float32"), np.array([0, 1, 2, 3, 0, 1])
        >>> sorted(model.evaluate(x, y, verbose=0, return_dict=True))
        ['loss', 'perplexity', 'precision_at_1', 'precision_at_3']
    """

    arguments = ("encoder", "head", "top_k", "inputs_to_sampler")

    def __init__(
        self,
        encoder: Any,
        head: Any,
        top_k: tuple[int, ...] = (1, 3, 5),
        inputs_to_sampler: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.encoder = encoder
        self.head = head
        self.inputs_to_sampler = inputs_to_sampler
        self.top_k = tuple(k for k in top_k if k <= head.units)
        self.perplexity = Perplexity(name="perplexity")
        self.precisions = [PrecisionAtK(k, name=f"precision_at_{k}") for k in self.top_k]
        if not self.trainable:
            encoder.trainable = head.trainable = False

    def build(self, input_shape: Any) -> None:
        input_shape = split_inputs(input_shape)[0]
        if not self.encoder.built:
            self.encoder.build(input_shape)
        if not self.head.built:
            shape = self.encoder.compute_output_shape(input_shape)
            if getattr(self.head, "tie", None) is not None:  # it needs the fixed shape
                shape = getattr(self.encoder, "output_shape", shape)
            self.head.build(shape["hidden"] if isinstance(shape, dict) else shape)

    def _encode(self, x: Any, training: bool | None) -> dict[str, Any]:
        """What the head is called with, by name; what it takes in training alone, only then."""
        x, negatives = split_inputs(x)
        outputs = self.encoder(x, training=training)
        outputs = dict(outputs) if isinstance(outputs, dict) else {"hidden": outputs}
        if self.inputs_to_sampler:
            outputs["sampler_inputs"] = x
        outputs |= negatives
        left_out = [] if training else ["example_ids", *NAMES]
        left_out += ["negatives", "negatives_log_count"] if self.head.has_all_classes else []
        return {name: value for name, value in outputs.items() if name not in left_out}

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Scores (..., n) of inputs, or the outputs of a training or test step on a batch."""
        if not isinstance(inputs, LabelledBatch):
            return self.head(**self._encode(inputs, training))
        x, labels, weight = inputs
        encoded = self._encode(x, training)
        losses = self.head(**encoded, labels=labels, sample_weight=weight, training=training)
        if training:
            return {}
        mask = MaskOf(autocast=False)(encoded["hidden"])
        counted = self.head.targets(encoded["hidden"], labels, weight, mask).weight
        outputs = {"losses": losses, "weight": counted}
        if self.top_k:
            outputs["top_ids"] = self.head.top_k(**encoded, k=max(self.top_k))[1]
        return outputs

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """As `keras.Model.compile`, without a loss and without metrics.

        Raises:
            ValueError: if `loss`, `loss_weights`, `metrics` or `weighted_metrics` is given.
        """
        for name, value in {"loss": loss, "loss_weights": loss_weights}.items():
            if value is not None:
                raise ValueError(
                    f"`{name}` must be left out: the head adds its own loss, which it computes "
                    f"without the scores of all classes. Received: {name}={value!r}"
                )
        for name, value in {"metrics": metrics, "weighted_metrics": weighted_metrics}.items():
            if value:
                raise ValueError(
                    f"`{name}` must be left out: `evaluate` gives loss, perplexity and "
                    "precision_at_k (`top_k`). For metrics of the scores of all classes, (B, n), "
                    "compile `softbench.predictor(model)` with them and a loss, and evaluate that. "
                    f"Received: {name}={value!r}"
                )
        super().compile(optimizer, **kwargs)

    def compile_from_config(self, config: dict) -> None:
        """Compile as a saved model was."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`; labels and weights in arrays are checked before the first step."""
        check_optimizer(self)
        self._check_labels(y, kwargs.get("sample_weight"))
        self._check_negatives(x, kwargs.get("sample_weight"))
        if kwargs.get("class_weight") is not None:
            self._check_class_weight(y)
        self._tell_directions(kwargs.get("callbacks"))
        return super().fit(x, y, **kwargs)

    def _check_class_weight(self, labels: Any) -> None:
        """Raise a ValueError unless Keras can look up the class of an example.

        Of labels of a higher rank it would take the index of the largest for the class.
        """
        shape = tuple(getattr(labels, "shape", ()))
        if self.head.multi_label or (len(shape) > 1 and shape[1:] != (1,)):
            raise ValueError(
                "`class_weight` needs one label for each example. Give `sample_weight` of the "
                "shape of the labels instead, such as class_weights[labels]. Received labels of "
                f"shape {shape}"
            )

    def _tell_directions(self, callbacks: Any) -> None:
        """Set which way is better in callbacks of mode="auto" that watch one of the metrics."""
        names = {metric.name: metric._direction for metric in (self.perplexity, *self.precisions)}
        for callback in keras.tree.flatten(getattr(callbacks, "callbacks", callbacks)):
            watched = str(getattr(callback, "monitor", "")).removeprefix("val_")
            if getattr(callback, "mode", None) == "auto" and watched in names:
                callback.mode = "max" if names[watched] == "up" else "min"

    def evaluate(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.evaluate`; labels and weights that are arrays are checked first."""
        self._check_labels(y, kwargs.get("sample_weight"))
        return super().evaluate(x, y, **kwargs)

    def _check_labels(self, labels: Any, sample_weight: Any) -> None:
        if hasattr(sample_weight, "dtype"):
            check_weights(sample_weight)
        if hasattr(labels, "dtype") and hasattr(labels, "shape"):
            self.head.check_label_values(labels, sample_weight)

    def _check_negatives(self, x: Any, sample_weight: Any) -> None:
        own = split_inputs(x)[1]
        for name in ("negatives", "excluded"):
            if self.head.takes_negatives and hasattr(own.get(name), "dtype"):
                self.head.check_own(name, own[name], sample_weight)

    def train_step(self, *args: Any) -> Any:
        check_optimizer(self)
        return super().train_step(*args[:-1], self._with_labels(args[-1]))

    def test_step(self, *args: Any) -> Any:
        return super().test_step(*args[:-1], self._with_labels(args[-1]))

    def _with_labels(self, data: Any) -> tuple:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if y is None:
            raise ValueError("`y` must be given: the labels, integers. Received: y=None")
        if not self.built:
            self.build(keras.tree.map_structure(lambda tensor: tuple(tensor.shape), x))
        return (LabelledBatch(x, y, sample_weight),)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict:
        """`loss` of a training step (not a likelihood); all metrics of a test step."""
        if "losses" not in y_pred:
            return {"loss": self._loss_tracker.result()}
        weight = ops.reshape(y_pred["weight"], (-1,))
        counts = ops.not_equal(weight, 0)
        # The head has multiplied its losses by the weights.
        nll = ops.reshape(y_pred["losses"], (-1,))
        nll = ops.where(counts, nll / ops.where(counts, weight, 1.0), 0.0)
        self.perplexity.update_state(nll, weight)
        # Keras has averaged over batches, whatever counts in each.
        self._loss_tracker.reset_state()
        self._loss_tracker.update_state(*self.perplexity.mean_and_weight())
        for metric in self.precisions:
            several = x.labels.shape[-1:] if self.head.multi_label else ()
            labels = ops.reshape(x.labels, (-1, *several))
            top_ids = ops.reshape(y_pred["top_ids"], (-1, max(self.top_k)))
            metric.update_state(labels, top_ids, weight)
        metrics = (self._loss_tracker, self.perplexity, *self.precisions)
        return {metric.name: metric.result() for metric in metrics}

    def get_config(self) -> dict:
        # Which of the encoder's embeddings the head has its rows from: an encoder that is saved by
        # its arguments, as KerasHub's are, makes another layer when it is loaded.
        used = getattr(getattr(self.head, "table", None), "embedding", None)
        layers = [index for index, x in enumerate(_embeddings(self.encoder)) if x is used]
        place = {"embedding_of_head": layers[0]} if layers else {}
        return {**super().get_config(), **saved_arguments(self), **place}

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> "Classifier":
        config = dict(config)
        index = config.pop("embedding_of_head", None)
        load = functools.partial(
            keras.saving.deserialize_keras_object, custom_objects=custom_objects
        )
        config["encoder"] = load(config["encoder"])
        if index is not None:
            head = copy.deepcopy(config["head"])
            layer = _embeddings(config["encoder"])[index]
            head["config"]["table"]["config"]["embedding"] = layer
            config["head"] = head
        config["head"] = load(config["head"])
        return cls(**config)


def _embeddings(encoder: Any) -> list[keras.layers.Embedding]:
    """The embedding layers of an encoder, in an order that its arguments decide."""
    layers = encoder._flatten_layers()
    return [layer for layer in layers if isinstance(layer, keras.layers.Embedding)]
