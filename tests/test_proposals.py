"""The task proposals on a small generated language, and its tables."""

import copy
import math

import numpy as np
import pytest
import reference
import small_runs
from scipy import stats
from small_runs import LANGUAGE, on_language, sampled_language

from softbench.bench.methods import one_tail
from softbench.bench.training import run as train
from softbench.bench.training.problems import load
from softbench.experiments import trained
from softbench.experiments.proposals import page
from softbench.experiments.proposals import run as proposals

N, M = 40, 10
pytestmark = pytest.mark.thorough


FIT = {"counts": "equal", "refresh_every": 5}
METHODS = {
    "full": on_language("FullSoftmax"),
    "uniform": sampled_language("uniform"),
    "shared": sampled_language("uniform", share_draws=True),
    # A codeword for each class: the softmax itself, of the table that it was fitted to.
    "codebook": sampled_language("codebook", num_codewords=N, quantizer="single", **FIT),
}
TOP_AND_TAIL = sampled_language(
    "top_and_tail", num_top=4, share_draws=2, tail=one_tail("train + 1"), counts="train + 1"
)


def make_job(**fields):
    timing = {"rounds": 1, "block": 2, "max_seconds": 1.0}
    options = {"fractions": [0.5, 1.0], "timing": timing}
    fields = {"methods": METHODS, **fields}
    return small_runs.job(task="proposals", options=options, **LANGUAGE, **fields)


@pytest.fixture(scope="module")
def job():
    made = make_job()
    proposals.run(made)
    return made


@pytest.fixture(scope="module")
def heads(job):
    return trained.train(job._replace(result={}), [0.5, 1.0])


def model(head):
    return reference.softmax(reference.scores(head.hidden, head.kernel, None, True, 0.2))


def point(job, name, fraction):
    points = job.result["samplers"][name]["points"]
    return next(point for point in points if point["fraction"] == fraction)


def test_proposals_by_their_definitions(job, heads):
    buckets = reference.ref_class_buckets(heads[1.0].counts)
    for fraction, head in heads.items():
        p, hidden = model(head), head.hidden.astype(float)
        labels = np.eye(N)[head.labels]
        square = (((p - labels).T @ hidden) ** 2).sum(-1)
        expected = {
            "uniform": (p**2).T @ (hidden**2).sum(-1) * (N - 1) / M / square,
            "shared": ((p.T @ hidden) ** 2).sum(-1) * (N - 1) / M / square,
        }
        for name, rows in expected.items():
            found = point(job, name, fraction)
            assert found["kl"] == pytest.approx((p * np.log(p * N)).sum(-1).mean(), rel=1e-4)
            assert found["ess"] == pytest.approx((1 / (p**2 * N).sum(-1)).mean(), rel=1e-4)
            rv = ((p**2 * N).sum(-1) - 1) / M
            assert found["rv"] == pytest.approx(rv.mean(), rel=1e-3)
            assert found["rv_median"] == pytest.approx(np.median(rv), rel=1e-3)
            assert found["row_rv"]["median"] == pytest.approx(np.median(rows), rel=1e-3)
            for bucket, part in enumerate(("head", "torso", "tail")):
                own = rows[np.asarray(buckets) == bucket]
                median = found["row_rv"][f"median_{part}"]
                assert median == pytest.approx(np.median(own), rel=1e-3)


def test_a_codeword_for_each_class_is_the_softmax(job, heads):
    for fraction in heads:
        assert point(job, "codebook", fraction)["ess"] == pytest.approx(1, abs=1e-3)


def test_draws_and_their_time(job):
    batch = job.result["batch"]
    draws = {name: found["draws"] for name, found in job.result["samplers"].items()}
    every = dict.fromkeys(("uniform", "codebook"), batch * M)
    assert draws == {**every, "shared": M}
    for found in job.result["samplers"].values():
        assert found["draw_ms"]["median"] > 0 and found["draw_ms"]["count"] == 2


def test_draws_of_several_blocks_are_added_up(heads):
    """The certain classes of both groups, and the tail that they share."""
    point = proposals._labelled(heads[1.0])
    step, gathered = proposals.draw_step(trained.head(TOP_AND_TAIL, point, 0), point)
    step.wait(step.run())
    assert gathered == [2 * 4 + M]


def test_all_points_are_of_one_run(job, heads):
    """The first as if the run had been stopped there."""
    half = trained.train(make_job(steps_per_epoch=20))[1.0]
    for a, b in zip(half, heads[0.5], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    perplexity = [head["valid_perplexity"] for head in job.result["heads"]]
    expected = np.exp([float(half[-1]), float(heads[1.0][-1])])
    np.testing.assert_allclose(perplexity, expected, rtol=1e-5)


def test_fractions_that_are_wrong(job):
    for wrong in ([], [0.0], [1.5]):
        with pytest.raises(ValueError, match=r"`fractions` must be in \(0, 1\]. Received"):
            trained.train(job, wrong)


def test_rows(job):
    record = {**copy.deepcopy(job.result), "status": "ok", "config": job.config, "cell": "a"}
    samplers, rows = record["samplers"], list(page.VIEW.rows(record))
    reached = {name: samplers[name]["valid_perplexity"] for name in samplers}
    last = [row for row in rows if row["fraction"] == 1 and "kl" in row]
    assert {row["method"]: row["reached"] for row in last} == reached
    full = record["heads"][-1]["valid_perplexity"]
    assert last[0]["reached_over_full"] == last[0]["reached"] / full
    figures = [point(job, name, 1.0) for name in reached]
    both = [p["kl"] for p in figures], [p["row_rv"]["median_torso"] for p in figures]
    ranks = dict(zip(reached, sum(stats.rankdata(values) for values in both), strict=True))
    assert {row["method"]: row["ranks"] for row in last} == ranks
    found = {row["method"]: row["correlation"] for row in rows if row.get("rows") == 3}
    half = [row for row in rows if row["method"] == "(ranks by rv)" and row["fraction"] == 0.5]
    values = [point(job, name, 0.5)["rv"] for name in reached]
    assert half[0]["correlation"] == stats.spearmanr(values, [*reached.values()]).statistic
    both = stats.spearmanr([*ranks.values()], [*reached.values()]).statistic
    assert found["(ranks by kl + row_rv_median_torso)"] == both
    samplers["uniform"]["points"][1]["kl"] = None  # how a record spells infinity
    samplers["uniform"]["valid_perplexity"] = None
    changed = next(r for r in page.VIEW.rows(record) if r["method"] == "uniform" and r["kl"] > 1e9)
    assert changed["reached"] == math.inf


def test_a_sampler_trains_as_it_would_alone(job):
    """The model that `full` trains is the same from the same start, with another head."""
    method = METHODS["shared"]
    alone = make_job(methods={"shared": method})
    train.fit(alone, method, load(alone.config, None), alone.config["optimizer"])
    expected = np.exp(alone.result["curve"][-1]["valid_nll"])
    found = job.result["samplers"]["shared"]["valid_perplexity"]
    assert found == pytest.approx(expected, rel=1e-5)
