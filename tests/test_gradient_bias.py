"""The task gradient_bias on a small generated language, and its tables."""

import math

import keras
import numpy as np
import pytest
import reference
import small_runs
from small_runs import LANGUAGE, on_language, sampled_language

from softbench.experiments import trained
from softbench.experiments.gradient_bias import page
from softbench.experiments.gradient_bias import run as gradient_bias
from softbench.experiments.kernel_mse import page as kernel_page

N = 40
METHODS = {
    "base": on_language("FullSoftmax"),  # it is trained whatever its name
    "uniform": sampled_language("uniform"),
    "exp": sampled_language("exp"),
    "rff": sampled_language("rff", num_features=16, nu=4.0),
}


@pytest.fixture(scope="module")
def measured():
    """The job, and the head that it trained."""
    options = {"contexts": 3, "repetitions": {"2": 200, "20": 100}}
    job = small_runs.job(**LANGUAGE, methods=METHODS, task="gradient_bias", options=options)
    kept, train = [], trained.train
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained, "train", lambda job: kept.append(train(job)) or kept[0])
        keras.utils.set_random_seed(0)
        gradient_bias.run(job)
    return job, kept[0][1.0]


def test_proposals_by_their_definitions(measured):
    job, head = measured
    kernel, hidden = head.kernel, head.hidden
    scores = reference.scores(hidden, kernel, normalize=True, temperature=0.2)
    p = reference.softmax(scores)
    found = job.result["samplers"]["uniform"]
    assert found["kl"] == pytest.approx((p * np.log(p * N)).sum(-1).mean(), rel=1e-4)
    assert found["ess"] == pytest.approx((1 / (p**2 * N).sum(-1)).mean(), rel=1e-4)
    exact = job.result["samplers"]["exp"]
    assert exact["ess"] == pytest.approx(1, abs=1e-4)
    assert exact["bias"]["2"]["worst"] < 1e-6 and exact["bias"]["2"]["inside"] == 3
    rff = job.result["samplers"]["rff"]
    for m in ("2", "20"):
        bias = rff["bias"][m]
        assert bias["lower"] < 0 < bias["upper"] and bias["worst"] > 4 * bias["error"]
    assert rff["bias"]["2"]["worst"] > rff["bias"]["20"]["worst"]


def test_the_trained_head_is_the_exact_softmax(measured):
    job, _ = measured
    assert set(job.result["samplers"]) == {"uniform", "exp", "rff"}
    alone = job._replace(config={**job.config, "methods": {"uniform": METHODS["uniform"]}})
    with pytest.raises(ValueError, match=r"`methods` must have a row of head FullSoftmax.*uniform"):
        gradient_bias.run(alone)


def test_rows(measured):
    job, _ = measured
    record = {**job.result, "status": "ok", "config": job.config, "cell": "a"}
    rows = {(row["method"], row["num_sampled"]): row for row in page.VIEW.rows(record)}
    assert {name for name, _ in rows} == {"exp", "uniform", "rff"}
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
