"""What is measured of a trained head besides its scores: its proposal, and a step of it alone."""

import keras
import numpy as np

from softbench import diagnostics
from softbench.bench import timing
from softbench.bench.training import build
from softbench.bench.training.problems import Problem
from softbench.metrics.at_k import medians_by_frequency


def diagnose(
    head: keras.layers.Layer, problem: Problem, nll: float, encoder: keras.Model | None = None
) -> dict[str, float]:
    """Quality of the proposal on a fixed validation batch, and the mutual information.

    The quality is that on at most 2^24 / n examples of the batch.
    """
    measures = {"mutual_information": diagnostics.mutual_information(problem.counts, nll)}
    if hasattr(head, "sampler"):
        outputs, labels = problem.probe(encoder)
        outputs = outputs if isinstance(outputs, dict) else {"hidden": outputs}
        size = max(1, diagnostics.LARGEST_SCORES // problem.num_classes)
        outputs = {name: values[:size] for name, values in outputs.items()}
        inputs = head, outputs["hidden"], outputs.get("sampler_inputs")
        quality = diagnostics.proposal_quality(*inputs)
        measures |= {"proposal_kl": quality.kl, "proposal_ess": quality.ess}
        measures["proposal_rv"] = diagnostics.relative_variance(*inputs).mean
        measures |= _row_variances(head, problem, labels[:size], inputs)
    return measures


def _row_variances(
    head: keras.layers.Layer, problem: Problem, labels: np.ndarray, inputs: tuple
) -> dict[str, float]:
    """Medians of `diagnostics.row_variance` over frequent, middle and rare classes.

    Not of a large table, of which it would hold copies in float64.
    """
    if problem.num_classes * inputs[1].shape[-1] > diagnostics.LARGEST_SCORES:
        return {}
    rows = diagnostics.row_variance(head, inputs[1], labels, inputs[2]).values
    medians = medians_by_frequency(rows, problem.counts)
    return {f"proposal_row_rv_{name}": value for name, value in medians.items()}


def step_ms(
    head: keras.layers.Layer, problem: Problem, spec: dict, repetitions: int
) -> dict[str, float]:
    """Milliseconds of steps of a head alone, forward, backward and update, on random vectors."""
    shape = tuple(problem.encoder.output.shape[1:])
    _, labels = problem.train[0][:2]
    batch = len(labels)
    hidden = keras.Input(shape, batch_size=batch)
    # The scale makes the gradient with respect to the hidden vectors belong to the work.
    scaled = _Scale()(hidden)
    label_input = keras.Input(labels.shape[1:], batch_size=batch, dtype="int32")
    model = keras.Model([hidden, label_input], head(scaled, label_input))
    model.compile(optimizer=build.optimizer(problem.optimizer(spec, 0)))
    values = np.random.default_rng(0).normal(size=(batch, *shape)).astype("float32")
    inputs = (values, np.asarray(labels, "int32"))

    timer = timing.StepTimer(warmup=3)
    repeated = build.Batches([(inputs,)] * (repetitions + 3))
    model.fit(repeated, epochs=1, callbacks=[timer], shuffle=False, verbose=0)
    return timing.summary(timer.seconds)


class _Scale(keras.layers.Layer):
    """Multiplies by a trainable vector (d,)."""

    def build(self, inputs_shape: tuple) -> None:
        self.scale = self.add_weight(shape=(inputs_shape[-1],), initializer="ones", name="scale")

    def call(self, inputs: object) -> object:
        return inputs * self.scale
