"""Labels: integers of any width in range; anything else is an error, or NaN and no update."""

import numpy as np
import pytest
import reference
from conftest import BACKEND, compiled, rejects, thorough_but, to_numpy
from head_zoo import HEADS, D, N, built, tables
from keras import ops
from small import classifier, spec, vectors

from softbench import (
    AugmentReduce,
    HierarchicalSoftmax,
    RowAdam,
    SampledSoftmax,
    metrics,
    samplers,
)

RNG = np.random.default_rng(3)
HIDDEN = RNG.normal(size=(4, D)).astype("float32")
SCORES = RNG.normal(size=(4, N)).astype("float32")
ROW_HEADS = {
    "per example": lambda **o: SampledSoftmax(N, "uniform", 3, seed=4, **o),
    "shared": lambda **o: SampledSoftmax(N, spec("uniform", share_draws=True), 3, **o),
    "kernel": lambda **o: SampledSoftmax(N, "quadratic", 3, seed=4, **o),
    "augment reduce": lambda **o: AugmentReduce(N, "uniform", 3, num_examples=100, seed=4, **o),
    "hierarchical": lambda **o: HierarchicalSoftmax(N, **o),
}


def step(head, hidden, labels, weight=None):
    """The losses (B,) of a compiled training step."""
    ids = {"example_ids": np.arange(len(labels))} if isinstance(head, AugmentReduce) else {}

    def train(hidden, labels, weight):
        return head(hidden, labels, sample_weight=weight, training=True, **ids)

    weight = np.ones(len(labels), "float32") if weight is None else weight
    return to_numpy(compiled(train, head)(hidden, labels, weight))


def warm(name):
    """A head whose rows have all been trained: their moments are not 0, a touch moves them."""
    head = built(ROW_HEADS[name](row_optimizer=RowAdam(0.3)))
    if hasattr(head, "sampler"):
        head.sampler.refresh(head.table)
    step(head, vectors(N, D), np.arange(N, dtype="int32"))
    return head


@pytest.mark.parametrize("name", thorough_but(ROW_HEADS, "per example", "hierarchical"))
def test_a_label_out_of_range_updates_no_row_in_a_compiled_step(name):
    """A batch of one good example and three bad: what moves is what the good one alone moves."""
    heads = [warm(name) for _ in range(2)]
    for a, b in zip(heads[0].variables, heads[1].variables, strict=True):
        b.assign(a.value)
    before = to_numpy(tables(heads[0])[0].kernel)
    losses = step(heads[0], HIDDEN, np.array([5, -1, N, -1], "int32"))
    np.testing.assert_array_equal(np.isnan(losses), [False, True, True, True])
    table = tables(heads[0])[0]
    after = to_numpy(table.kernel)
    moved = np.flatnonzero(np.any(after != before, axis=1))
    assert np.all(np.isfinite(after))
    if name == "hierarchical":
        touched = to_numpy(heads[0].path(ops.convert_to_tensor([5]))[0])[0]
        assert set(moved) <= set(touched)
    else:
        # The good example's own step, with the same draws: its label is always first.
        step(heads[1], HIDDEN, np.array([5, 5, 5, 5], "int32"), np.array([1, 0, 0, 0], "float32"))
        np.testing.assert_allclose(after, to_numpy(heads[1].table.kernel), rtol=1e-5, atol=1e-6)
        assert len(moved) <= 4


@pytest.mark.parametrize(
    ("dtype", "share"),
    [(x, False) for x in ("uint8", "int8", "int16", "uint32", "int64")] + [("uint64", True)],
)
def test_sampler_counts_do_not_depend_on_the_width_of_labels(dtype, share):
    units = 256 if dtype == "uint8" else 100
    labels = np.array([units - 1, 0, 17, 17])
    config = {"counts": np.arange(1, units + 1).tolist(), "share_draws": share, "seed": 2}
    sampler = samplers.get(spec("unigram", **config))
    sampler.build((units, D), 5)
    q = reference.unigram_distribution(config["counts"], 1.0)
    own = ops.convert_to_tensor(labels.astype(dtype))
    found = sampler.sample(None, HIDDEN, 5, own, exclude_labels=False)
    np.testing.assert_allclose(
        to_numpy(found.true_log_expected_count), np.log(5 * q[labels]), rtol=1e-5
    )
    log_q = sampler.log_prob(None, HIDDEN, ids=own[:, None])
    np.testing.assert_allclose(to_numpy(log_q)[:, 0], np.log(q[labels]), rtol=1e-5)


def test_sampler_labels_out_of_range():
    sampler = samplers.get("uniform")
    sampler.build((N, D), 5)
    for bad in ([0, 1, N, 0], [0, -1, 2, 0], np.zeros(4, "float32")):
        rejects("labels", sampler.sample, None, HIDDEN, 5, np.array(bad))
    rejects("ids", sampler.log_prob, None, HIDDEN, ids=np.zeros((4, 1), "float32"))
    draw = compiled(lambda h, y: sampler.sample(None, h, 5, y, exclude_labels=False), sampler)
    count = to_numpy(draw(HIDDEN, np.array([0, N, -1, 3], "int32"))[2])
    np.testing.assert_array_equal(np.isnan(count), [False, True, True, False])


