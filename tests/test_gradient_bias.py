"""The task gradient_bias on a small generated language, and its tables."""

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


def test_tables(job):
    record = {**job.result, "status": "ok", "config": job.config, "cell": "a"}
    plan = {"methods": ["full", "exp", "uniform", "rff"]}
    parts = [  # two runs on one head
        {**record, "cell": str(names), "samplers": {n: record["samplers"][n] for n in names}}
        for names in (("rff", "exp"), ("uniform",))
    ]
    head, proposals, few, many = page.tables(plan, parts)
    assert head.rows[0][0] == "full"
    assert [line[0] for line in proposals.rows] == ["exp", "uniform", "rff"]
    assert proposals.rows[0][2] == "100.00 %" and proposals.rows[1][-1] == "-"
    assert "m = 2:" in few.title and "m = 20:" in many.title
    assert few.rows[0][-1] == "3 of 3"
    record["samplers"]["uniform"]["kl"] = None  # how a record spells infinity
    assert page.tables(plan, [record])[1].rows[1][1] == "inf"


def test_tables_of_errors():
    """By hand: 2.0e-3 and 3.0e-3 have mean 2.5e-3 and interval 12.71 * 5e-4."""
    methods = {"q": {"map": "quadratic", "paper": 2e-3, "scored": "mse"}, "rff_D1024": {}}
    records = []
    for mse in (2e-3, 3e-3):
        own = {"1.0": {"mse": mse, "relative": mse / 2, "gaussian": mse / 8}}
        other = {"1.0": {"mse": 1e-3, "relative": 1e-3, "gaussian": 1e-3}}
        config = {"task": "kernel_mse", "methods": methods}
        fields = {"status": "ok", "source": "usps", "errors": {"q": own, "rff_D1024": other}}
        records.append({"config": config, **fields})
    paper, fair = kernel_page.tables({"methods": ["q", "rff_D1024"]}, records)
    assert paper.rows == [["q", "exp(o)", "2.50e-03 ± 6e-03", "2.0e-03", "1.25"]]
    assert fair.rows[0] == ["q", "2.50e-03 ± 6e-03", "1.25e-03 ± 3e-03", "2.50e+00 ± 6e+00"]
