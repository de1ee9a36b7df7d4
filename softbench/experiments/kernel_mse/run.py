"""The task "kernel_mse": error of feature maps as estimates of exp(tau <h, c>) on pairs of images.

Shape letters: P pairs, d pixels, D random features.
"""

from pathlib import Path

import keras
import numpy as np

from softbench import samplers
from softbench.bench.job import Job

# Maps of more features are built and averaged in chunks of this many.
_CHUNK = 1024


def run(job: Job) -> None:
    """Measures every map of the cell, without a data folder on noise; fills `job.result`."""
    config, options, result = job.config, job.options, job.result
    result["source"] = "generated" if job.data_dir is None else "usps"
    rng = np.random.default_rng(config["seed"])
    images = rng.random((2000, 256)) if job.data_dir is None else load_usps(job.data_dir)
    chosen = rng.integers(len(images), size=(2, options["pairs"]))
    pairs = unit_vectors(images[chosen])
    result["pairs"], result["errors"] = options["pairs"], {}
    for index, (name, method) in enumerate(config["methods"].items()):
        by_tau = {}
        for tau in options["taus"]:
            rng = np.random.default_rng([config["seed"], index, int(1000 * tau)])
            by_tau[str(tau)] = errors(method, pairs, tau, options["features"], rng)
        result["errors"][name] = by_tau


def load_usps(data_dir: str | Path) -> np.ndarray:
    """The training images of USPS, float32 (7291, 256) in [0, 1], from `usps/usps.h5`.

    Raises:
        FileNotFoundError: if `data_dir` does not hold the file.
    """
    import h5py  # comes with Keras

    path = Path(data_dir) / "usps" / "usps.h5"
    if not path.is_file():
        raise FileNotFoundError(
            f"`data_dir` must hold usps/usps.h5 (a group `train` with `data`). Received: {data_dir}"
        )
    with h5py.File(path) as file:
        return np.asarray(file["train/data"], np.float32)


def unit_vectors(images: np.ndarray) -> np.ndarray:
    """Pixels moved from [0, 1] to [-1, 1], and each image divided by its norm."""
    moved = 2.0 * images.astype(np.float64) - 1.0
    return moved / np.linalg.norm(moved, axis=-1, keepdims=True)


def errors(
    method: dict, pairs: np.ndarray, tau: float, num_features: int, rng: np.random.Generator
) -> dict[str, float]:
    """Mean squared errors of one map on pairs of h and c.

    Args:
        method: {"map", "num_features"}.
        pairs: (2, P, d).
        tau: of the target exp(tau <h, c>).
        num_features: independent maps are measured, and the mean error taken, until they have
            this many features together.
        rng: of the maps' seeds.

    Returns:
        `mse` on the target; `relative`, that over the mean squared target; and `gaussian`, the
        mean squared error on exp(tau (<h, c> - 1)).
    """
    inner = np.sum(pairs[0] * pairs[1], axis=-1)
    target = np.exp(tau * inner)
    if method["map"] == "quadratic":
        mse = np.mean(np.square(best_quadratic(inner, target) - target))
    else:
        repetitions = range(max(1, num_features // method["num_features"]))
        estimates = (estimate(method, pairs, tau, rng) for _ in repetitions)
        mse = np.mean([np.mean(np.square(kernel - target)) for kernel in estimates])
    measures = {"mse": mse, "relative": mse / np.mean(np.square(target))}
    measures["gaussian"] = mse * np.exp(-2 * tau)
    return {name: float(value) for name, value in measures.items()}


def best_quadratic(inner: np.ndarray, target: np.ndarray) -> np.ndarray:
    """alpha <h, c>^2 + beta at the alpha and beta of the least squared error."""
    design = np.stack([np.square(inner), np.ones_like(inner)], axis=-1)
    return design @ np.linalg.lstsq(design, target, rcond=None)[0]


def estimate(method: dict, pairs: np.ndarray, tau: float, rng: np.random.Generator) -> np.ndarray:
    """phi(h).phi(c) of the pairs (P,), as a mean over chunks of the features."""
    num_features, total = method["num_features"], np.zeros(pairs.shape[1])
    for start in range(0, num_features, _CHUNK):
        size = min(_CHUNK, num_features - start)
        options = {"num_features": size, "nu": float(tau), "seed": int(rng.integers(2**31))}
        feature_map = samplers.get(method["map"], **options).make_features(temperature=1.0)
        feature_map.build((None, pairs.shape[-1]))
        first, second = (
            feature_map.features(keras.ops.convert_to_tensor(x.astype("float32"))) for x in pairs
        )
        total += size * keras.ops.convert_to_numpy(keras.ops.sum(first * second, axis=-1))
    return total / num_features
