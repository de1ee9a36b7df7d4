"""Scores far beyond what training gives: proposals stay finite, and are what is drawn from."""

import math

import numpy as np
import pytest
from conftest import assert_drawn_from, compiled, thorough_but, to_numpy

from softbench import ClassTable, samplers

N, D, DRAWS = 50, 8, 4000
OPTIONS = {
    "blocks of one": {"block_size": 1},
    "blocks of four": {"block_size": 4},
    "one block": {"block_size": N},
    "shared": {"block_size": 4, "share_draws": True},
}


HUGE = [1e308, 1e308, 5e-324, 0.0]
LOG_SHARE = [-math.log(2), -math.log(2), math.log(5e-324) - math.log(1e308) - math.log(2)]


def test_in_batch_counts_whose_sum_overflows():
    """A float64 sum of 2e308 is infinite, and a share of 1e-632 is 0: their logs are neither."""
    sampler = samplers.InBatch(counts=HUGE)
    sampler.build((4, D))
    table = ClassTable(4)
    table.build((None, D))
    log_q = to_numpy(sampler.log_prob(table, np.zeros((1, D), "float32")))[0]
    np.testing.assert_allclose(log_q[:3], LOG_SHARE, rtol=1e-6)
    assert log_q[3] == -np.inf


@pytest.mark.parametrize("power", [1.0, 0.75, 0.0])
def test_every_class_that_was_seen_can_be_drawn(power):
    weights = samplers.Unigram(counts=HUGE, power=power).class_weights(4)
    assert np.isfinite(weights).all() and (weights[:3] > 0).all() and weights[3] == 0


@pytest.mark.parametrize("options", thorough_but(OPTIONS, "blocks of one"))
def test_maclaurin(options):
    """Products of eleven factors overflow float32 at scores of 1e4 and more; q does not."""
    table = ClassTable(N)
    table.build((None, D))
    config = {"num_features": 1024, "seed": 1, **OPTIONS[options]}
    sampler = samplers.get({"class_name": "maclaurin", "config": config})
    sampler.build((N, D), 5, table)

    def function(hidden):
        return sampler.sample(table, hidden, DRAWS), sampler.log_prob(table, hidden)

    call = compiled(function, sampler, table)
    for hidden_scale, row_scale in ((3e3, 1.0), (1.0, 3e3), (1e4, 1e4)):
        rng = np.random.default_rng(0)
        hidden = (rng.normal(size=(6, D)) * hidden_scale).astype("float32")
        hidden[0] = 0
        table.kernel.assign(rng.normal(size=(N, D)) * row_scale)
        sampler.refresh(table)
        assert_drawn_as_said(*call(hidden))
    assert len(call.traces) == 1


def assert_drawn_as_said(samples, log_q):
    q = np.exp(to_numpy(log_q).astype(float))
    np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
    ids, found = np.atleast_2d(to_numpy(samples.ids)), to_numpy(samples.log_expected_count)
    for row, count, own in zip(ids, np.atleast_2d(found), q, strict=False):
        assert_drawn_from(row, own)
        np.testing.assert_allclose(count, np.log(own[row]) + math.log(DRAWS), atol=1e-3)
