"""The task gradient_bias on a small generated language, and its tables."""

import math

import keras
import numpy as np
import pytest
import reference

from softbench.bench.job import Job
from softbench.experiments import trained
from softbench.experiments.gradient_bias import page
from softbench.experiments.gradient_bias import run as gradient_bias
from softbench.experiments.kernel_mse import page as kernel_page

N = 40


def row(head, **kwargs):
    table = {"normalize": True, "temperature": 0.2, "use_bias": False}
    return {"head": head, "kwargs": {**table, **kwargs}}


def sampler(name, **config):
    return row("SampledSoftmax", sampler={"class_name": name, "config": config}, num_sampled=10)


METHODS = {
    "full": row("FullSoftmax"),
    "uniform": sampler("uniform"),
    "exp": sampler("exp"),
    "rff": sampler("rff", num_features=16, nu=4.0),
}


@pytest.fixture(scope="module")
def job():
    dataset = {"name": "synthetic_language", "num_classes": N, "num_train": 800}
    config = {
        "backend": keras.backend.backend(),
        "dataset": {**dataset, "num_valid": 200, "num_test": 60},
        "model": {"name": "lstm", "units": 6, "num_layers": 1, "batch_size": 4, "num_steps": 5},
        "optimizer": {"name": "adam", "learning_rate": 1e-2},
        "epochs": 1,
        "steps_per_epoch": 0,
        "seed": 0,
        "methods": METHODS,
        "task": "gradient_bias",
        "options": {"contexts": 3, "repetitions": {"2": 200, "20": 100}},
    }
    made = Job(config, None, {}, lambda point: None)
    keras.utils.set_random_seed(0)
    gradient_bias.run(made)
    return made


def test_proposals_by_their_definitions(job):
    keras.utils.set_random_seed(0)  # as a cell does, so that it is the same head
    (head,) = trained.train(job._replace(result={})).values()
    kernel, hidden = head.kernel, head.hidden
    scores = reference.scores(hidden, kernel, normalize=True, temperature=0.2)
    p = reference.softmax(scores)
    found = job.result["samplers"]["uniform"]
    assert found["kl"] == pytest.approx((p * np.log(p * N)).sum(-1).mean(), rel=1e-4)
    assert found["ess"] == pytest.approx((1 / (p**2 * N).sum(-1)).mean(), rel=1e-4)
    assert found["ratio"]["max"] == pytest.approx(np.median((p * N).max(-1)), rel=1e-3)
    assert found["negative_share"] is None
    exact = job.result["samplers"]["exp"]
    assert exact["ess"] == pytest.approx(1, abs=1e-4)
    assert exact["bias"]["2"]["worst"] < 1e-6 and exact["bias"]["2"]["inside"] == 3
    rff = job.result["samplers"]["rff"]
    assert 0 < rff["negative_share"] < 1
    for m in ("2", "20"):
        bias = rff["bias"][m]
        assert bias["lower"] < 0 < bias["upper"] and bias["worst"] > 4 * bias["error"]
    assert rff["bias"]["2"]["worst"] > rff["bias"]["20"]["worst"]


def test_the_trained_head_is_the_exact_softmax_whatever_its_name(job):
    methods = {"base": METHODS["full"], "uniform": METHODS["uniform"]}
    again = job._replace(result={}, config={**job.config, "methods": methods})
    keras.utils.set_random_seed(0)
    gradient_bias.run(again)
    assert again.result["samplers"] == {"uniform": job.result["samplers"]["uniform"]}
    alone = job._replace(config={**job.config, "methods": {"uniform": METHODS["uniform"]}})
    with pytest.raises(ValueError, match=r"`methods` must have a row of head FullSoftmax.*uniform"):
        gradient_bias.run(alone)


def test_rows(job):
    record = {**job.result, "status": "ok", "config": job.config, "cell": "a"}
    rows = {(row["method"], row["num_sampled"]): row for row in page.VIEW.rows(record)}
    assert {name for name, _ in rows} == {"full", "exp", "uniform", "rff"} & set(record["samplers"])
    row, own = rows["rff", 20], record["samplers"]["rff"]
    assert (row["kl"], row["worst"], row["inside"]) == (own["kl"], own["bias"]["20"]["worst"], 3)
    record["samplers"]["uniform"]["kl"] = None  # how a record spells infinity
    assert {r["kl"] for r in page.VIEW.rows(record) if r["method"] == "uniform"} == {math.inf}


def test_rows_of_errors():
    methods = {"q": {"map": "quadratic", "paper": 2e-3, "scored": "mse"}, "rff_D1024": {}}
    errors = {"1.0": {"mse": 2e-3, "relative": 1e-3, "gaussian": 3e-4}}
    config = {"task": "kernel_mse", "methods": methods}
    record = {"config": config, "source": "usps", "errors": dict.fromkeys(methods, errors)}
    first, second = kernel_page.VIEW.rows(record)
    assert (first["tau"], first["scored"], first["published"]) == (1.0, 2e-3, 2e-3)
    assert (second["gaussian"], second["scored"], second["published"]) == (3e-4, None, None)
