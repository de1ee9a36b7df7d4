"""The bounds of Stratos' note: identities by enumeration, and a run."""

import itertools
import math

import numpy as np
import pytest

from softbench.bench.job import Job
from softbench.experiments.mutual_information import joints
from softbench.experiments.mutual_information import page as report_information
from softbench.experiments.mutual_information import run as mutual_information

JOINTS = {"table": joints.Table(5, 4, 2.0, 0.05, 0), "gaussian": joints.Gaussian(2, 0.7)}


def small_table():
    """p(y|x) of the small table, and p(y), x uniform."""
    given = JOINTS["table"].conditional
    return given, given.mean(0)


def ref_global_bound(given, marginal, n):
    """log N - H(I | X Y^N), the expectation over all candidates written out."""
    ratio, total = given / marginal, 0.0
    for x in range(len(given)):
        for y in itertools.product(range(given.shape[1]), repeat=n):
            p = given[x, y[0]] * math.prod(marginal[k] for k in y[1:]) / len(given)
            total += p * math.log(n * ratio[x, y[0]] / sum(ratio[x, k] for k in y))
    return total


def ref_local_loss(given, marginal, n):
    """H(A^N | X Y^N) by eq. 4."""
    head = given / (given + (n - 1) * marginal)
    positive = -(given * np.log(head)).sum(-1).mean()
    return positive - (n - 1) * (marginal * np.log(1 - head)).sum(-1).mean()


def test_information_of_the_table_by_summation():
    given, marginal = small_table()
    joint = given / len(given)
    expected = (joint * np.log(joint / (marginal / len(given)))).sum()
    np.testing.assert_allclose(JOINTS["table"].information, expected, rtol=1e-12)


def test_information_and_optimum_of_the_gaussian():
    """At a point, against the densities of SciPy; the mean of the optimum over p(x, y) is I."""
    from scipy.stats import multivariate_normal, norm

    joint = JOINTS["gaussian"]
    np.testing.assert_allclose(joint.information, -math.log(1 - 0.7**2), rtol=1e-12)
    x, y = joint.sample(np.random.default_rng(0), 200_000, 1)
    scores = joint.scores(joint.optimum, x, y)[:, 0]
    assert abs(scores.mean() - joint.information) < 4 * scores.std() / math.sqrt(len(scores))
    pair = multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]])
    a, b = x[0, 1:3], y[0, 0, 1:3]
    each = [pair.logpdf(point) - norm.logpdf(point).sum() for point in zip(a, b, strict=True)]
    np.testing.assert_allclose(scores[0], sum(each), rtol=1e-9)
    np.testing.assert_allclose(joint.log_noise(y)[0, 0], norm.logpdf(b).sum(), rtol=1e-12)


@pytest.mark.parametrize("candidates", [2, 5, 40])
def test_local_optimum_is_equation_4_and_the_jsd(candidates):
    given, marginal = small_table()
    found = JOINTS["table"].local_optimum(candidates)
    np.testing.assert_allclose(found, ref_local_loss(given, marginal, candidates), rtol=1e-12)
    if candidates == 2:
        middle = (given + marginal) / 2
        halves = given * np.log(given / middle) + marginal * np.log(marginal / middle)
        jsd = 0.5 * halves.sum(-1).mean()
        np.testing.assert_allclose(found, math.log(4) - 2 * jsd, rtol=1e-12)


@pytest.mark.parametrize("candidates", [2, 4])
def test_measured_losses_of_the_optimum_are_the_exact_ones(candidates):
    """Within 4 standard errors of enumeration."""
    given, marginal = small_table()
    joint, rng = JOINTS["table"], np.random.default_rng(1)
    found = mutual_information.measure(joint, joint.optimum, candidates, 40_000, rng)
    bound = ref_global_bound(given, marginal, candidates)
    assert abs(found["bound"] - bound) < 4 * found["bound_error"]
    loss = ref_local_loss(given, marginal, candidates)
    assert abs(found["local"] - loss) < 4 * found["local_error"]
    assert 0 < found["bound_error"] < 0.01 and found["critic_rms"] == 0


