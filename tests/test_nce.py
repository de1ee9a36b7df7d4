"""Exact NCE: objectives, gradients, asymptotic covariances and pages, against NumPy by hand."""

import itertools

import keras
import numpy as np
import pytest
import reference
from scipy import optimize

from softbench.bench.job import Job, NotFinite
from softbench.experiments import library
from softbench.experiments.nce import asymptotics, objectives
from softbench.experiments.nce_efficiency import page as efficiency_page
from softbench.experiments.nce_efficiency import run as nce_efficiency
from softbench.experiments.nce_simulation import page as simulation_page
from softbench.experiments.nce_simulation import run as nce_simulation

X, Y = 3, 4
K = 5
METHODS = {
    "mle": {"objective": "likelihood"},
    "ranking": {"objective": "ranking"},
    "binary": {"objective": "binary", "bias": "input"},
    "binary_without_b_x": {"objective": "binary", "bias": "shared"},
}
DATASET = {
    "name": "mixtures",
    "num_classes": 5,
    "dim": 2,
    "components": 2,
    "centre": 0.5,
    "spread": 0.5,
    "noise": "uniform",
}


@pytest.fixture
def setting(rng):
    """p(y|x), p_N, data with draws, and a random table of scores."""
    conditional, noise = rng.dirichlet(np.full(Y, 3.0), X), rng.dirichlet(np.full(Y, 5.0))
    sample = objectives.draw(conditional, noise, 200, K, rng)
    return conditional, noise, sample, rng.normal(size=(X, Y))


def objective_of(name, setting):
    _, noise, sample, _ = setting
    return objectives.objective(name, sample, np.log(noise))


def written_out(name, setting, table):
    """The objective of figure 1, point by point."""
    _, noise, sample, _ = setting
    rows = table[sample.inputs]
    each = np.arange(len(rows))
    true, sampled = rows[each, sample.classes], rows[each[:, None], sample.noise]
    if name == "likelihood":
        return np.mean(reference.negative_log_likelihood(rows, sample.classes))
    loss = {"ranking": reference.nce_ranking, "binary": reference.nce_binary}[name]
    return np.mean(loss(true, sampled, noise[sample.classes], noise[sample.noise]))


@pytest.mark.parametrize("name", ["likelihood", "ranking", "binary"])
def test_objective_is_that_of_figure_1_and_its_gradient_that_of_differences(name, setting):
    table, objective = setting[-1], objective_of(name, setting)
    value, gradient = objective(table)
    np.testing.assert_allclose(value, written_out(name, setting, table), rtol=1e-12)
    numeric = optimize.approx_fprime(
        table.ravel(), lambda v: written_out(name, setting, v.reshape(X, Y)), 1e-6
    )
    np.testing.assert_allclose(gradient.ravel(), numeric, atol=2e-6)


@pytest.mark.parametrize("num_noise", [1, 2, 3, 4, 9])
def test_ranking_with_fewer_and_with_more_draws_than_classes(num_noise, setting):
    conditional, noise, _, table = setting
    sample = objectives.draw(conditional, noise, 50, num_noise, np.random.default_rng(3))
    value, _ = objectives.ranking(sample, np.log(noise))(table)
    expected = written_out("ranking", (conditional, noise, sample, table), table)
    np.testing.assert_allclose(value, expected, rtol=1e-12)


def library_objective(kind, sample, log_noise):
    """The library's objective of a table (X, Y), mean over the points, with its gradient."""
    x, num_noise = sample.inputs[:, None], sample.noise.shape[1]
    ids = np.concatenate([sample.classes[:, None], sample.noise], axis=-1)
    counts = log_noise[ids] + np.log(num_noise)

    def objective(table):
        evaluated = library.evaluate(library.NCE[kind], table[x, ids], counts, keras.ops.mean)
        gradient = np.zeros(table.shape)
        np.add.at(gradient, (x, ids), evaluated.gradient)
        return evaluated.total, gradient

    return objective


@pytest.mark.parametrize("name", ["ranking", "binary"])
@pytest.mark.parametrize("seed", range(3))
def test_objective_is_the_librarys(name, seed, setting):
    """Value and gradient, to float32, at random points."""
    _, noise, sample, _ = setting
    table = np.random.default_rng(seed).normal(0, 2, (X, Y))
    value, gradient = objective_of(name, setting)(table)
    found, by_autodiff = library_objective(name, sample, np.log(noise))(table)
    np.testing.assert_allclose(value, found, rtol=1e-5)
    np.testing.assert_allclose(gradient, by_autodiff, atol=1e-6)
    assert np.abs(gradient).max() > 1e-2


