"""Problems: a data set, the encoder for it, how its batches are read and how it is evaluated."""

import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from softbench import datasets, models
from softbench.bench.build import Batches
from softbench.bench.ranking import evaluate_ranking

TOP_K = (1, 3, 5)
PROBE_BATCH = 3  # by then the carried state of a language model knows some text


class Problem(NamedTuple):
    """What training needs, besides the head.

    Attributes:
        num_classes: n.
        counts: (n,) occurrences of each class in the training data.
        encoder: model from inputs to hidden vectors (..., d).
        head_kwargs: arguments of the head that belong to the model: initial weights.
        train: batches (x, y).
        examples: labels per training step: tokens of a language, rows of a multi-label set.
        shuffle: whether `fit` may change the order of the batches.
        callbacks: makes the callbacks of one `fit` or `evaluate`.
        optimizer: (spec of the config, epoch from 0) -> {"name", "learning_rate", ...}.
        evaluate: (model, "valid" or "test") -> {"nll", "perplexity", "precision_at_1", ...}.
        probe: () -> hidden vectors (B, d) of a fixed validation batch, by the encoder of now, and
            a label of each (B,); -1 for an example that has none.
    """

    num_classes: int
    counts: np.ndarray
    encoder: keras.Model
    head_kwargs: dict
    train: keras.utils.PyDataset
    examples: int
    shuffle: bool
    callbacks: Callable[[], list]
    optimizer: Callable[[dict, int], dict]
    evaluate: Callable[[keras.Model, str], dict]
    probe: Callable[[], tuple[np.ndarray, np.ndarray]]


def load(config: dict, data_dir: str | None) -> Problem:
    """Loads the cell's data and builds its encoder."""
    dataset = {key: value for key, value in config["dataset"].items() if key != "label"}
    name = dataset.pop("name")
    data = datasets.load(name, **({"data_dir": data_dir} if data_dir else {}), **dataset)
    make = _language if isinstance(data, datasets.LanguageData) else _multi_label
    return make(data, config)


def _language(data: datasets.LanguageData, config: dict) -> Problem:
    options = {key: value for key, value in config["model"].items() if key != "name"}
    preset = models.get_preset(options.pop("preset", "small"))._replace(**options)
    encoder = models.lstm_language_model(data.num_classes, preset, seed=config["seed"])
    batch, steps = preset.batch_size, preset.num_steps
    held_out = {
        split: Batches(datasets.evaluation_batches(getattr(data, split), batch, steps))
        for split in ("valid", "test")
    }

    def optimizer(spec: dict, epoch: int) -> dict:
        if spec.get("schedule") != "zaremba":
            return spec
        # The paper's rate and clip norm are those of the loss summed over the unrolled steps;
        # the loss here is the mean. lr clip(T g, c) = (T lr) clip(g, c / T).
        rate = models.zaremba_learning_rate(preset, epoch) * steps
        return {**spec, "learning_rate": rate, "global_clipnorm": preset.clip_norm / steps}

    def evaluate(model: keras.Model, split: str) -> dict:
        scores = model.evaluate(
            held_out[split], callbacks=[models.CarryState()], verbose=0, return_dict=True
        )
        del scores["loss"]  # a mean over batches, of which the last is short
        return {
            "nll": math.log(scores["perplexity"]),
            **{key: float(value) for key, value in scores.items()},
        }

    def probe() -> tuple[np.ndarray, np.ndarray]:
        valid = held_out["valid"]
        models.reset_states(encoder)
        for index in range(min(PROBE_BATCH + 1, len(valid))):
            x, labels, weight = valid[index]
            hidden = encoder(keras.ops.convert_to_tensor(x), training=False)
        models.reset_states(encoder)
        return keras.ops.convert_to_numpy(hidden)[weight > 0], labels[weight > 0]

    scale = preset.init_scale
    uniform = keras.initializers.RandomUniform(-scale, scale, seed=config["seed"])
    return Problem(
        num_classes=data.num_classes,
        counts=data.counts,
        encoder=encoder,
        head_kwargs={"kernel_initializer": uniform, "bias_initializer": uniform.clone()},
        train=Batches(datasets.CarriedBatches(data.train, batch, steps), config["steps_per_epoch"]),
        examples=batch * steps,
        shuffle=False,
        callbacks=lambda: [models.CarryState()],
        optimizer=optimizer,
        evaluate=evaluate,
        probe=probe,
    )


def _multi_label(data: datasets.MultiLabelData, config: dict) -> Problem:
    model, seed = config["model"], config["seed"]
    train = datasets.BagBatches(data, "train", model["batch_size"], seed=seed)
    encoder = models.sparse_bag_encoder(data.num_features, model["dim"])

    def evaluate(trained: keras.Model, split: str) -> dict:
        batches = datasets.BagBatches(data, split, model["batch_size"])
        return evaluate_ranking(trained, batches, getattr(data, f"{split}_labels"), TOP_K)

    def probe() -> tuple[np.ndarray, np.ndarray]:
        inputs, labels, mask = datasets.BagBatches(data, "valid", model["batch_size"])[0]
        hidden = encoder([keras.ops.convert_to_tensor(x) for x in inputs], training=False)
        first = datasets.padded_labels(labels)[:, 0]
        return keras.ops.convert_to_numpy(hidden)[mask > 0], first[mask > 0]

    return Problem(
        num_classes=data.num_classes,
        counts=data.counts,
        encoder=encoder,
        head_kwargs={},
        train=Batches(train, config["steps_per_epoch"]),
        examples=model["batch_size"],
        shuffle=False,  # the batches reshuffle their rows themselves
        callbacks=list,
        optimizer=lambda spec, epoch: spec,
        evaluate=evaluate,
        probe=probe,
    )