@pytest.mark.parametrize("name", list(JOINTS))
def test_no_critic_is_above_the_information(name):
    """Weights that are no optimum of anything: Corollary 1.2 holds for every critic."""
    joint, rng = JOINTS[name], np.random.default_rng(2)
    weights = joint.optimum + 0.3 * rng.normal(size=joint.optimum.shape)
    for candidates in (2, 32):
        found = mutual_information.measure(joint, weights, candidates, 5_000, rng)
        ceiling = min(joint.information, math.log(candidates))
        assert found["bound"] < ceiling + 4 * found["bound_error"]


@pytest.mark.parametrize("objective", ["ranking", "binary"])
@pytest.mark.parametrize("name", list(JOINTS))
def test_gradient_of_the_critic_by_differences(name, objective):
    joint, rng = JOINTS[name], np.random.default_rng(3)
    x, y = joint.sample(rng, 50, 6)
    weights = 0.1 * rng.normal(size=joint.optimum.shape)
    found = mutual_information._losses(objective, joint, weights, x, y)
    pulled = joint.pull(x, y, found.gradient)
    place = np.unravel_index(np.argmax(np.abs(pulled)), pulled.shape)
    step = np.zeros_like(weights)
    step[place] = 1e-2
    above, below = (
        mutual_information._losses(objective, joint, weights + sign * step, x, y).losses.sum()
        for sign in (1, -1)
    )
    assert found.losses.shape == (50,)
    np.testing.assert_allclose(pulled[place], (above - below) / 2e-2, rtol=5e-3)


@pytest.mark.parametrize("name", list(JOINTS))
def test_local_nce_finds_its_optimum(name):
    """log p(y|x) / p(y), constants in x included, which global NCE leaves open."""
    joint = JOINTS[name]
    weights, steps = mutual_information.train(joint, "binary", 8, 4_000, np.random.default_rng(4))
    found = mutual_information.measure(joint, weights, 8, 4_000, np.random.default_rng(5))
    assert steps > 5 and found["critic_rms"] < 0.2
    if name == "table":
        recovery = joint.recovery(weights)
        assert recovery["kl"] < 0.02
        np.testing.assert_allclose(recovery["partition"], 1, atol=0.05)


def test_run_fills_the_record_and_the_rows():
    config = {
        "task": "mutual_information",
        "backend": "jax",
        "seed": 0,
        "dataset": {"name": "table", "num_inputs": 4, "num_classes": 3, "sharpness": 1.0}
        | {"uniform": 0.1},
        "model": {"name": "critic"},
        "methods": {
            "optimal": {"critic": "optimal"},
            "binary": {"critic": "trained", "objective": "binary"},
        },
        "options": {"candidates": [2, 4], "samples": 500, "train_samples": 200},
    }
    result = {}
    mutual_information.run(Job(config, None, result, lambda point: None))
    assert set(result["critics"]["binary"]) == {"2", "4"}
    record = {"cell": "c", "config": config, "seed": 0, "status": "ok", **result}
    rows = {(r["method"], r["candidates"]): r for r in report_information.VIEW.rows(record)}
    assert set(rows) == {(m, n) for m in ("optimal", "binary") for n in (2, 4)}
    row, own = rows["binary", 4], result["critics"]["binary"]["4"]
    assert row["ceiling"] == math.log(4) and row["information"] == result["mutual_information"]
    assert (row["bound"], row["local"], row["recovered_kl"]) == (
        own["bound"],
        own["local"],
        own["kl"],
    )
    assert row["least"] == result["local_optimum"]["4"]


def test_unknown_distribution_is_named():
    with pytest.raises(ValueError, match=r"must be table or gaussian\. Received: 'x'"):
        joints.build({"name": "x"}, 0)
