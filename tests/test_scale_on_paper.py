"""softbench/advise/scale.py: its bytes are those of heads, its tables those of docs/scale.md."""

import numpy as np
import pytest
from conftest import on_table
from shipped import ROOT

from softbench import RowAdagrad, SampledSoftmax
from softbench.advise import scale

N, D = 3000, 8
COUNTS = {"counts": np.ones(N)}
SAMPLERS = {
    "uniform": {},
    "unigram": COUNTS,
    "in_batch": COUNTS,
    "top_and_tail": {**COUNTS, "share_draws": 16},
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_bytes_are_those_of_a_head(name):
    """All variables, but for a few numbers: counters, seeds, the learning rate."""
    small = name == "uniform"
    options = {"table_dtype": "bfloat16"} if small else {}
    head = on_table(
        SampledSoftmax,
        N,
        {"class_name": name, "config": SAMPLERS[name]},
        num_sampled=20,
        row_optimizer=RowAdagrad(0.1, per_row=small),
        seed=0,
        **options,
    )
    head.build((None, D))
    sizes = [np.prod(v.shape, dtype=int) * np.dtype(v.dtype).itemsize for v in head.variables]
    expected = scale.table_bytes(N, D, small, small) + scale.sampler_bytes(name, N, D)
    assert 0 <= sum(sizes) - expected < 200


def test_the_page_shows_what_is_computed():
    assert scale.text() in (ROOT / "docs" / "scale.md").read_text()


def test_a_step_by_hand():
    """Uniform draws shared by two devices: n = 4, d = 2, four examples, 8,192 rows."""
    found = scale.step("uniform", 4, 2, 4, 2)
    rows = 8192 + 2  # the draws and the labels of two examples, of 8 bytes, half of them away
    assert found.held == (4 * 8 + 4 * 4) * 2 / 2
    assert found.sent == 2 * rows * 8 / 2
    assert found.flops == 6 * 2 * 8193 * 2
    scores = 2 * 8193 * 4
    assert found.moved == 2 * rows * 8 + 4 * (8192 + 4) / 2 * 8 + 5 * scores
