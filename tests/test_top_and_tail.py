"""Certain classes and a tail: what is drawn, its expected counts, the classes chosen, training."""

import keras
import numpy as np
import pytest
import reference
from conformance import assert_drawn_as_often_as_said, each_drawn
from conftest import (
    compiled,
    head_gradients,
    log_counts,
    rejects,
    thorough_but,
    to_numpy,
)
from small import assert_all_close, functional, make_sampler, spec, training

from softbench import (
    AugmentReduce,
    ClassTable,
    FullSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowSGD,
    SampledSoftmax,
    diagnostics,
    samplers,
)

N, D, B, T, M = 41, 4, 11, 6, 5
COUNTS = (100 / np.arange(1, N + 1)).tolist()
ONE_TAIL = spec("unigram", counts=COUNTS, power=0.75, unique=True, share_draws=True)
LAYOUTS = {
    "batch": {"share_draws": True},
    "groups": {"share_draws": 4},
    "groups, one tail": {"share_draws": 4, "tail": ONE_TAIL},
    "examples": {"share_draws": False},
}
RNG = np.random.default_rng(3)
HIDDEN = RNG.normal(size=(B, D)).astype("float32")
LABELS = np.array([0, 3, 3, 40, 7, 1, 0, 22, 9, 5, 30], "int32")
KERNEL, BIAS = RNG.normal(size=(N, D)), RNG.normal(size=N)


def config_of(layout, **config):
    top = spec("codebook", num_codewords=6)
    options = {"num_top": T, "counts": COUNTS, "top": top, "seed": 2, **LAYOUTS[layout], **config}
    return spec("top_and_tail", **options)


def head_of(layout, config=None, cls=SampledSoftmax, **options):
    head = cls(N, sampler=config_of(layout, **(config or {})), num_sampled=M, **options)
    head.build((None, D))
    head.table.kernel.assign(KERNEL)
    if head.table.bias is not None:
        head.table.bias.assign(BIAS)
    head.sampler.refresh(head.table)
    return head


def arranged(head):
    """The order (B,) in which the head's groups want the examples."""
    order = head.sampler.arrange(keras.ops.convert_to_tensor(HIDDEN))
    return np.arange(B) if order is None else to_numpy(order)


@pytest.mark.parametrize(
    "layout",
    thorough_but(["groups", "groups, one tail", "examples"], "groups, one tail", "examples"),
)
def test_a_class_is_drawn_as_often_as_is_said(layout):
    """Certain ones once in each draw, and the others in proportion to exp(log E[count])."""
    head = head_of(layout)
    expected, seen = assert_drawn_as_often_as_said(head.sampler, head.table, HIDDEN, M, LABELS)
    excludes = layout == "examples"
    assert ((expected == 1).sum(-1) >= T - excludes).all()
    assert (seen[expected == 1] == 400).all()
    if excludes:
        assert (expected[np.arange(B), LABELS] == 0).all()


WITH_TAIL = [("groups", "uniform"), ("groups, one tail", "unigram")]


@pytest.mark.parametrize(("layout", "tail"), thorough_but(WITH_TAIL, WITH_TAIL[0]))
def test_variances_are_those_of_the_draws(layout, tail):
    """Of the partition's estimates, which have no bias, and of the rows' gradients: measured.

    By sum_b p_bi N_bi / E[N_bi] and that times h_b; a tail that groups share is one set.
    """
    config = {}
    if tail == "uniform":  # with replacement
        config["tail"] = spec("uniform", share_draws={"groups": 4}.get(layout, True))
    head = head_of(layout, config)
    sampler, table, order = head.sampler, head.table, arranged(head)
    p = reference.softmax(reference.scores(HIDDEN[order], KERNEL, BIAS))
    draw, rows = compiled(lambda h: sampler.sample(table, h, M), sampler), np.arange(B)[:, None]
    partition, gradients = [], []
    for _ in range(600):
        ids, log_count = each_drawn(draw(HIDDEN[order]), HIDDEN)
        times = np.zeros((B, N))
        weight = np.where(np.isfinite(log_count), np.exp(-log_count), 0.0)
        np.add.at(times, (np.broadcast_to(rows, ids.shape), ids), weight)
        partition.append((p * times).sum(-1))
        gradients.append((p * times).T @ HIDDEN[order])
    error = np.std(partition, axis=0) / np.sqrt(len(partition))
    assert (np.abs(np.mean(partition, axis=0) - 1) < 5 * error + 1e-3).all()
    ratio = np.var(partition, axis=0).mean() / diagnostics.relative_variance(head, HIDDEN).mean
    # Of draws without replacement it is an estimate: see the docstring.
    assert 0.5 < ratio < 2 if tail == "unigram" else abs(ratio - 1) < 0.2
    measured = np.var(gradients, axis=0).sum(-1) / np.sum((p.T @ HIDDEN[order]) ** 2, axis=-1)
    said = diagnostics.row_variance(head, HIDDEN).values
    np.testing.assert_allclose(said, measured, rtol=0.5, atol=0.05 * measured.max())


