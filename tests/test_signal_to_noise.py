"""Theorem 2 of Bamler & Mandt: closed form, Monte Carlo, and the page."""

import numpy as np
import pytest
import reference

from softbench.bench.job import Job
from softbench.experiments.signal_to_noise import page
from softbench.experiments.signal_to_noise import run as signal_to_noise

X, N = 4, 6


def tables(seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(N, 2.0), X), rng.dirichlet(np.full(N, 2.0), X)


def enumerated(data, noise, num_negatives):
    """Tr(Cov[g] H^-1), its expectation over the positive and the negatives written out."""
    inputs, n = data.shape
    sigma = data / (data + noise)
    hessian = np.diag((data * sigma * (1 - sigma) + noise * sigma * (1 - sigma)).ravel())
    covariance = np.zeros((inputs * n, inputs * n))
    for x in range(inputs):
        for y, *negatives in np.ndindex(*[n] * (num_negatives + 1)):
            g = np.zeros((inputs, n))
            g[x, y] -= inputs * (1 - sigma[x, y])
            for j in negatives:
                g[x, j] += inputs * sigma[x, j] / num_negatives
            p = data[x, y] * np.prod(noise[x, negatives]) / inputs
            covariance += p * np.outer(g, g)
    return np.trace(covariance @ np.linalg.inv(hessian))


@pytest.mark.parametrize("num_negatives", [1, 2, 3])
def test_closed_form_is_the_trace_by_enumeration(num_negatives):
    data, noise = tables()
    expected = enumerated(data, noise, num_negatives)
    found = signal_to_noise.closed_form(data, noise, num_negatives)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_closed_form_is_equation_15():
    data, noise = tables()
    alpha = noise / (1 + noise / data)
    expected = X * sum(N - 2 * alpha[x].sum() for x in range(X))
    np.testing.assert_allclose(signal_to_noise.closed_form(data, noise), expected)
    best = signal_to_noise.closed_form(data, data)
    np.testing.assert_allclose(best, X * X * (N - 1))


@pytest.mark.parametrize("num_negatives", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "other", "data"])
def test_monte_carlo_is_the_closed_form(kind, num_negatives):
    """Within 4 standard errors, which are small enough to tell one noise from another."""
    data, other = tables()
    noise = {"uniform": np.full((X, N), 1 / N), "other": other, "data": data}[kind]
    rng = np.random.default_rng(3)
    found = signal_to_noise.monte_carlo(data, noise, num_negatives, 100_000, rng)
    exact = signal_to_noise.closed_form(data, noise, num_negatives)
    assert abs(found.mean - exact) < 4 * found.error
    assert found.error < 0.01 * exact


def test_monte_carlo_sees_rare_classes():
    """Probabilities down to 1e-7, of which plain draws would see none."""
    data = reference.softmax(np.array([[0.0, -2.0, -8.0, -16.0, -16.0, 1.0]]))
    noise = reference.softmax(np.array([[1.0, -16.0, -3.0, -16.0, -2.0, -16.0]]))
    found = signal_to_noise.monte_carlo(data, noise, 2, 100_000, np.random.default_rng(4))
    exact = signal_to_noise.closed_form(data, noise, 2)
    assert abs(found.mean - exact) < 4 * found.error and found.error < 0.01 * exact


def test_the_ratio_is_largest_at_the_data_and_only_there():
    data, _ = tables()
    best = signal_to_noise.closed_form(data, data)
    rng = np.random.default_rng(5)
    for size in (1e-3, 1e-2, 1.0):
        for _ in range(50):
            noise = reference.softmax(np.log(data) + size * rng.normal(size=data.shape))
            assert signal_to_noise.closed_form(data, noise) > best
    path = [
        signal_to_noise.closed_form(
            data, signal_to_noise.noise_of({"noise": "mixture", "t": t}, data)
        )
        for t in np.linspace(0, 1, 6)
    ]
    assert np.all(np.diff(path) < 0) and path[-1] == pytest.approx(best)


def test_draws_follow_their_rows():
    data, _ = tables()
    rng = np.random.default_rng(1)
    x = np.repeat(np.arange(X), 20_000)
    ids, weights = signal_to_noise.draw(data, x, 2, rng)
    for row in range(X):
        own = ids[x == row].ravel()
        flat = 0.8 * data[row] + 0.2 / N
        share = np.bincount(own, minlength=N) / 40_000
        assert np.all(np.abs(share - flat) < 4 * np.sqrt(flat * (1 - flat) / 40_000))
        np.testing.assert_allclose(weights[x == row].ravel(), (data[row] / flat)[own])


def test_noise_distributions():
    data, _ = tables()
    noise = signal_to_noise.noise_of({"noise": "power", "s": 2.0}, data)
    np.testing.assert_allclose(noise, data**2 / (data**2).sum(-1, keepdims=True))
    noise = signal_to_noise.noise_of({"noise": "frequency"}, data)
    np.testing.assert_allclose(noise[1], data.mean(0))
    with pytest.raises(ValueError, match=r"`noise`.*Received"):
        signal_to_noise.noise_of({"noise": "none"}, data)


def test_run_and_page():
    methods = {"uniform": {"noise": "mixture", "t": 0.0}, "data": {"noise": "mixture", "t": 1.0}}
    config = {
        "seed": 0,
        "task": "signal_to_noise",
        "dataset": {"name": "table", "num_inputs": 3, "num_classes": 5, "sharpness": 1.0},
        "options": {"negatives": [1, 2], "samples": 2000},
        "methods": methods,
    }
    result = {}
    signal_to_noise.run(Job(config, None, result, lambda point: None))
    record = {"config": config, "status": "ok", "cell": "c", **result}
    rows = {(row["method"], row["negatives"]): row for row in page.VIEW.rows(record)}
    # At p_n = p_D: n - 1 for each input, and a KL of 0.
    best, uniform = rows["data", 1], rows["uniform", 1]
    assert (best["kl"], best["signal"]) == (pytest.approx(0, abs=1e-9), 1.0)
    assert best["closed_form"] == pytest.approx(4.0) and uniform["signal"] < 1 < len(rows)
    assert uniform["kl"] > 0
    assert abs(uniform["monte_carlo"] - uniform["closed_form"]) < 4 * uniform["error"]
