"""The error of feature maps: exact cases, known variances, images with and without a folder."""

import math

import numpy as np
import pytest
from conftest import thorough_but

from softbench.bench.job import Job
from softbench.experiments.kernel_mse import run as kernel_mse


def pairs(count=400, dim=16):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, count, dim))
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def measure(method, tau, num_features=4096):
    return kernel_mse.errors(method, pairs(), tau, num_features, np.random.default_rng(1))


def test_a_quadratic_target_is_fitted_exactly():
    inner = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(kernel_mse.best_quadratic(inner, 3 * inner**2 - 2), 3 * inner**2 - 2)


@pytest.mark.parametrize("num_features", thorough_but([64, 2048], 64))
def test_random_fourier_error_is_its_variance(num_features, monkeypatch):
    """Also of features that are held in parts.

    Var cos(w.(h - c)) = (1 - exp(-nu |h - c|^2))^2 / 2 (Sutherland & Schneider 2015), over D.
    """
    monkeypatch.setattr(kernel_mse, "_CHUNK", 64)
    tau = 1.5
    hidden, rows = pairs()
    square = tau * np.sum((hidden - rows) ** 2, axis=-1)
    variance = 0.5 * (1 - np.exp(-square)) ** 2 / num_features
    found = measure({"map": "rff", "num_features": num_features}, tau)
    assert found["gaussian"] == pytest.approx(variance.mean(), rel=0.3)
    assert found["mse"] == pytest.approx(found["gaussian"] * math.exp(2 * tau))
    target = np.exp(tau * np.sum(hidden * rows, axis=-1))
    assert found["relative"] == pytest.approx(found["mse"] / np.mean(target**2))


@pytest.mark.thorough
def test_positive_features_err_by_their_variance():
    """Var exp(w.(h + c) - nu) = exp(2 nu <h, c>) (exp(nu |h + c|^2) - 1), independent features."""
    hidden, rows = pairs()
    inner, square = np.sum(hidden * rows, -1), np.sum((hidden + rows) ** 2, -1)
    variance = np.exp(2 * 0.3 * inner) * (np.exp(0.3 * square) - 1) / 16
    found = measure({"map": "positive", "num_features": 16}, 0.3, 16 * 512)
    # orthogonal directions: at most the variance of independent ones
    assert 0.5 * variance.mean() < found["mse"] < 1.1 * variance.mean()


def test_run_without_a_folder_measures_noise():
    methods = {"quadratic": {"map": "quadratic"}, "sorf_D1024": {"map": "sorf", "num_features": 8}}
    options = {"pairs": 20, "taus": [1.0], "features": 8}
    config = {"seed": 0, "options": options, "methods": methods}
    result = {}
    kernel_mse.run(Job(config, None, result, lambda point: None))
    assert result["source"] == "generated" and result["pairs"] == 20
    for found in result["errors"].values():
        assert all(value > 0 for value in found["1.0"].values())


def test_images(tmp_path):
    images = np.random.default_rng(1).random((50, 256), "float32")
    vectors = kernel_mse.unit_vectors(images)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1)
    with pytest.raises(FileNotFoundError, match=r"`data_dir` must hold usps/usps\.h5"):
        kernel_mse.load_usps(tmp_path)
    import h5py

    (tmp_path / "usps").mkdir()
    with h5py.File(tmp_path / "usps/usps.h5", "w") as file:
        file["train/data"] = images
    np.testing.assert_array_equal(kernel_mse.load_usps(tmp_path), images)