@pytest.mark.parametrize("wide", [2**32 + 3, 2**31, -(2**32)])
def test_wide_labels_do_not_wrap(wide):
    head = built(SampledSoftmax(N, "uniform", 3))
    labels = np.array([1, wide, 2, 3], "int64")
    rejects("labels", head, HIDDEN, labels)
    rejects("labels", head, HIDDEN, labels=labels.tolist(), training=True)
    rejects("y_true", metrics.ScorePerplexity().update_state, labels, SCORES)
    rejects("y_true", metrics.PrecisionAtK(1).update_state, labels, SCORES)
    if wide < 0:  # of ranked ids n is not known
        top = np.argsort(-SCORES).astype("int32")
        rejects("y_true", metrics.PrecisionAtK(1).update_state, labels, top)
    model = classifier(head, D, D)
    for method in (model.fit, model.evaluate):
        rejects("labels", method, HIDDEN, labels, verbose=0)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has cut an int64 to 32 bits before the step")
def test_wide_labels_are_nan_in_a_compiled_step():
    head = built(SampledSoftmax(N, "uniform", 3))
    losses = step(head, HIDDEN, np.array([1, 2**32 + 3, 2, -(2**32)], "int64"))
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False, True])


def test_unsigned_labels_of_32_bits_are_nan_in_a_compiled_step():
    head = built(SampledSoftmax(N, "uniform", 3))
    losses = step(head, HIDDEN, np.array([1, 2**32 - 1, 2, 2**31], "uint32"))
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False, True])


def test_narrow_labels_of_many_classes():
    head = built(SampledSoftmax(300, "uniform", 3))
    expected = to_numpy(head(HIDDEN, np.array([1, 255, 2, 3], "int32")))
    for run in (head, compiled(lambda h, y: head(h, y), head)):
        found = to_numpy(run(HIDDEN, np.array([1, 255, 2, 3], "uint8")))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["full", "full chunked", "sampled", "nce binary"])
def test_labels_out_of_range_are_nan_in_a_compiled_step(name):
    """Their values cannot be looked at there; a wrong loss must not pass for a right one."""
    own = built(HEADS[name]())

    def both(hidden, labels):
        return own(hidden, labels, training=True), own(hidden, labels)

    for losses in compiled(both, own)(HIDDEN[:3], np.array([0, N, -1], "int32")):
        np.testing.assert_array_equal(np.isnan(to_numpy(losses)), [False, True, True])


class TestMetrics:
    """Of `ScorePerplexity` and `PrecisionAtK`."""

    def all(self):
        yield metrics.ScorePerplexity()
        yield metrics.PrecisionAtK(2)

    @pytest.mark.parametrize(
        "y_true",
        [
            np.zeros(4, "float32"),
            np.eye(N)[:4],
            np.eye(N, dtype="int32")[:4],
            np.array([0, N, 1, 2]),
            np.array([0, 1, -1, 2]),
            np.zeros((4, 1, 1), "int32"),
        ],
        ids=["float", "one-hot", "one-hot int", "n", "-1", "rank 3"],
    )
    def test_errors(self, y_true):
        for metric in self.all():
            rejects("y_true", metric.update_state, y_true, SCORES)

    def test_one_hot_labels_and_ranked_ids(self):
        top = np.argsort(-SCORES).astype("int32")
        one_hot = np.eye(N, dtype="int32")[:4]
        for metric in list(self.all())[1:]:
            message = rejects("y_true", metric.update_state, one_hot, top)
            assert "dense_labels=True" in message
            dense = type(metric)(**{**metric.get_config(), "dense_labels": True})
            rejects("y_true", dense.update_state, np.zeros(4, "int32"), SCORES)

    @pytest.mark.parametrize("bad", [-1, N])
    def test_out_of_range_is_nan_in_a_compiled_step(self, bad):
        for metric in self.all():
            update = compiled(lambda y, s, m=metric: m.update_state(y, s), metric)
            update(np.array([0, bad, 1, 2], "int32"), SCORES)
            assert np.isnan(float(metric.result()))

    def test_ids_padded_with_minus_one(self):
        labels = np.array([[0, 3], [5, -1], [-1, -1], [2, 1]], "int32")
        dense = np.zeros((4, N))
        for row, ids in enumerate(labels):
            dense[row, ids[ids >= 0]] = 1
        expected = reference.ref_precision_at_k(SCORES, dense, 2)
        for dtype in ("int32", "int64", "int8"):
            metric = metrics.PrecisionAtK(2)
            metric.update_state(labels.astype(dtype), SCORES)
            assert float(metric.result()) == pytest.approx(expected, abs=1e-6)

    def test_narrow_ids(self):
        """Ranked ids of 8 bits and labels that these cannot hold."""
        metric = metrics.PrecisionAtK(1)
        metric.update_state(np.array([256, 5], "int32"), np.array([[0], [5]], "uint8"))
        assert float(metric.result()) == 0.5
