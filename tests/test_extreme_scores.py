"""Scores far beyond what training gives: proposals stay finite, and are what is drawn from."""

import math

import numpy as np
import pytest
from conftest import assert_drawn_from, compiled, to_numpy

from softbench import ClassTable, samplers

N, D, DRAWS = 50, 8, 4000
OPTIONS = {
    "blocks of one": {"block_size": 1},
    "blocks of four": {"block_size": 4},
    "one block": {"block_size": N},
    "shared": {"block_size": 4, "share_draws": True},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("scale", [(3e3, 1.0), (1.0, 3e3), (1e4, 1e4)])
def test_maclaurin(scale, options):
    """Products of eleven factors overflow float32 at scores of 1e4 and more; q does not."""
    rng = np.random.default_rng(0)
    hidden = (rng.normal(size=(6, D)) * scale[0]).astype("float32")
    hidden[0] = 0
    table = ClassTable(N)
    table.build((None, D))
    table.kernel.assign(rng.normal(size=(N, D)) * scale[1])
    config = {"num_features": 1024, "seed": 1, **OPTIONS[options]}
    sampler = samplers.get({"class_name": "maclaurin", "config": config})
    sampler.build((N, D), 5, table)

    def function(hidden):
        return sampler.sample(table, hidden, DRAWS), sampler.log_prob(table, hidden)

    samples, log_q = compiled(function, sampler, table)(hidden)
    q = np.exp(to_numpy(log_q).astype(float))
    np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
    ids, found = np.atleast_2d(to_numpy(samples.ids)), to_numpy(samples.log_expected_count)
    for row, count, own in zip(ids, np.atleast_2d(found), q, strict=False):
        assert_drawn_from(row, own)
        np.testing.assert_allclose(count, np.log(own[row]) + math.log(DRAWS), atol=1e-3)
