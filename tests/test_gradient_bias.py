"""The task gradient_bias on a small generated language, and its tables."""

import math

import keras
import numpy as np
import pytest
import reference
from small_runs import LANGUAGE, job, on_language, sampled_language

from softbench.experiments import trained
from softbench.experiments.gradient_bias import page
from softbench.experiments.gradient_bias import run as gradient_bias
from softbench.experiments.kernel_mse import page as kernel_page

N = 40


METHODS = {
    "full": on_language("FullSoftmax"),
    "uniform": sampled_language("uniform"),
    "exp": sampled_language("exp"),
    "rff": sampled_language("rff", num_features=16, nu=4.0),
}


@pytest.fixture(scope="module")
def bias():
    """A finished job."""
    options = {"contexts": 3, "repetitions": {"2": 200, "20": 100}}
    made = job(task="gradient_bias", methods=METHODS, options=options, **LANGUAGE)
    keras.utils.set_random_seed(0)
    gradient_bias.run(made)
    return made


def test_proposals_by_their_definitions(bias):
    keras.utils.set_random_seed(0)  # as a cell does, so that it is the same head
    (head,) = trained.train(bias._replace(result={})).values()
    kernel, hidden = head.kernel, head.hidden
    scores = reference.scores(hidden, kernel, normalize=True, temperature=0.2)
    p = reference.softmax(scores)
    found = bias.result["samplers"]["uniform"]
    assert found["kl"] == pytest.approx((p * np.log(p * N)).sum(-1).mean(), rel=1e-4)
    assert found["ess"] == pytest.approx((1 / (p**2 * N).sum(-1)).mean(), rel=1e-4)
    assert found["ratio"]["max"] == pytest.approx(np.median((p * N).max(-1)), rel=1e-3)
    assert found["negative_share"] is None
    exact = bias.result["samplers"]["exp"]
    assert exact["ess"] == pytest.approx(1, abs=1e-4)
    assert exact["bias"]["2"]["worst"] < 1e-6 and exact["bias"]["2"]["inside"] == 3
    rff = bias.result["samplers"]["rff"]
    assert 0 < rff["negative_share"] < 1
    for m in ("2", "20"):
        found = rff["bias"][m]
        assert found["lower"] < 0 < found["upper"] and found["worst"] > 4 * found["error"]
    assert rff["bias"]["2"]["worst"] > rff["bias"]["20"]["worst"]


def test_the_trained_head_is_the_exact_softmax_whatever_its_name(bias):
    methods = {"base": METHODS["full"], "uniform": METHODS["uniform"]}
    again = bias._replace(result={}, config={**bias.config, "methods": methods})
    keras.utils.set_random_seed(0)
    gradient_bias.run(again)
    assert again.result["samplers"] == {"uniform": bias.result["samplers"]["uniform"]}
    alone = bias._replace(config={**bias.config, "methods": {"uniform": METHODS["uniform"]}})
    with pytest.raises(ValueError, match=r"`methods` must have a row of head FullSoftmax.*uniform"):
        gradient_bias.run(alone)


def test_rows(bias):
    record = {**bias.result, "status": "ok", "config": bias.config, "cell": "a"}
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
