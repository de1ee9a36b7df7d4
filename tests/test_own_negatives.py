"""Negatives of one's own, which count once beside the draws, and classes that never count."""

import functools

import keras
import numpy as np
import pytest
import reference
from conftest import FixedSampler, compiled, gradient_function, rejects, to_numpy
from hypothesis import given
from hypothesis import strategies as st
from property_cases import SAMPLED, cases, head_of
from small import labels_below, randomize, saved_and_loaded, spec, values, vectors

from softbench import (
    AdaptiveSoftmax,
    AugmentReduce,
    BucketedSoftmax,
    Classifier,
    FullSoftmax,
    HierarchicalSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowAdam,
    RowSGD,
    SampledHinge,
    SampledSoftmax,
    TiedEmbedding,
)
from softbench.samplers import Samples

N, D, B, M = 11, 4, 5, 6
ALL = spec("uniform", unique=True)  # with m = n every class once
HIDDEN, LABELS = vectors(B, D), np.array([0, 3, 3, 10, 7], "int32")
# Padding, a duplicate, the label, ids that are drawn, and none at all.
NEGATIVES = np.array(
    [[5, -1, 2, 5], [3, 4, 6, -1], [1, 1, 1, 1], [-1, -1, -1, -1], [8, 9, 0, 2]], "int32"
)
COUNTS = np.random.default_rng(1).normal(0, 1, NEGATIVES.shape).astype("float32")
COUNTS[NEGATIVES < 0] = np.nan  # is not looked at
# None at all, a negative, the label, all negatives, and most classes.
EXCLUDED = np.full((B, N - 1), -1, "int32")
for row, ids in enumerate(([], [4, 4], [3], [1, 2], [*range(7), 8, 9])):
    EXCLUDED[row, : len(ids)] = ids


def softplus(x):
    return np.logaddexp(0, x)


def negative_sampling(t, s, tc, c, m):
    """Eq. 2 and 6 with p_n = E[count] / m, m the draws alone."""
    penalty = (t + np.log(tc / m)) ** 2 + ((s + np.log(c / m)) ** 2).sum(-1) / m
    return softplus(-t) + softplus(s).sum(-1) / m + 0.1 * penalty


def gbce(t, s, tc, c, m):
    beta = 1 - 0.5 * (1 - m / (N - 1))  # alpha (t (1 - 1 / alpha) + 1 / alpha), t = 1/2
    return beta * softplus(-t) + softplus(s).sum(-1)


# name -> class, arguments, the loss of logits and expected counts
HEADS = {
    "sampled": (
        SampledSoftmax,
        {},
        lambda t, s, tc, c, m: reference.sampled_softmax(t, s, None, c),
    ),
    "corrected": (
        SampledSoftmax,
        {"correct_true_logit": True},
        lambda t, s, tc, c, m: reference.sampled_softmax(t, s, tc, c),
    ),
    "psl": (
        SampledSoftmax,
        {"objective": "psl"},
        lambda t, s, tc, c, m: reference.psl(t, s, c, 0.5, "tanh"),
    ),
    "sl_at_k": (
        SampledSoftmax,
        {"objective": spec("sl_at_k", k=2)},
        lambda t, s, tc, c, m: reference.sl_at_k(t, s, c, 2, 10.0),
    ),
    "ranking": (
        NoiseContrastive,
        {"objective": "ranking"},
        lambda t, s, tc, c, m: reference.sampled_softmax(t, s, tc, c),
    ),
    "binary": (
        NoiseContrastive,
        {},
        lambda t, s, tc, c, m: softplus(np.log(tc) - t) + softplus(s - np.log(c)).sum(-1),
    ),
    "negative": (NegativeSampling, {"regularization": 0.1}, negative_sampling),
    "gbce": (NegativeSampling, {"objective": "gbce", "t": 0.5}, gbce),
    "each": (OneVsEach, {}, lambda t, s, tc, c, m: (softplus(s - t[:, None]) / c).sum(-1)),
    "augment": (  # at the first visit of an example
        AugmentReduce,
        {"num_examples": B},
        lambda t, s, tc, c, m: reference.sampled_softmax(t, s, None, c),
    ),
    "hinge": (
        SampledHinge,
        {},
        lambda t, s, tc, c, m: np.maximum(0, 1 + (s - t[:, None]).max(-1, initial=-np.inf)),
    ),
}