def test_draws_follow_their_distributions(setting):
    conditional, noise, _, _ = setting
    sample = objectives.draw(conditional, noise, 60_000, 2, np.random.default_rng(0))
    expected = conditional / X
    share = objectives.positives(sample) / 60_000
    assert np.all(np.abs(share - expected) < 4 * np.sqrt(expected / 60_000))
    expected = np.broadcast_to(noise / X, (X, Y))
    share = objectives.negatives(sample) / 120_000
    assert np.all(np.abs(share - expected) < 4 * np.sqrt(2 * expected / 60_000))


def test_minimum_of_the_likelihood_is_the_frequency(setting):
    """With a parameter for each cell the softmax of the scores is the share of each class."""
    counts = objectives.positives(setting[2])
    fit = objectives.minimise(objectives.likelihood(counts), np.eye(X * Y), np.zeros((X, Y)))
    assert fit.converged
    found = reference.softmax(fit.parameters.reshape(X, Y))
    np.testing.assert_allclose(found, counts / counts.sum(-1, keepdims=True), atol=1e-6)


def test_separable_data_have_no_minimum():
    """One class for each input: the scores grow for ever."""
    counts = np.diag([10.0, 20.0, 30.0])
    fit = objectives.minimise(objectives.likelihood(counts), np.eye(9), np.zeros((3, 3)))
    assert not fit.converged


def test_divergences(setting):
    conditional, _, _, table = setting
    model = reference.softmax(table)
    expected = np.mean(np.sum(conditional * np.log(conditional / model), -1))
    np.testing.assert_allclose(objectives.divergence(conditional, table), expected)
    np.testing.assert_allclose(
        objectives.unnormalised_divergence(conditional, np.log(model)), expected, rtol=1e-9
    )
    doubled = objectives.unnormalised_divergence(conditional, np.log(2 * conditional))
    np.testing.assert_allclose(doubled, 1 - np.log(2))


@pytest.fixture
def model(rng):
    """Features (X Y, 2), theta, p(y|x), p_N; scores are log p, as binary NCE needs."""
    design, theta = rng.normal(size=(X * Y, 2)), rng.normal(size=2)
    conditional = reference.softmax((design @ theta).reshape(X, Y))
    return design, theta, conditional, rng.dirichlet(np.full(Y, 5.0))


def hessian(function, point, step=1e-4):
    """By central differences."""
    size = len(point)
    found = np.zeros((size, size))
    for i, j in itertools.product(range(size), repeat=2):
        a, b = step * np.eye(size)[i], step * np.eye(size)[j]
        found[i, j] = (
            function(point + a + b)
            - function(point + a - b)
            - function(point - a + b)
            + function(point - a - b)
        ) / (4 * step**2)
    return found


def test_fisher_information_is_the_hessian(model):
    design, theta, conditional, _ = model

    def expected_loss(v):
        return -np.mean(
            np.sum(conditional * np.log(reference.softmax((design @ v).reshape(X, Y))), -1)
        )

    found = asymptotics.fisher(design, conditional)
    np.testing.assert_allclose(found, hessian(expected_loss, theta), atol=1e-6)


def every_set(conditional, noise, num_noise):
    """Each x, y and K draws, with their probability."""
    for x, y, *draws in np.ndindex(X, *[Y] * (num_noise + 1)):
        yield conditional[x, y] / X * np.prod(noise[list(draws)]), x, y, np.array(draws)


