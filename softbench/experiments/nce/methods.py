"""Estimation methods of the experiments with exact NCE, as configs write them. Needs no Keras."""

from collections.abc import Mapping

import numpy as np

from softbench.experiments.nce import objectives


def sizes(method: Mapping, negatives: list[int]) -> list[int | None]:
    """Returns the K at which a method is fitted: [None] for maximum likelihood."""
    return [None] if method["objective"] == "likelihood" else list(negatives)


def label(num_noise: int | None) -> str:
    """Returns the key of a record for K."""
    return "-" if num_noise is None else str(num_noise)


def objective(
    method: Mapping,
    sample: objectives.Sample,
    num_noise: int | None,
    noise: np.ndarray,
    shape: tuple[int, int],
) -> objectives.Objective:
    """Returns a method's objective on data, with the first K draws of each point.

    Args:
        method: {"objective": "likelihood", "ranking" or "binary"}.
        sample: the points and their draws.
        num_noise: K, None for maximum likelihood.
        noise: p_N (Y,).
        shape: (X, Y).

    Raises:
        ValueError: for another objective.
    """
    kind = method["objective"]
    if kind not in ("likelihood", "ranking", "binary"):
        raise ValueError(f"`objective` must be likelihood, ranking or binary. Received: {kind!r}")
    counts = objectives.positives(sample, shape)
    if num_noise is None:
        return objectives.likelihood(counts)
    sample = sample._replace(noise=sample.noise[:, :num_noise])
    if kind == "ranking":
        return objectives.ranking(sample, np.log(noise), shape)
    drawn = objectives.negatives(sample, shape)
    return objectives.binary(counts, drawn, np.log(noise), num_noise)