def draws(rows):
    """Fixed draws (rows, M), with a draw that does not count, and counts of the labels."""
    rng = np.random.default_rng(rows)
    ids = rng.integers(0, N, (rows, M)).astype("int32")
    count = rng.normal(0, 1, (rows, M)).astype("float32")
    count[0, 1] = -np.inf
    return Samples(ids, count, rng.normal(0, 1, B).astype("float32"))


def made(cls, samples, **options):
    sampler = FixedSampler(Samples(*map(keras.ops.convert_to_tensor, samples[:2]), samples[2]))
    sampler.depends_on = frozenset()  # for `NegativeSampling`
    head = cls(N, sampler, M, **options)
    head.build((None, D))
    randomize(head.table)
    return head


def scores_of(head):
    bias = to_numpy(head.table.bias)
    return reference.scores(HIDDEN.astype(float), to_numpy(head.table.kernel), bias)


def expected_losses(scores, loss, samples, negatives, log_counts, keep, excluded=None):
    """Example by example: the draws that are no negatives, and every negative once.

    And none of those that are excluded.
    """
    result = []
    for b, own in enumerate(negatives):
        never = set() if excluded is None else set(excluded[b].tolist())
        row = b % len(samples.ids)
        place = {int(i): slot for slot, i in reversed([*enumerate(own)]) if i >= 0}
        count = {i: 0.0 if log_counts is None else log_counts[b, slot] for i, slot in place.items()}
        pairs = zip(samples.ids[row].tolist(), samples.log_expected_count[row], strict=True)
        pairs = [(i, c) for i, c in pairs if i not in count and np.isfinite(c)] + [*count.items()]
        pairs = [(i, c) for i, c in pairs if (keep or i != LABELS[b]) and i not in never]
        ids, c = [i for i, _ in pairs], np.exp(np.array([c for _, c in pairs], float))
        true = count.get(int(LABELS[b]), samples.true_log_expected_count[b])
        t, s = scores[b, LABELS[b]][None], scores[b, ids][None]
        result.append(loss(t, s, np.exp(np.array([true], float)), c, M)[0])
    return np.array(result)


def given_losses(head, **own):
    """Of a compiled step with `negatives`, `negatives_log_count`, `excluded`; None is left out."""
    extra = {"example_ids": np.arange(B)} if isinstance(head, AugmentReduce) else {}
    own = {name: array for name, array in own.items() if array is not None}

    def train(hidden, labels, *arrays):
        named = dict(zip(own, arrays, strict=True))
        return head(hidden, labels, training=True, **named, **extra)

    return to_numpy(compiled(train, head)(HIDDEN, LABELS, *own.values()))


# Draws that the batch shares, and draws of each example with counts that are given, in turn.
GIVEN = [(name, number % 2) for number, name in enumerate(HEADS)]


@pytest.mark.parametrize(("name", "each"), GIVEN)
def test_every_class_counts_once(name, each):
    rows, log_counts = (B, COUNTS) if each else (1, None)
    cls, options, loss = HEADS[name]
    head, samples = made(cls, draws(rows), **options), draws(rows)
    found = given_losses(head, negatives=NEGATIVES, negatives_log_count=log_counts)
    keep = not head.remove_accidental_hits
    expected = expected_losses(scores_of(head), loss, samples, NEGATIVES, log_counts, keep)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "each"), [(name, 1 - each) for name, each in GIVEN])
def test_what_is_excluded_never_counts(name, each):
    """Beside negatives of one's own, and without any."""
    cls, options, loss = HEADS[name]
    for negatives in (NEGATIVES, None):
        head, samples = made(cls, draws(B if each else 1), **options), draws(B if each else 1)
        found = given_losses(head, negatives=negatives, excluded=EXCLUDED)
        keep = not head.remove_accidental_hits
        own = np.full((B, 1), -1) if negatives is None else negatives
        given = scores_of(head), loss, samples, own, None, keep, EXCLUDED
        np.testing.assert_allclose(found, expected_losses(*given), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("sampler", [ALL, spec("uniform"), spec("codebook", share_draws=2)])
def test_an_excluded_class_gets_no_gradient(sampler):
    """Whatever is drawn, from shared draws, own ones and those of groups of examples."""
    head = SampledSoftmax(N, sampler, N, seed=1)
    head.build((None, D))
    randomize(head.table)
    labels, excluded = np.zeros(B, "int32"), np.tile(np.arange(3, 9, dtype="int32"), (B, 1))
    _, (_, moved, _) = gradient_function(
        lambda h, y, z: keras.ops.mean(head(h, y, excluded=z, training=True)),
        head,
        [head.table.kernel, head.table.bias],
    )(HIDDEN, labels, excluded)
    is_moved = (to_numpy(moved) != 0).any(-1)
    assert is_moved[0] and not is_moved[3:9].any() and is_moved[[1, 2, 9, 10]].any()


def test_all_other_classes_excluded():
    """The label alone is left: a loss of 0."""
    head = SampledSoftmax(N, ALL, N)
    head.build((None, D))
    losses = head(HIDDEN, LABELS, excluded=np.tile(np.arange(N), (B, 1)), training=True)
    np.testing.assert_array_equal(to_numpy(losses), 0)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"objective": "psl"}])
