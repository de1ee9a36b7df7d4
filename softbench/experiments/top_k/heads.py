"""The trained head of the task "top_k", and queries that it was not trained on.

Shape letters: B queries of a batch, d features, n classes.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from softbench.bench import timing
from softbench.bench.job import Job
from softbench.bench.training import run as train
from softbench.bench.training.problems import Problem, load
from softbench.experiments.top_k import clustered

_NOT_ENCODER = ("k", "queries", "head")  # of the config's model: what is no setting of the encoder


class TrainedHead(NamedTuple):
    """A head and its queries.

    Attributes:
        head: trained.
        batches: hidden vectors float32 (B, d) of each batch.
        labels: of all their rows.
        curve: ten losses of the training, or one after each epoch.
    """

    head: Any
    batches: list[np.ndarray]
    labels: np.ndarray
    curve: list[float]


def trained_head(job: Job) -> TrainedHead:
    """Trains the head of the config: of a generated clustered set, or of a data set of softbench.

    The latter is trained as the harness trains the method `model.head`; the queries are the
    encoder's outputs on a batch of the validation set, `model.queries` of them at a time.
    """
    if job.config["dataset"]["name"] == "clustered":
        return _clustered(job.config)
    model = job.config["model"]
    config = {key: value for key, value in job.config.items() if key != "timing"}
    config |= {"model": {key: value for key, value in model.items() if key not in _NOT_ENCODER}}
    config |= {"methods": {"trained": model["head"]}}
    problem = load(config, job.data_dir)
    trial = job._replace(config=config, result={}, checkpoint=None)

    def evaluate(classifier: keras.Model, split: str) -> dict:
        batches, labels = _queries(problem, classifier.encoder, model["queries"])
        labels = labels.reshape(len(batches), -1)
        losses = [classifier.head(h, y) for h, y in zip(batches, labels, strict=True)]
        return {"nll": float(np.mean([ops.convert_to_numpy(loss) for loss in losses]))}

    fitted = problem._replace(evaluate=evaluate)
    classifier, _ = train.fit(trial, model["head"], fitted, config["optimizer"])
    curve = [point["valid_nll"] for point in trial.result["curve"]]
    return TrainedHead(
        classifier.head, *_queries(problem, classifier.encoder, model["queries"]), curve
    )


def _queries(
    problem: Problem, encoder: keras.Model, size: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Batches of `size` hidden vectors, and the labels of all."""
    hidden, labels = problem.probe(encoder)
    count = min(timing.NUM_BATCHES, len(hidden) // size)
    if not count:
        raise ValueError(
            "`model.queries` must be at most the examples of a validation batch. Received: "
            f"{size} of {len(hidden)}"
        )
    return np.split(hidden[: count * size], count), labels[: count * size]


def _clustered(config: dict) -> TrainedHead:
    data, model = clustered.clustered(config), config["model"]
    encoder, head, history = clustered.train(config, data)
    generator = np.random.default_rng([config["seed"], 1])
    drawn = [
        clustered.draw(data, generator, model["batch_size"]) for _ in range(timing.NUM_BATCHES)
    ]
    batches = [ops.convert_to_numpy(encoder(x)) for x, _ in drawn]
    return TrainedHead(head, batches, np.concatenate([y for _, y in drawn]), history)
