"""Certain classes and a tail: what is drawn, its expected counts, the classes chosen, training."""

import keras
import numpy as np
import pytest
import reference
from conftest import (
    compiled,
    components,
    head_gradients,
    log_counts,
    rejects,
    slow_but,
    thorough_but,
    to_numpy,
)

from softbench import (
    AugmentReduce,
    ClassTable,
    FullSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowAdagrad,
    RowSGD,
    SampledSoftmax,
    diagnostics,
    groups,
    samplers,
)

N, D, B, T, M = 41, 4, 11, 6, 5
COUNTS = (100 / np.arange(1, N + 1)).tolist()
ONE_TAIL = {
    "class_name": "unigram",
    "config": {"counts": COUNTS, "power": 0.75, "unique": True, "share_draws": True},
}
LAYOUTS = {
    "batch": {"share_draws": True},
    "groups": {"share_draws": 4},
    "groups, one tail": {"share_draws": 4, "tail": ONE_TAIL},
    "examples": {"share_draws": False},
}
LABELLED = [("groups", True), ("groups, one tail", True), ("examples", True)]
RNG = np.random.default_rng(3)
HIDDEN = RNG.normal(size=(B, D)).astype("float32")
LABELS = np.array([0, 3, 3, 40, 7, 1, 0, 22, 9, 5, 30], "int32")
KERNEL, BIAS = RNG.normal(size=(N, D)), RNG.normal(size=N)


def config_of(layout, **config):
    top = {"class_name": "codebook", "config": {"num_codewords": 6}}
    found = {"num_top": T, "counts": COUNTS, "top": top, "seed": 2, **LAYOUTS[layout], **config}
    return {"class_name": "top_and_tail", "config": found}


def head_of(layout, config=None, cls=SampledSoftmax, **options):
    head = cls(N, sampler=config_of(layout, **(config or {})), num_sampled=M, **options)
    head.build((None, D))
    head.table.kernel.assign(KERNEL)
    if head.table.bias is not None:
        head.table.bias.assign(BIAS)
    head.sampler.refresh(head.table)
    return head


def group_sizes(layout):
    count = int(LAYOUTS[layout]["share_draws"]) or B
    return np.arange(B) // -(-B // count)


def per_example(samples, layout):
    """Ids and log counts (B, M) of all components, by the rules of `Samples`."""
    found = []
    for part in components(samples):
        for x in map(to_numpy, part[:2]):
            if len(x) == 1:
                x = np.broadcast_to(x, (B, x.shape[1]))
            elif len(x) != B:
                x = x[group_sizes(layout)]
            found.append(x)
    return np.concatenate(found[::2], axis=-1), np.concatenate(found[1::2], axis=-1)


@pytest.mark.parametrize(
    ("layout", "with_labels"),
    thorough_but([*((x, True) for x in LAYOUTS), ("examples", False)], *LABELLED),
)
def test_a_class_is_drawn_as_often_as_is_said(layout, with_labels):
    """Certain ones once in each draw, and the others in proportion to exp(log E[count])."""
    head = head_of(layout)
    sampler, table = head.sampler, head.table
    labels = LABELS if with_labels else None
    draw = compiled(lambda h: sampler.sample(table, h, M, labels), sampler)
    excluded = labels if layout == "examples" else None
    expected = np.exp(log_counts(sampler, table, HIDDEN, M, excluded))
    rounds, seen = 400, np.zeros((B, N))
    for _ in range(rounds):
        ids, log_count = per_example(draw(HIDDEN), layout)
        rows = np.broadcast_to(np.arange(B)[:, None], ids.shape)
        counts = np.isfinite(log_count)
        np.testing.assert_allclose(
            log_count[counts], np.log(expected[rows, ids][counts]), atol=1e-4
        )
        np.add.at(seen, (rows[counts], ids[counts]), 1)
    certain = expected == 1
    assert (certain.sum(-1) >= T - (excluded is not None)).all()
    assert (seen[certain] == rounds).all()
    error = np.sqrt(np.maximum(expected * (1 - expected), 0) / rounds)
    assert (np.abs(seen / rounds - expected) <= 5 * error + 1e-3).all()
    if excluded is not None:
        assert (expected[np.arange(B), LABELS] == 0).all()