def test_beside_draws_of_all_classes_they_change_nothing(options):
    losses = []
    for own in ({}, {"negatives": NEGATIVES}):
        head = SampledSoftmax(N, ALL, N, **options)
        head.build((None, D))
        randomize(head.table)
        losses.append(to_numpy(head(HIDDEN, LABELS, training=True, **own)))
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_of_several_labels():
    """A label among them is no negative for any label of its example."""
    labels = np.array([[0, 5], [3, -1], [2, 3], [10, 4], [7, 8]], "int32")
    samples = draws(1)._replace(true_log_expected_count=None)
    head = made(SampledSoftmax, samples, multi_label="mean")
    scores = scores_of(head)
    expected = []
    for b, own in enumerate(labels):
        given_ids = set(NEGATIVES[b]) - {-1}
        pairs = zip(samples.ids[0].tolist(), samples.log_expected_count[0], strict=True)
        pairs = [(i, c) for i, c in pairs if i not in given_ids and np.isfinite(c)]
        pairs += [(i, 0.0) for i in given_ids]
        pairs = [(i, c) for i, c in pairs if i not in own]
        s = scores[b, [i for i, _ in pairs]][None]
        c = np.exp(np.array([c for _, c in pairs], float))
        each = [reference.sampled_softmax(scores[b, [i]], s, None, c)[0] for i in own if i >= 0]
        expected.append(np.mean(each))
    found = head(HIDDEN, labels, negatives=NEGATIVES, training=True)
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-4)


def test_rows_get_the_gradient_of_the_loss():
    """`RowSGD` at rate 1 moves the kernel by the gradient of the mean loss."""
    head = made(SampledSoftmax, draws(1))
    _, (_, expected, _) = gradient_function(
        lambda h, y: keras.ops.mean(head(h, y, negatives=NEGATIVES, training=True)),
        head,
        [head.table.kernel, head.table.bias],
    )(HIDDEN, LABELS)
    rows = made(SampledSoftmax, draws(1), row_optimizer=RowSGD(1.0))
    before = to_numpy(rows.table.kernel).copy()
    given_losses(rows, negatives=NEGATIVES)
    moved = before - to_numpy(rows.table.kernel)
    np.testing.assert_allclose(moved, to_numpy(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["negatives", "excluded"])
@given(cases(heads=tuple(SAMPLED), plain=True), st.data())
def test_padding_order_and_duplicates_change_nothing(name, case, data):
    """And losses are finite, whatever is given."""
    ids = st.integers(-1, case.units - 1)
    batch = len(case.labels)
    own = [data.draw(st.lists(ids, min_size=3, max_size=3)) for _ in range(batch)]
    other = [data.draw(st.permutations([*row, row[0]])) for row in own]
    extra = {"example_ids": np.arange(batch)} if case.head == "augment" else {}

    def losses(negatives):
        more = {} if negatives is None else {name: np.array(negatives, "int32")}
        head = head_of(case)
        return to_numpy(head(case.hidden, case.labels, training=True, **more, **extra))

    one, two = losses(own), losses(other)
    assert np.isfinite(one).all()
    np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-5)
    empty = losses(np.full((batch, 2), -1))
    np.testing.assert_allclose(empty, losses(None), rtol=1e-5, atol=1e-5)


# Examples that do not count, and ids out of range.


