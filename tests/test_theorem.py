"""Theorem 1's bias against the exact expectation over all draws, and its bounds term by term."""

import itertools

import numpy as np
import pytest

from softbench.experiments.gradient_bias import theorem

LOGITS = np.array([0.3, -1.0, 1.2, 0.1])
LABEL = 1
PROPOSALS = {
    "skewed": np.array([0.2, 0.0, 0.3, 0.5]),
    "uniform": np.array([1, 0, 1, 1]) / 3,
    "softmax": np.exp(LOGITS) * [1, 0, 1, 1] / (np.exp(LOGITS) * [1, 0, 1, 1]).sum(),
}


def exact_bias(q, m):
    """E of eq. 8 over all n^m draws, by enumeration, less the full gradient."""
    mass = np.exp(LOGITS)
    expected = np.zeros(4)
    for draws in itertools.product(range(4), repeat=m):
        probability = np.prod(q[list(draws)])
        if probability == 0:
            continue
        weights = np.zeros(4)
        weights[LABEL] = mass[LABEL]
        for i in draws:
            weights[i] += mass[i] / (m * q[i])
        expected += probability * weights / weights.sum()
    return expected - mass / mass.sum()


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("name", PROPOSALS)
def test_measured_bias_is_the_exact_one(name, m):
    q = PROPOSALS[name]
    found = theorem.bias(LOGITS, q, LABEL, m, 20_000, np.random.default_rng(0))
    exact = exact_bias(q, m)
    off = np.abs(found.mean - exact)
    assert np.all(off <= 4.5 * found.error + 1e-9)  # 36 numbers
    assert found.error.max() < 0.005
    if name == "softmax":
        np.testing.assert_allclose(exact[LABEL], 0, atol=1e-12)


def test_bounds_are_those_of_the_paper():
    q, m, t = PROPOSALS["skewed"], 3, LABEL
    e = np.exp(LOGITS)
    others = [k for k in range(4) if k != t]
    z, z_t = e.sum(), sum(e[k] for k in others)
    second = sum(e[k] ** 2 / q[k] for k in others)
    lower = -sum(e[k] * abs(z_t - e[k] / q[k]) for k in others) / (m * z**2)
    spread = max(abs(e[i] / q[i] - e[j] / q[j]) for i in others for j in others)
    upper = (second - z_t**2) / (m * z**3) * e + 2 / m * spread * z_t / (z**2 + second)
    found = theorem.bounds(LOGITS, q, t, m)
    assert found.lower == pytest.approx(lower)
    np.testing.assert_allclose(found.upper, upper)


def test_bounds_vanish_for_the_softmax_and_hold_for_many_draws():
    found = theorem.bounds(LOGITS, PROPOSALS["softmax"], LABEL, 5)
    assert found.lower == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(found.upper, 0, atol=1e-12)
    exact, found = (
        exact_bias(PROPOSALS["skewed"], 6),
        theorem.bounds(LOGITS, PROPOSALS["skewed"], LABEL, 6),
    )
    assert np.all(found.lower <= exact) and np.all(exact <= found.upper)