@pytest.mark.parametrize("num_noise", [1, 3])
def test_ranking_information_by_enumeration(model, num_noise):
    """Hessian of the expected objective and variance of its gradient: both are I_{R,K}."""
    design, theta, conditional, noise = model
    features = design.reshape(X, Y, 2)
    variance, curvature = np.zeros((2, 2)), np.zeros((2, 2))
    for p, x, y, draws in every_set(conditional, noise, num_noise):
        ids = np.array([y, *draws])
        q = reference.softmax((features[x, ids] @ theta - np.log(noise[ids]))[None])[0]
        gradient = features[x, y] - q @ features[x, ids]
        variance += p * np.outer(gradient, gradient)
        centred = features[x, ids] - q @ features[x, ids]
        curvature += p * (centred.T * q) @ centred
    found = asymptotics.ranking_information(design, conditional, noise, num_noise)
    np.testing.assert_allclose(found, variance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, curvature, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("num_noise", [1, 3])
def test_binary_covariance_by_enumeration(model, num_noise):
    """H^-1 Var H^-1 from the gradient of every possible set, gamma included."""
    design, _, conditional, noise = model  # log p itself is the score of a self-normalised model
    with_gamma = np.concatenate([design, -np.ones((X * Y, 1))], axis=-1)
    features = with_gamma.reshape(X, Y, 3)
    odds = conditional / (num_noise * noise)
    sigma = odds / (1 + odds)
    variance, curvature = np.zeros((3, 3)), np.zeros((3, 3))
    for p, x, y, draws in every_set(conditional, noise, num_noise):
        gradient = (1 - sigma[x, y]) * features[x, y]
        for j in draws:
            gradient = gradient - sigma[x, j] * features[x, j]
        variance += p * np.outer(gradient, gradient)
        for j in (y, *draws):
            slope = sigma[x, j] * (1 - sigma[x, j])
            curvature += p * slope * np.outer(features[x, j], features[x, j])
    inverse = np.linalg.inv(curvature)
    found = asymptotics.binary_covariance(with_gamma, conditional, noise, num_noise)
    np.testing.assert_allclose(found, inverse @ variance @ inverse, rtol=1e-9)


def test_noise_like_the_data_costs_a_factor_1_plus_1_over_k():
    """p_N = p(y|x): I_{R,K} = K / (K + 1) I."""
    conditional = np.tile(np.random.default_rng(0).dirichlet(np.full(Y, 2.0)), (X, 1))
    design = np.random.default_rng(1).normal(size=(X * Y, 2))
    for k in (1, 8):
        found = asymptotics.ranking_information(design, conditional, conditional[0], k)
        np.testing.assert_allclose(
            found, k / (k + 1) * asymptotics.fisher(design, conditional), rtol=1e-9
        )


def efficiency_model(name, num_inputs):
    return nce_efficiency.make_model(
        {
            "model": name,
            "num_classes": 4,
            "num_inputs": num_inputs,
            "dim": 3,
            "scale": 1.0,
            "noise": [4, 3, 2, 1],
            "problem_seed": 0,
        }
    )


def test_log_partition_of_the_models():
    """Constant in x: at every theta of the cyclic model, at theta* alone of the other."""
    for name, num_inputs, everywhere in (("cyclic", 4, True), ("offset", 8, False)):
        model = efficiency_model(name, num_inputs)
        assert np.ptp(np.log(np.exp(model.scores).sum(-1))) < 1e-12
        other = model._replace(truth=model.truth + np.array([0.3, -0.2, 0.5]))
        assert (np.ptp(np.log(np.exp(other.scores).sum(-1))) < 1e-12) == everywhere
    with pytest.raises(ValueError, match=r"cyclic model needs.*Received: 5, 4, 3"):
        efficiency_model("cyclic", 5)
    with pytest.raises(ValueError, match=r"`model` must be.*Received: 'none'"):
        efficiency_model("none", 4)


@pytest.mark.parametrize(("name", "num_inputs"), [("cyclic", 4), ("offset", 8)])
def test_exact_values_tend_to_their_limits(name, num_inputs):
    """Both are the Fisher limit in the cyclic model; binary NCE is below it in the other."""
    model = efficiency_model(name, num_inputs)
    methods = {"mle": METHODS["mle"], "ranking": METHODS["ranking"], "binary": METHODS["binary"]}
    exact = nce_efficiency.exact(model, methods, [1, 64])
    at_64 = {m: exact["methods"][m]["64"] for m in ("ranking", "binary")}
    for method, value in at_64.items():
        limit = exact["limits"][method]
        assert limit < value < 1.04 * limit < exact["methods"][method]["1"]
    assert exact["limits"]["ranking"] == exact["fisher"]
    if name == "cyclic":
        assert exact["limits"]["binary"] == pytest.approx(exact["fisher"], rel=1e-9)
    else:
        assert exact["limits"]["binary"] < 0.6 * exact["fisher"]
    with_gamma = np.concatenate([model.design, -np.ones((len(model.design), 1))], axis=-1)
    far = asymptotics.binary_covariance(with_gamma, model.conditional, model.noise, 10**7)
    assert np.trace(far[:3, :3]) / 3 == pytest.approx(exact["limits"]["binary"], rel=1e-5)


def test_summary_by_hand():
    thetas = {"mle": {"-": [[1.0, 0.0], [0.0, 0.0]]}, "ranking": {"2": [[1.0, 2.0], [0.0, 1.0]]}}
    found = nce_efficiency.summary(thetas, np.array([1.0, 0.0]), 10, "mle")["ranking"]["2"]
    # N / d = 5; errors 4 and 2, those of the MLE 0 and 1; distances 4 and 1.
    assert (found["mean"], found["gap"], found["distance"]) == (15.0, 12.5, 12.5)
    assert found["mean_error"] == pytest.approx(5.0) and found["gap_error"] == pytest.approx(7.5)


def simulation_config(num_inputs, methods, **options):
    return {
        "seed": 0,
        "task": "nce_simulation",
        "dataset": DATASET | {"num_inputs": num_inputs},
        "model": {"name": "linear"},
        "options": options,
        "methods": {name: METHODS[name] for name in methods},
    }


def record_of(task, config, seed):
    config, result = config | {"seed": seed}, {}
    task.run(Job(config, None, result, lambda point: None))
    return {"config": config, "status": "ok", "cell": f"c{seed}", "seed": seed, **result}


def test_simulation_and_its_rows():
    first = simulation_config([6], ["mle", "ranking", "binary"], sizes=[500, 4000], negatives=[2])
    second = simulation_config([5, 10], METHODS, sizes=[2000], negatives=[4])
    records = [record_of(nce_simulation, c, seed) for c in (first, second) for seed in (0, 1)]
    rows = list(simulation_page.VIEW.rows(records[0]))
    assert [(r["size"], r["method"], r["negatives"]) for r in rows] == [
        (size, *method) for size in (500, 4000) for method in
        (("mle", None), ("ranking", 2), ("binary", 2))
    ]  # fmt: skip
    kl = records[0]["inputs"]["6"]["kl"]["4000"]
    assert rows[4]["kl_to_truth"] == rows[4]["kl_over_mle"] * kl["mle"]["-"] == kl["ranking"]["2"]
    rows = {(r["inputs"], r["method"]): r for r in simulation_page.VIEW.rows(records[2])}
    free = records[2]["inputs"]["10"]["unnormalised"]["2000"]["binary"]["4"]
    assert rows[10, "binary"]["unnormalised"] == free


def test_no_minimum_is_said():
    """Fewer points than classes: no method has a minimum, and none has a number."""
    config = simulation_config([6], ["mle", "ranking"], sizes=[3], negatives=[1])
    record = record_of(nce_simulation, config, 0)
    assert record["inputs"]["6"]["kl"]["3"] == {"mle": {"-": None}, "ranking": {"1": None}}
    assert [row["kl_to_truth"] for row in simulation_page.VIEW.rows(record)] == [None, None]


def test_the_first_inputs_stay_the_same():
    small, large = (nce_simulation.make_problem(DATASET, size, 1) for size in (3, 8))
    np.testing.assert_array_equal(small.inputs, large.inputs[:3])
    np.testing.assert_array_equal(small.parameters, large.parameters)
    marginal = nce_simulation.make_problem(DATASET | {"noise": "marginal"}, 8, 1)
    np.testing.assert_allclose(marginal.noise, marginal.conditional.mean(0))
    with pytest.raises(ValueError, match=r"`noise` must be.*Received: 'none'"):
        nce_simulation.make_problem(DATASET | {"noise": "none"}, 3, 1)


def test_efficiency_and_its_rows():
    methods = {n: METHODS[n] for n in ("mle", "ranking")} | {"binary": {"objective": "binary"}}
    dataset = {"model": "cyclic", "num_inputs": 4, "num_classes": 4, "dim": 3, "scale": 1.0}
    dataset |= {"name": "nce", "label": "cyclic", "noise": [4, 3, 2, 1], "problem_seed": 0}
    base = {"task": "nce_efficiency", "model": {"name": "exact"}, "methods": methods}
    options = {"size": 1000, "data_sets": 5, "negatives": [1, 4, 16]}
    config = base | {"dataset": dataset, "options": options}
    records = [record_of(nce_efficiency, config, seed) for seed in (0, 1)]
    example = {"name": "nce", "label": "counterexample", "model": "counterexample"}
    options = {"sizes": [100, 20_000], "negatives": [2]}
    config = base | {"dataset": example, "options": options}
    records += [record_of(nce_efficiency, config, seed) for seed in (0, 1)]
    found = {}
    for record in records[2:]:
        for row in efficiency_page.VIEW.rows(record):
            if row["size"] == 20_000:
                found.setdefault(row["method"], []).append(row["estimate"])
    expected = {"mle": 1 / 3, "ranking": 1 / 3, "binary": 3 / 7}
    assert {name: np.mean(v) for name, v in found.items()} == pytest.approx(expected, abs=0.03)
    rows = list(efficiency_page.VIEW.rows(records[0]))
    assert len(rows) == 7
    for row in rows:
        measured = records[0]["measured"][row["method"]]
        own = measured[str(row["negatives"]) if row["negatives"] else "-"]
        assert (row["msd"], row["distance"]) == (own["mean"], own["distance"])
        assert row["fisher"] == records[0]["exact"]["fisher"]


def test_a_data_set_without_a_minimum_ends_the_cell():
    """One point, at x_1 with this seed: one of its classes is never seen."""
    config = {
        "seed": 2,
        "methods": {"mle": METHODS["mle"]},
        "dataset": {"model": "counterexample"},
        "options": {"sizes": [1], "negatives": [1]},
    }
    with pytest.raises(NotFinite, match="no minimum at N = 1"):
        nce_efficiency.run(Job(config, None, {}, lambda point: None))
