"""Models that predict, of models that train on labels."""

import inspect
from typing import Any

import keras

from softbench.classifier import Classifier
from softbench.common import PACKAGE
from softbench.heads import Head
from softbench.state import saved_arguments


def predictor(model: keras.Model) -> keras.Model:
    """A model of the scores of all classes, with the weights of one that trains on labels.

    Args:
        model: a `Classifier`, or a functional model one of whose outputs is a head's losses, as in
            `keras.Model([x, y], head(hidden, y))`.

    Returns:
        x -> scores (..., n), whose `log_softmax` is the model. It takes those inputs of `model`
        that the hidden vectors are computed from: one alone, or a list or a dict as there. It can
        be compiled with a loss and metrics of scores, which take (B, n) numbers for each batch.

    Raises:
        ValueError: unless one head is called with labels for an output of the model.

    Example:
        >>> x, y = keras.Input((3,)), keras.Input((), dtype="int32")
        >>> model = keras.Model([x, y], softbench.FullSoftmax(4)(keras.layers.Dense(8)(x), y))
        >>> softbench.predictor(model).predict(np.ones((2, 3)), verbose=0).shape
        (2, 4)
    """
    if isinstance(model, Classifier):
        return Scores(model)
    calls = _calls_with_labels(model)
    if len(calls) != 1:
        raise ValueError(
            "`model` must be a Classifier, or a functional model with one head's losses among its "
            f"outputs. Received: {type(model).__name__} with {len(calls)} of them"
        )
    head, arguments = calls[0]
    side = {key: arguments[key] for key in ("sampler_inputs",) if arguments.get(key) is not None}
    scores = head(arguments["hidden"], **side)
    sources = {id(x) for x in keras.utils.get_source_inputs(scores)}
    if isinstance(model.input, dict):
        return keras.Model({k: x for k, x in model.input.items() if id(x) in sources}, scores)
    inputs = [x for x in model.inputs if id(x) in sources]
    return keras.Model(inputs[0] if len(inputs) == 1 else inputs, scores)


def _calls_with_labels(model: keras.Model) -> list[tuple[Head, dict[str, Any]]]:
    """The heads whose losses the model puts out, and what they are called with by name."""
    calls = []
    for output in getattr(model, "outputs", None) or []:
        head, node, _ = output._keras_history
        if isinstance(head, Head):
            arguments = head._inbound_nodes[node].arguments
            bound = inspect.signature(head.call).bind(*arguments.args, **arguments.kwargs).arguments
            calls += [(head, bound)] if bound.get("labels") is not None else []
    return calls


@keras.saving.register_keras_serializable(PACKAGE)
class Scores(keras.Model):
    """The scores (..., n) that a `Classifier` predicts, as a model that takes metrics of them."""

    arguments = ("classifier",)

    def __init__(self, classifier: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.classifier = classifier

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.classifier(inputs, training=training)

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self)}

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> "Scores":
        classifier = keras.saving.deserialize_keras_object(
            config.pop("classifier"), custom_objects=custom_objects
        )
        return cls(classifier, **config)