@functools.cache
def trainable():
    """A head with row updates, a compiled step, and what it keeps when all rows have moments."""
    sampler = spec("uniform", share_draws=True)
    head = SampledSoftmax(N, sampler, 1, row_optimizer=RowAdam(0.3), seed=1)
    head.build((None, D))
    randomize(head.table)
    step = compiled(
        lambda h, y, w, z: head(h, y, sample_weight=w, negatives=z, training=True), head
    )
    step(vectors(N, D), np.arange(N, dtype="int32"), np.ones(N, "float32"), NEGATIVES[[3] * N])
    return head, step, values(head.variables)


def trained(negatives, weight=None):
    """The losses of a step, and the rows that it has moved: one that is looked up moves."""
    head, step, start = trainable()
    for variable, value in zip(head.variables, start, strict=True):
        variable.assign(value)
    before = to_numpy(head.table.kernel).copy()
    weight = np.ones(B, "float32") if weight is None else np.array(weight, "float32")
    losses = to_numpy(step(HIDDEN, LABELS, weight, np.array(negatives, "int32")))
    return losses, set(np.flatnonzero((to_numpy(head.table.kernel) != before).any(-1)))


def test_negatives_of_examples_that_do_not_count_move_no_row():
    weight = [1, 0, 1, 1, 0]
    one, moved = trained(NEGATIVES, weight)
    other = np.where(np.array(weight)[:, None] > 0, NEGATIVES, N + 5)  # out of range too
    two, others_moved = trained(other, weight)
    np.testing.assert_array_equal(one, two)
    looked_up = {0, 1, 2, 3, 5, 10}
    assert moved == others_moved and looked_up <= moved
    assert len(moved - looked_up) <= 1  # the draw


@pytest.mark.parametrize("bad", [N, -2])
def test_an_id_out_of_range_makes_its_loss_nan_in_a_compiled_step(bad):
    wrong = NEGATIVES.copy()
    wrong[4, 1] = bad
    losses, moved = trained(wrong)
    np.testing.assert_array_equal(np.isnan(losses), [False] * 4 + [True])
    assert moved == trained(NEGATIVES, [1, 1, 1, 1, 0])[1]


def sampled(**options):
    return SampledSoftmax(N, "uniform", 3, **options)


@pytest.mark.parametrize(
    ("argument", "head", "extra"),
    [
        ("negatives", sampled, {"negatives": NEGATIVES + N}),
        ("negatives", sampled, {"negatives": NEGATIVES - 1}),
        ("negatives", sampled, {"negatives": keras.ops.convert_to_tensor(NEGATIVES + N)}),
        ("negatives", sampled, {"negatives": NEGATIVES.astype("float32")}),
        ("negatives", sampled, {"negatives": NEGATIVES[:, 0]}),
        ("negatives", sampled, {"negatives": NEGATIVES[:3]}),
        ("negatives", sampled, {"negatives": NEGATIVES[:, :0]}),
        ("negatives", sampled, {"negatives_log_count": COUNTS}),
        ("negatives_log_count", sampled, {"negatives": NEGATIVES, "negatives_log_count": LABELS}),
        (
            "negatives_log_count",
            sampled,
            {"negatives": NEGATIVES, "negatives_log_count": np.full(COUNTS.shape, np.inf)},
        ),
        ("excluded", sampled, {"excluded": EXCLUDED + N}),
        ("excluded", sampled, {"excluded": keras.ops.convert_to_tensor(EXCLUDED - 1)}),
        ("excluded", sampled, {"excluded": EXCLUDED.astype("float32")}),
        ("excluded", sampled, {"excluded": EXCLUDED[:3]}),
        *(
            (name, lambda cls=cls, rest=rest: cls(N, *rest), {name: NEGATIVES})
            for name in ("negatives", "excluded")
            for cls, rest in (
                (FullSoftmax, ()),
                (HierarchicalSoftmax, ()),
                (AdaptiveSoftmax, ([4],)),
                (BucketedSoftmax, ()),
            )
        ),
    ],
)
def test_what_is_refused(argument, head, extra):
    rejects(argument, head(), HIDDEN, LABELS, training=True, **extra)


def test_a_tied_table_with_row_updates_takes_none():
    head = sampled(row_optimizer=RowSGD(0.1))
    TiedEmbedding(head, dim=D)
    head.build((B, D))
    for name in ("negatives", "excluded"):
        rejects(name, head, HIDDEN, LABELS, training=True, **{name: NEGATIVES})
        assert np.isfinite(to_numpy(head(HIDDEN, LABELS, **{name: NEGATIVES}))).all()