@pytest.mark.parametrize("layout", thorough_but(LAYOUTS, "groups"))
def test_the_partition_is_estimated_without_bias_and_with_the_variance_said(layout):
    head = head_of(layout)
    sampler, table = head.sampler, head.table
    hidden = HIDDEN.copy()
    order = sampler.arrange(keras.ops.convert_to_tensor(hidden))
    hidden = hidden if order is None else hidden[to_numpy(order)]
    p = reference.softmax(reference.scores(hidden, KERNEL, BIAS))
    draw = compiled(lambda h: sampler.sample(table, h, M), sampler)
    estimates = []
    for _ in range(400):
        ids, log_count = per_example(draw(hidden), layout)
        estimates.append((np.take_along_axis(p, ids, -1) * np.exp(-log_count)).T)
        estimates[-1] = np.where(np.isfinite(log_count.T), estimates[-1], 0.0).sum(0)
    estimates = np.stack(estimates)
    error = estimates.std(0) / np.sqrt(len(estimates))
    assert (np.abs(estimates.mean(0) - 1) < 5 * error + 1e-3).all()
    said = diagnostics.relative_variance(head, HIDDEN).values
    said = said if order is None else said[to_numpy(order)]
    assert 0.5 < estimates.var(0).mean() / said.mean() < 2  # systematic draws, see its docstring


@pytest.mark.parametrize("layout", thorough_but(LAYOUTS, "groups"))
def test_the_variance_of_the_rows_gradients_is_that_of_the_draws(layout):
    """Of sum_b p_bi N_bi / E[N_bi] h_b, measured; a tail that groups share is one set."""
    head = head_of(layout)
    sampler, table = head.sampler, head.table
    order = sampler.arrange(keras.ops.convert_to_tensor(HIDDEN))
    hidden = HIDDEN if order is None else HIDDEN[to_numpy(order)]
    p = reference.softmax(reference.scores(hidden, KERNEL, BIAS))
    draw = compiled(lambda h: sampler.sample(table, h, M), sampler)
    found, rows = [], np.arange(B)[:, None]
    for _ in range(1600):
        ids, log_count = per_example(draw(hidden), layout)
        times = np.zeros((B, N))
        weight = np.where(np.isfinite(log_count), np.exp(-log_count), 0.0)
        np.add.at(times, (np.broadcast_to(rows, ids.shape), ids), weight)
        found.append((p * times).T @ hidden)
    exact = np.sum((p.T @ hidden) ** 2, axis=-1)
    measured = np.stack(found).var(0).sum(-1) / exact
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
    top = {"class_name": "codebook", "config": {"num_codewords": N, "quantizer": "single"}}
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