@pytest.mark.parametrize(
    ("layout", "candidates"),
    thorough_but(
        [("batch", None), ("groups", N), ("groups", None), ("examples", N)],
        ("batch", None),
        ("groups", N),
    ),
)
def test_the_certain_classes_are_those_that_add_most_variance(layout, candidates):
    """By float64, where every class is its own codeword and so the codebook is exact."""
    top = spec("codebook", num_codewords=N, quantizer="single")
    config = {"top": top, "num_candidates": candidates}
    head = head_of(layout, config, use_bias=False)
    assert len(set(to_numpy(head.sampler.top.cells.cell).tolist())) == N
    found = to_numpy(compiled(lambda h: head.sampler._top(head.table, h), head)(HIDDEN))
    p = reference.softmax(reference.scores(HIDDEN, KERNEL))
    pi = reference.inclusion_probabilities(np.array(COUNTS) ** 0.75, M)
    size = -(-B // (int(LAYOUTS[layout]["share_draws"]) or B))
    for group, ids in enumerate(found):
        assert len(set(ids.tolist())) == T
        members = np.minimum(group * size + np.arange(size), B - 1)  # the last one fills up
        gain = (p[members] ** 2).mean(0) * (1 - pi) / pi
        assert gain[ids].sum() > 0.999 * np.sort(gain)[-T:].sum()


@pytest.mark.parametrize(
    "layout", thorough_but(["groups, one tail", "examples"], "groups, one tail")
)
def test_with_all_classes_certain_it_is_the_full_softmax(layout):
    head = head_of(layout, {"num_top": 2 * N})
    full = FullSoftmax(N)
    full.build((None, D))
    full.table.kernel.assign(KERNEL)
    full.table.bias.assign(BIAS)
    (loss, gradients), (expected, exact) = (head_gradients(h, HIDDEN, LABELS) for h in (head, full))
    assert loss == pytest.approx(expected, rel=1e-5)
    assert_all_close(gradients, exact, 1e-3, 1e-6)


@pytest.mark.parametrize("layout", ["groups, one tail", "examples"])
def test_losses_are_of_the_examples_in_their_order(layout):
    """By NumPy from the same draws, whatever order the groups have put the examples in."""
    head = head_of(layout)
    seed = to_numpy(head.sampler.seed_generator.state)
    found = to_numpy(head(HIDDEN, LABELS, training=True))
    head.sampler.seed_generator.state.assign(seed)
    order = arranged(head)
    hidden, labels = HIDDEN[order], LABELS[order]
    samples = head.sampler.sample(head.table, hidden, M, labels)
    ids, log_count = each_drawn(samples, hidden)
    scores = reference.scores(hidden, KERNEL, BIAS)
    sampled = np.where(ids == labels[:, None], -np.inf, np.take_along_axis(scores, ids, -1))
    sampled = np.where(np.isfinite(log_count), sampled, -np.inf)
    count = np.exp(np.where(np.isfinite(log_count), log_count, 0.0).astype(float))
    expected = reference.sampled_softmax(scores[np.arange(B), labels], sampled, None, count)
    np.testing.assert_allclose(found[order], expected, rtol=1e-4)


@pytest.mark.parametrize("layout", thorough_but(["groups", "examples"], "groups"))
def test_a_row_optimizer_moves_the_rows_as_a_dense_one_does(layout):
    after = []
    for row_optimizer in (None, RowSGD(0.3)):
        head = head_of(layout, row_optimizer=row_optimizer)
        functional(head, D, keras.optimizers.SGD(0.3)).train_on_batch([HIDDEN, LABELS])
        after.append(to_numpy(head.table.kernel))
    assert np.abs(after[0] - KERNEL).max() > 1e-3
    np.testing.assert_allclose(after[1], after[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", thorough_but(["one class", "equal", "few"], "one class"))
def test_small_and_equal_tables(rows):
    n = {"one class": 1, "few": 3}.get(rows, N)
    head = SampledSoftmax(n, config_of("groups", counts=COUNTS[:n], num_top=2), min(M, n))
    head.build((None, D))
    if rows == "equal":
        head.table.kernel.assign(np.zeros((n, D)))
        head.sampler.refresh(head.table)
    losses = to_numpy(training(head)(HIDDEN, LABELS % n))
    assert np.isfinite(losses).all() and (n > 1 or np.allclose(losses, 0))


OBJECTIVES = {
    "binary": (
        NoiseContrastive,
        "groups, one tail",
        {"objective": "binary", "regularization": 0.1, "regularization_samples": M},
    ),
    "ranking": (NoiseContrastive, "examples", {"objective": "ranking"}),
    "corrected": (SampledSoftmax, "groups", {"correct_true_logit": True}),
    "each": (OneVsEach, "examples", {}),
    "augment": (AugmentReduce, "groups, one tail", {"num_examples": 50}),
}


@pytest.mark.parametrize("name", thorough_but(OBJECTIVES, "binary", "augment"))
def test_other_objectives(name):
    cls, layout, options = OBJECTIVES[name]
    head = head_of(layout, cls=cls, **options)
    ids = {"example_ids": np.arange(B, dtype="int32")} if name == "augment" else {}
    weight = np.r_[np.ones(B - 2), 0, 0].astype("float32")
    hidden = np.where(weight[:, None] == 0, np.nan, HIDDEN).astype("float32")
    losses = to_numpy(head(hidden, LABELS, sample_weight=weight, training=True, **ids))
    assert np.isfinite(losses).all() and (losses[weight > 0] > 0).all()
    assert (losses[weight == 0] == 0).all()
    if name == "augment":  # each example's own eta, whatever order the groups had them in
        fresh = to_numpy(head.log_eta)[:B]
        np.testing.assert_allclose(fresh[:-2], losses[:-2], rtol=1e-5)


def test_negative_sampling_predicts_with_the_expected_counts():
    """xi + log E[count]: the noise of the loss, up to the number of draws."""
    rejects("sampler", NegativeSampling, N, config_of("groups"), num_sampled=M)
    head = head_of("examples", cls=NegativeSampling)
    scores = to_numpy(head(HIDDEN)).astype(float)
    expected = reference.scores(HIDDEN, KERNEL, BIAS)
    expected = expected + log_counts(head.sampler, head.table, HIDDEN, M)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert np.isfinite(to_numpy(head(HIDDEN, LABELS, training=True))).all()


def test_within_a_mixture():
    """Every draw that counts has the sum of both expected counts, certain classes more than 1."""
    first, uniform = config_of("batch"), spec("uniform", share_draws=True)
    config = {"first": first, "second": uniform, "seed": 1, "num_sampled": [M, 4]}
    sampler = make_sampler("mixed", **config)
    table = head_of("batch").table
    sampler.build((N, D), M + 4, table)
    samples = sampler.sample(table, HIDDEN, M + 4)
    assert samples.ids.shape == (1, T + M + 4)
    expected = np.exp(log_counts(sampler.first, table, HIDDEN, M))[0] + 4 / N
    ids, count = to_numpy(samples.ids)[0], np.exp(to_numpy(samples.log_expected_count))[0]
    np.testing.assert_allclose(count[count > 0], expected[ids][count > 0], rtol=1e-4)
    assert (count[:T] > 1).all() and set(ids[count == 0]) <= set(ids[:T])


def test_a_tail_of_another_kind():
    """An in-batch tail, one with replacement, and one that follows the table."""
    for tail in ("in_batch", "uniform", "codebook"):
        head = head_of("batch", {"tail": tail})

        def call(hidden, labels, head=head, tail=tail):
            losses = head(hidden, labels, training=True)
            if tail == "in_batch":
                return losses, None
            return losses, head.sampler.log_prob(head.table, hidden)

        losses, log_q = compiled(call, head)(HIDDEN, LABELS)
        assert np.isfinite(to_numpy(losses)).all()
        if log_q is not None:
            np.testing.assert_allclose(np.exp(to_numpy(log_q)).sum(-1), 1.0, rtol=1e-4)


def test_bad_tables():
    for argument, units, num_sampled in (("counts", N + 1, M), ("num_sampled", N, N + 1)):
        sampler = samplers.get(config_of("groups"))
        rejects(argument, sampler.build, (units, D), num_sampled, ClassTable(units, D))
