"""A generated clustered set, and a head that is trained on it.

Shape letters: B batch, n classes, d features, C clusters.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

import softbench
from softbench.bench.training import build


class Clustered(NamedTuple):
    """A set of classes around the centres of clusters.

    Attributes:
        centres: float32 (n, d), of the classes.
        ends: (n,), cumulative frequencies.
        spread: of the examples of a class, relative to a class vector's length.
    """

    centres: np.ndarray
    ends: np.ndarray
    spread: float


def clustered(config: dict) -> Clustered:
    """Class vectors: that of a cluster, plus `class_spread` times noise.

    With `num_groups` those of clusters are that of a group, plus `cluster_spread` times noise. The
    frequencies fall as (rank + 1)^-frequency_power, in no order.
    """
    options, dim = config["dataset"], config["model"]["dim"]
    generator = np.random.default_rng(config["seed"])
    units, clusters = options["num_classes"], options["num_clusters"]
    means = generator.standard_normal((clusters, dim), "float32")
    if "num_groups" in options:
        groups = generator.standard_normal((options["num_groups"], dim), "float32")
        means *= np.float32(options["cluster_spread"])
        means += groups[generator.integers(len(groups), size=clusters)]
    ids = generator.integers(clusters, size=units)
    noise = generator.standard_normal((units, dim), "float32")
    centres = (means[ids] + np.float32(options["class_spread"]) * noise) / np.sqrt(dim, dtype="f")
    frequency = np.arange(1, units + 1) ** -float(options["frequency_power"])
    ends = np.cumsum(generator.permutation(frequency))
    return Clustered(centres, ends / ends[-1], options["example_spread"])


def draw(data: Clustered, generator: np.random.Generator, size: int) -> tuple:
    """Examples (B, d) and their labels (B,)."""
    labels = np.searchsorted(data.ends, generator.random(size)).astype("int32")
    labels = np.minimum(labels, len(data.ends) - 1)
    noise = generator.standard_normal((size, data.centres.shape[1]), "float32")
    scale = data.spread / np.sqrt(data.centres.shape[1])
    return (data.centres[labels] + noise * scale).astype("float32"), labels


def train(config: dict, data: Clustered) -> tuple[keras.Model, Any, list[float]]:
    """The encoder, the head, and ten mean losses of the training."""
    model, dim = config["model"], config["model"]["dim"]
    keras.utils.set_random_seed(config["seed"])
    x, y = keras.Input((dim,)), keras.Input((), dtype="int32")
    encoder = keras.Model(x, keras.layers.Dense(dim)(x))
    head = softbench.SampledSoftmax(
        len(data.centres),
        {"class_name": "uniform", "config": {"share_draws": True}},
        model["num_sampled"],
        row_optimizer=build.row_optimizer(model["row_optimizer"]),
        seed=config["seed"],
    )
    whole = keras.Model([x, y], head(encoder(x), y))
    whole.compile(keras.optimizers.Adam(3e-3))

    def batches() -> Iterator[tuple]:
        generator = np.random.default_rng([config["seed"], 2])
        while True:
            yield (draw(data, generator, model["train_batch_size"]),)

    epochs = min(10, model["train_steps"])
    steps = model["train_steps"] // epochs
    fitted = whole.fit(batches(), epochs=epochs, steps_per_epoch=steps, verbose=0)
    return encoder, head, [float(loss) for loss in fitted.history["loss"]]