@pytest.mark.parametrize("layout", slow_but(LAYOUTS, "groups, one tail", "examples"))
def test_with_all_classes_certain_it_is_the_full_softmax(layout):
    head = head_of(layout, {"num_top": 2 * N})
    full = FullSoftmax(N)
    full.build((None, D))
    full.table.kernel.assign(KERNEL)
    full.table.bias.assign(BIAS)
    expected = to_numpy(full(HIDDEN, LABELS, training=True))
    np.testing.assert_allclose(to_numpy(head(HIDDEN, LABELS, training=True)), expected, rtol=1e-4)
    both = (head_gradients(h, HIDDEN, LABELS)[1] for h in (head, full))
    for found, other in zip(*both, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_are_of_the_examples_in_their_order(layout):
    """By NumPy from the same draws, whatever order the groups have put the examples in."""
    head = head_of(layout)
    seed = to_numpy(head.sampler.seed_generator.state)
    found = to_numpy(head(HIDDEN, LABELS, training=True))
    head.sampler.seed_generator.state.assign(seed)
    order = head.sampler.arrange(keras.ops.convert_to_tensor(HIDDEN))
    order = np.arange(B) if order is None else to_numpy(order)
    hidden, labels = HIDDEN[order], LABELS[order]
    samples = head.sampler.sample(head.table, hidden, M, labels)
    ids, log_count = per_example(samples, layout)
    scores = reference.scores(hidden, KERNEL, BIAS)
    sampled = np.where(ids == labels[:, None], -np.inf, np.take_along_axis(scores, ids, -1))
    sampled = np.where(np.isfinite(log_count), sampled, -np.inf)
    count = np.exp(np.where(np.isfinite(log_count), log_count, 0.0).astype(float))
    expected = reference.sampled_softmax(scores[np.arange(B), labels], sampled, None, count)
    np.testing.assert_allclose(found[order], expected, rtol=1e-4)


@pytest.mark.parametrize("layout", slow_but(LAYOUTS, "groups", thorough=("examples",)))
def test_a_row_optimizer_moves_the_rows_as_a_dense_one_does(layout):
    after = []
    for row_optimizer in (None, RowSGD(0.3)):
        head = head_of(layout, row_optimizer=row_optimizer)
        hidden, labels = keras.Input((D,)), keras.Input((), dtype="int32")
        model = keras.Model([hidden, labels], head(hidden, labels))
        model.compile(keras.optimizers.SGD(0.3))
        model.train_on_batch([HIDDEN, LABELS])
        after.append(to_numpy(head.table.kernel))
    assert np.abs(after[0] - KERNEL).max() > 1e-3
    np.testing.assert_allclose(after[1], after[0], rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_the_codebook_follows_the_table_for_many_steps():
    """After 300 row updates each codeword is the mean of its cell's rows of now."""
    top = {"class_name": "codebook", "config": {"num_codewords": 6, "quantizer": "single"}}
    head = head_of("groups", {"top": top}, row_optimizer=RowAdagrad(0.3))
    step = compiled(lambda h, y: head(h, y, training=True), head)
    for _ in range(300):
        hidden, labels = RNG.normal(size=(B, D)), RNG.integers(0, N, B)
        assert np.isfinite(to_numpy(step(hidden.astype("float32"), labels))).all()
    rows, found = to_numpy(head.table.kernel), head.sampler.top
    assert np.abs(rows - KERNEL).max() > 1
    weight = np.array(COUNTS) ** 0.25
    member = to_numpy(found.cells.cell) == np.arange(6)[:, None]
    assert member.any(-1).sum() > 2
    means = (member * weight) @ rows / np.maximum((member * weight).sum(-1, keepdims=True), 1e-30)
    words = to_numpy(found.codewords.first)
    used = member.any(-1)
    np.testing.assert_allclose(words[used], means[used], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", ["one class", "equal", "few"])
def test_small_and_equal_tables(rows):
    n = {"one class": 1, "few": 3}.get(rows, N)
    config = config_of("groups")["config"] | {"counts": COUNTS[:n], "num_top": 2}
    head = SampledSoftmax(n, {"class_name": "top_and_tail", "config": config}, min(M, n))
    head.build((None, D))
    if rows == "equal":
        head.table.kernel.assign(np.zeros((n, D)))
        head.sampler.refresh(head.table)
    losses = to_numpy(head(HIDDEN, LABELS % n, training=True))
    assert np.isfinite(losses).all() and (n > 1 or np.allclose(losses, 0))


@pytest.mark.parametrize(
    ("cls", "layout"),
    [
        ("binary", "groups, one tail"),
        ("ranking", "examples"),
        ("corrected", "groups"),
        ("each", "examples"),
        ("augment", "groups, one tail"),
    ],
)
def test_other_objectives(cls, layout):
    makers = {
        "binary": (NoiseContrastive, {"objective": "binary", "regularization": 0.1}),
        "ranking": (NoiseContrastive, {"objective": "ranking"}),
        "corrected": (SampledSoftmax, {"correct_true_logit": True}),
        "each": (OneVsEach, {}),
        "augment": (lambda n, **o: AugmentReduce(n, num_examples=50, **o), {}),
    }
    maker, options = makers[cls]
    if cls == "binary":
        options = {**options, "regularization_samples": M}
    head = head_of(layout, cls=maker, **options)
    ids = {"example_ids": np.arange(B, dtype="int32")} if cls == "augment" else {}
    weight = np.r_[np.ones(B - 2), 0, 0].astype("float32")
    hidden = np.where(weight[:, None] == 0, np.nan, HIDDEN).astype("float32")
    losses = to_numpy(head(hidden, LABELS, sample_weight=weight, training=True, **ids))
    assert np.isfinite(losses).all() and (losses[weight > 0] > 0).all()
    assert (losses[weight == 0] == 0).all()
    if cls == "augment":  # each example's own eta, whatever order the groups had them in
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
    first = config_of("batch")
    uniform = {"class_name": "uniform", "config": {"share_draws": True}}
    config = {"first": first, "second": uniform, "seed": 1, "num_sampled": [M, 4]}
    sampler = samplers.get({"class_name": "mixed", "config": config})
    table = head_of("batch").table
    sampler.build((N, D), M + 4, table)
    samples = sampler.sample(table, HIDDEN, M + 4)
    assert samples.ids.shape == (1, T + M + 4)
    expected = np.exp(log_counts(sampler.first, table, HIDDEN, M))[0] + 4 / N
    ids, count = to_numpy(samples.ids)[0], np.exp(to_numpy(samples.log_expected_count))[0]
    np.testing.assert_allclose(count[count > 0], expected[ids][count > 0], rtol=1e-4)
    assert (count[:T] > 1).all() and set(ids[count == 0]) <= set(ids[:T])


@pytest.mark.parametrize("layout", thorough_but(["groups", "examples"], "groups"))
def test_save_and_load(layout, tmp_path):
    head = head_of(layout)
    hidden, labels = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([hidden, labels], head(hidden, labels))
    model.compile("sgd")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    loaded = next(layer for layer in again.layers if isinstance(layer, SampledSoftmax))
    assert loaded.sampler.get_config() == head.sampler.get_config()
    batch = [HIDDEN, LABELS]
    np.testing.assert_allclose(again.train_on_batch(batch), model.train_on_batch(batch), rtol=1e-6)


def test_groups_are_of_similar_examples():
    centres = np.array([[9, 0], [0, 9], [-9, 0], [0, -9]], float)
    member = RNG.permutation(np.arange(18) % 4)  # 5, 5, 4 and 4: groups of 5, 5, 5 and 3
    points = (centres[member] + RNG.normal(0, 0.1, (18, 2))).astype("float32")

    def order_of(points, count):
        return to_numpy(compiled(lambda x: groups.similar(x, count))(points))

    order = order_of(points, 2)
    assert sorted(order.tolist()) == list(range(18))
    parts = [set(member[order[:9]]), set(member[order[9:]])]
    assert len(parts[0] & parts[1]) <= 1
    points[3] = np.nan
    broken = order_of(points, 8)
    assert sorted(broken.tolist()) == list(range(18))
    few = order_of(points[:3], 8)
    assert sorted(few.tolist()) == [0, 1, 2]


def test_membership():
    sets = np.array([[4, 1, 9], [7, 8, 0]], "int32")
    ids = np.array([[0, 1, 4, 9, 10], [0, 1, 7, 8, 2**30]], "int32")
    found = to_numpy(groups.contains(*(keras.ops.convert_to_tensor(x) for x in (sets, ids))))
    np.testing.assert_array_equal(found, [[0, 1, 1, 1, 0], [1, 0, 1, 1, 0]])


def test_a_tail_of_another_kind():
    """An in-batch tail, one with replacement, and one that follows the table."""
    for tail in ("in_batch", {"class_name": "uniform", "config": {}}, "codebook"):
        head = head_of("batch", {"tail": tail})
        assert np.isfinite(to_numpy(head(HIDDEN, LABELS, training=True))).all()
        if tail != "in_batch":
            log_q = to_numpy(head.sampler.log_prob(head.table, HIDDEN)).astype(float)
            np.testing.assert_allclose(np.exp(log_q).sum(-1), 1.0, rtol=1e-4)


@pytest.mark.parametrize("layout", slow_but(LAYOUTS, "groups", thorough=("batch",)))
def test_the_variances_of_a_tail_with_replacement(layout):
    """Measured: of the partition's estimates, and of the rows' gradients."""
    share = {"groups": 4}.get(layout, True)
    tail = {"class_name": "uniform", "config": {"share_draws": share}}
    head = head_of(layout, {"tail": tail})
    sampler, table = head.sampler, head.table
    order = sampler.arrange(keras.ops.convert_to_tensor(HIDDEN))
    order = np.arange(B) if order is None else to_numpy(order)
    p = reference.softmax(reference.scores(HIDDEN[order], KERNEL, BIAS))
    draw, rows = compiled(lambda h: sampler.sample(table, h, M), sampler), np.arange(B)[:, None]
    partition, gradients = [], []
    for _ in range(1000):
        ids, log_count = per_example(draw(HIDDEN[order]), layout)
        times = np.zeros((B, N))
        weight = np.where(np.isfinite(log_count), np.exp(-log_count), 0.0)
        np.add.at(times, (np.broadcast_to(rows, ids.shape), ids), weight)
        partition.append((p * times).sum(-1))
        gradients.append((p * times).T @ HIDDEN[order])
    said = diagnostics.relative_variance(head, HIDDEN)
    np.testing.assert_allclose(
        said.values[order].mean(), np.var(partition, axis=0).mean(), rtol=0.2
    )
    measured = np.var(gradients, axis=0).sum(-1) / np.sum((p.T @ HIDDEN[order]) ** 2, axis=-1)
    said = diagnostics.row_variance(head, HIDDEN).values
    np.testing.assert_allclose(said, measured, rtol=0.5, atol=0.05 * measured.max())


def test_bad_input_is_named():
    def make(**config):
        return samplers.get(config_of("groups", **config))

    for name, bad in (
        ("num_top", 0),
        ("num_candidates", T),
        ("share_draws", {"share_draws": 3}),
        ("share_draws", {"share_draws": 0}),
        ("share_draws", {"share_draws": 6}),
        ("counts", [1.0, np.nan]),
        ("top", "unigram"),
        ("top", {"class_name": "codebook", "config": {"within_cell": "exact"}}),
        ("share_draws", {"tail": "exp"}),
    ):
        config = bad if name == "share_draws" else {name: bad}
        rejects(name, make, **config)
    rejects("counts", samplers.get, "top_and_tail")
    table = ClassTable(N + 1)
    table.build((None, D))
    rejects("counts", make().build, (N + 1, D), M, table)
    table = ClassTable(N)
    table.build((None, D))
    rejects("num_sampled", make().build, (N, D), N + 1, table)
