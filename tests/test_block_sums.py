"""Block sums against NumPy's, for numbers of classes that blocks do not divide."""

import numpy as np
import pytest
from conftest import to_numpy
from keras import ops

from softbench.samplers.kernel import block_sums
from softbench.samplers.kernel.block_sums import BlockSums

D = 3
# n, b, top_size, branching -> spans, nodes
SHAPES = {
    (101, 8, 4, 16): ([8, 128], [16, 1]),
    (101, 8, 13, 16): ([8], [13]),
    (101, 8, 12, 16): ([8, 128], [16, 1]),
    (104, 8, 13, 16): ([8], [13]),
    (101, 1, 4, 4): ([1, 4, 16, 64], [104, 28, 8, 2]),
    (9, 2, 3, 2): ([2, 4], [6, 3]),
    (1, 4, 4, 16): ([4], [1]),
}
TWO, ONE, ODD = (101, 8, 4, 16), (101, 8, 13, 16), (9, 2, 3, 2)


def rows(n):
    return np.random.default_rng(n).normal(size=(n, D)).astype("float32")


def build(shape, prior=None):
    """Sums of rows, which may be changed: `blocks.rows`."""
    n, block, top, branching = shape
    blocks = BlockSums(n, block, top, prior, branching)
    blocks.rows = rows(n) if prior is None else rows(n) * prior[:, None].astype("float32")

    def features(ids):
        inside = ops.expand_dims(ids < n, -1)
        return ops.where(inside, ops.take(blocks.rows, ops.minimum(ids, n - 1), axis=0), 0.0)

    blocks.build(D, features)
    return blocks


def summed(values, span, nodes):
    """(nodes, ...) sums of the values (n, ...) of the classes of every node."""
    parts = [values[v * span : (v + 1) * span].sum(0) for v in range(nodes)]
    return np.array(parts, float)


def assert_sums(blocks, found=None):
    found = blocks.sums if found is None else found
    for span, nodes, sums in zip(blocks.spans, blocks.nodes, found, strict=True):
        expected = summed(blocks.rows.astype(float), span, nodes)
        np.testing.assert_allclose(to_numpy(sums), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_nodes_of_the_levels(shape):
    """Every class is in one; at most `top_size` are the last, below it whole families."""
    n, block, top, branching = shape
    blocks = BlockSums(n, block, top, None, branching)
    assert (blocks.spans, blocks.nodes) == SHAPES[shape]


@pytest.mark.parametrize("shape", [TWO, ONE, ODD])
def test_levels_hold_every_class_once(shape):
    """The last block is a part of one."""
    blocks = build(shape)
    assert_sums(blocks)
    assert_sums(blocks, blocks.compute())
    total = rows(shape[0]).sum(0)
    np.testing.assert_allclose(to_numpy(blocks.sums[-1]).sum(0), total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("with_prior", [False, True])
@pytest.mark.parametrize("shape", [TWO, ODD])
def test_sizes_of_nodes(shape, with_prior):
    n = shape[0]
    prior = np.random.default_rng(0).integers(0, 3, n).astype(float) if with_prior else None
    blocks = build(shape, prior)
    for level, (span, nodes) in enumerate(zip(blocks.spans, blocks.nodes, strict=True)):
        weight, count = blocks.size(level, ops.arange(nodes, dtype="int32"))
        own = np.ones(n) if prior is None else prior
        np.testing.assert_allclose(to_numpy(weight), summed(own, span, nodes))
        np.testing.assert_allclose(to_numpy(count), summed(own > 0, span, nodes))


@pytest.mark.parametrize("chunk", [1, 24 * 5])
def test_leaves_that_are_summed_a_few_at_a_time(chunk, monkeypatch):
    """24 numbers a leaf: one leaf, and five, which 13 is no multiple of."""
    monkeypatch.setattr(block_sums, "CHUNK", chunk)
    assert_sums(build(ONE))


@pytest.mark.parametrize("shape", [TWO, ODD])
def test_changes_reach_every_level(shape):
    """The last class too; an id of n, the filling of JAX, changes nothing."""
    blocks, n = build(shape), shape[0]
    ids = np.array([0, n // 2, n - 1, n], "int32")
    difference = np.random.default_rng(1).normal(size=(4, D)).astype("float32")
    difference[-1] = 0.0
    blocks.rows = blocks.rows.copy()
    blocks.rows[ids[:3]] += difference[:3]
    blocks.change(ops.convert_to_tensor(ids), ops.convert_to_tensor(difference))
    assert_sums(blocks)


@pytest.mark.parametrize(("period", "changes"), [(5, 4), (4096, 16)])
def test_a_share_of_the_leaves_is_computed_afresh_at_every_change(period, changes, monkeypatch):
    """16 leaves: four and one at a time, in turn, with what is above; then again."""
    monkeypatch.setattr(block_sums, "REFRESH_PERIOD", period)
    blocks = build(TWO)
    variable = blocks.sums[0]
    for _ in range(2):
        for level in blocks.sums:
            level.assign(to_numpy(level) + 10.0)
        for step in range(changes):
            share = 16 // changes
            wrong = np.abs(to_numpy(variable) - summed(blocks.rows, 8, 16)).max(-1) > 1
            assert wrong.tolist() == [False] * (share * step) + [True] * (16 - share * step)
            blocks.change(ops.zeros((1,), "int32"), ops.zeros((1, D)))
        assert_sums(blocks)


def test_children_of_nodes():
    blocks = BlockSums(101, 1, 4, None, 4)
    found = blocks.children(ops.convert_to_tensor(np.array([[0], [5]], "int32")))
    assert to_numpy(found).tolist() == [[[0, 1, 2, 3]], [[20, 21, 22, 23]]]