def test_of_sequences_with_padding():
    """(2, 3, k) are as (6, k), and with `max_valid` too; evaluation takes no notice."""
    hidden, labels = vectors(2, 3, D), np.array([[1, 2, -1], [3, -1, 4]], "int32")
    negatives, excluded, losses = labels_below(N, 2, 3, 2), labels_below(N, 2, 3, 3), []
    for options in ({}, {"max_valid": 4}):
        for shape in ((2, 3), (6,)):
            head = SampledSoftmax(N, ALL, N, ignore_index=-1, seed=1, **options)
            head.build((None, D))
            randomize(head.table)
            x, y = hidden.reshape(*shape, D), labels.reshape(shape)
            own = {"negatives": negatives.reshape(*shape, 2)}
            own["excluded"] = excluded.reshape(*shape, 3)
            found = head(x, y, training=True, **own)
            assert tuple(found.shape) == shape
            losses.append(to_numpy(found).ravel())
            evaluated = to_numpy(head(x, y, **own))
            np.testing.assert_array_equal(evaluated, to_numpy(head(x, y)))
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-5)


# In `Classifier` and `compare`.


def encoder(layer=None):
    x = keras.Input((D,), name="x")
    return keras.Model({"x": x}, (layer or keras.layers.Dense(3))(x))


def test_a_key_of_the_inputs(tmp_path):
    """`fit` learns what the negatives say; the model saves, loads and predicts with and without."""
    x = {"x": HIDDEN, "negatives": NEGATIVES, "negatives_log_count": np.zeros_like(COUNTS)}
    model = Classifier(encoder(), SampledSoftmax(N, "uniform", 2, seed=1))
    model.compile(keras.optimizers.SGD(0.1))
    model.fit(x, LABELS, batch_size=2, verbose=0)
    metrics = model.evaluate(x, LABELS, verbose=0, return_dict=True)
    without = model.evaluate({"x": HIDDEN}, LABELS, verbose=0, return_dict=True)
    assert metrics == without
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict({"x": HIDDEN}, verbose=0)
    )
    for name in ("negatives", "excluded"):
        bad = {**x, name: NEGATIVES + N}
        rejects(name, model.fit, bad, LABELS, verbose=0)


def test_the_classifier_gives_them_to_the_head():
    """One step: the loss is that of the head's own call, and not that without."""
    head, history = made(SampledSoftmax, draws(1)), []
    model = Classifier(encoder(keras.layers.Identity()), head)
    model.compile(keras.optimizers.SGD(0.0))
    none = np.full_like(NEGATIVES, -1)
    for own in ({"negatives": NEGATIVES}, {"negatives": none}, {"excluded": EXCLUDED}):
        fit = model.fit({"x": HIDDEN, **own}, LABELS, batch_size=B, verbose=0)
        history.append(fit.history["loss"][0])
        expected = to_numpy(head(HIDDEN, LABELS, training=True, **own)).mean()
        assert history[-1] == pytest.approx(expected, rel=1e-5)
    assert history[0] > history[1] > history[2]


def test_full_softmax_in_a_classifier_leaves_them_out():
    model = Classifier(encoder(), FullSoftmax(N))
    model.compile("sgd")
    model.fit({"x": HIDDEN, "negatives": NEGATIVES}, LABELS, verbose=0)
    rejects("excluded", model.fit, {"x": HIDDEN, "excluded": EXCLUDED}, LABELS, verbose=0)
    other = Classifier(encoder(), BucketedSoftmax(N))
    other.compile("sgd")
    rejects("negatives", other.fit, {"x": HIDDEN, "negatives": NEGATIVES}, LABELS, verbose=0)


def test_of_a_functional_model(tmp_path):
    x, y = keras.Input((D,)), keras.Input((), dtype="int32")
    z = keras.Input((4,), dtype="int32")
    head = SampledSoftmax(N, "uniform", 2, seed=1)
    model = keras.Model([x, y, z], head(x, y, negatives=z))
    model.compile("sgd")
    model.fit([HIDDEN, LABELS, NEGATIVES], verbose=0)
    loaded = saved_and_loaded(model, tmp_path)
    arrays = [HIDDEN, LABELS, NEGATIVES]
    np.testing.assert_array_equal(
        loaded.predict(arrays, verbose=0), model.predict(arrays, verbose=0)
    )
    with pytest.raises(ValueError, match="`negatives` must be integers"):
        head(x, y, negatives=keras.Input((4,)))
