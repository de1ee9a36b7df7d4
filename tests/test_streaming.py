"""Losses over all classes in blocks and tiles: the same as at once, and how exact they are."""

import ml_dtypes
import numpy as np
import pytest
import reference
from conftest import (
    BACKEND,
    gradient_function,
    head_gradients,
    on_table,
    thorough_but,
    to_numpy,
)
from keras import ops
from small import assert_all_close
from test_identities import (
    OPTIONS,
    B,
    D,
    N,
    assert_same,
    reference_scores,
    with_weights,
)

from softbench import ClassTable, FullSoftmax, streaming

# Under XLA TensorFlow multiplies bfloat16, and writes into tables in another way.
COMPILERS = {"graph": False, "xla": True} if BACKEND == "tensorflow" else {"jax": False}
PLAIN = next(iter(COMPILERS))
NUMBERS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
# Of gradients. Two factors of a bfloat16 product are rounded, by at most 2^-9 each.
EXACT, HALF = 1e-5, 2.0**-8


def expected_gradients(head, hidden, labels, factor):
    """Sum of factor (B,) times loss, and its gradients by hidden, kernel and bias."""
    table, scores = head.table, reference_scores(head, hidden)
    loss = factor @ reference.negative_log_likelihood(scores, labels)
    error = reference.softmax(scores)
    error[np.arange(len(labels)), labels] -= 1
    error *= factor[:, None]
    arrays = np.asarray(hidden, float), to_numpy(table.kernel).astype(float)
    length = [np.linalg.norm(x, axis=1, keepdims=True) if table.normalize else 1 for x in arrays]
    unit = [x / size for x, size in zip(arrays, length, strict=True)]
    by_inner = error / table.temperature
    by_inner = by_inner * np.sign(unit[0] @ unit[1].T) if table.absolute else by_inner
    gradients = [by_inner @ unit[1], by_inner.T @ unit[0]]
    if table.normalize:  # of x / |x|
        triples = zip(gradients, unit, length, strict=True)
        gradients = [(g - np.sum(g * u, 1, keepdims=True) * u) / s for g, u, s in triples]
    return loss, gradients if table.bias is None else [*gradients, error.sum(0)]


MEAN = np.full(B, 1 / B)


@pytest.fixture
def batch(rng):
    return rng.normal(size=(B, D)).astype("float32"), rng.integers(0, N, B).astype("int32")


@pytest.mark.parametrize("chunk", [1, 4, 50])
def test_class_chunks_change_nothing(batch, chunk):
    """n = 13 is not divisible by 4."""
    head = with_weights(on_table(FullSoftmax, N, class_chunk=chunk, **OPTIONS["everything"]))
    assert_same(head_gradients(head, *batch), expected_gradients(head, *batch, MEAN))


# Scores that are kept, rows of them, examples of a tile whose scores are computed twice.
TILES = {
    "kept, 3 rows": (100, 3, 8),
    "kept, one tile": (104, 8, 8),
    "twice, 3 rows": (12, 3, 3),
    "twice, one tile": (12, 8, 8),
}


@pytest.fixture(params=TILES)
def tiled(request, monkeypatch):
    """Blocks of 4 of the 13 classes, and tiles of 3 of the 8 examples or of all."""
    kept, rows, examples = TILES[request.param]
    monkeypatch.setattr(streaming, "CPU", streaming.Sizes(kept, rows, 2, examples, 4, 4))
    keep = "kept" in request.param
    assert streaming.tile(B, N, None) == (rows, 4, keep, keep and rows < B)


@pytest.mark.parametrize("options", ["plain", "everything"])
def test_tiles_change_nothing(batch, options, tiled):
    """The mean, and sum_b c_b loss_b, which tiles do not expect: the table's are made anew."""
    hidden, labels = batch
    head = with_weights(on_table(FullSoftmax, N, **OPTIONS[options]))
    weighted = lambda h, y, c: ops.sum(head(h, y, training=True) * c)  # noqa: E731
    function = gradient_function(weighted, head, [head.table.kernel, head.table.bias])
    for factors in (MEAN, np.linspace(-1, 2, B)):
        expected = expected_gradients(head, hidden, labels, factors)
        assert_same(function(hidden, labels, factors.astype("float32")), expected)


def test_large_scores_of_examples_that_do_not_count(batch, tiled):
    """e^score of them is infinite; of none that counts, all gradients are 0."""
    hidden, labels = 100 * batch[0], batch[1]
    head = with_weights(FullSoftmax(N))

    def loss(hidden, labels, weight, factors):
        losses = head(hidden, labels, training=True, sample_weight=weight)
        return ops.sum(losses * factors)

    function = gradient_function(loss, head, [head.table.kernel, head.table.bias])
    assert np.abs(reference_scores(head, hidden)).max() > 90
    for count in (0, 2, 5):
        weight = (np.arange(B) < count).astype("float32")
        for factors in (np.ones(B, "float32"), np.linspace(-1, 2, B).astype("float32")):
            expected = expected_gradients(head, hidden, labels, (weight * factors).astype(float))
            assert_same(function(hidden, labels, weight, factors), expected, 1e-4)


@pytest.mark.parametrize("chunk", [None, 1, 1000])
@pytest.mark.parametrize("size", [1, 256, 2**18, None])
@pytest.mark.parametrize("n", [2, 10_000, 10**8])
def test_scores_held_at_once_are_bounded(size, n, chunk):
    tile = streaming.tile(size, n, chunk)
    held = tile.rows * (n if tile.keep else tile.classes)
    examples = 1 if size is None else size
    assert held <= (2**25 if chunk is None else max(examples * chunk, streaming.CPU.least))


def test_no_gradient_is_made_that_nothing_records(batch, monkeypatch):
    """Of tiles for which it is formed early, with the loss."""
    monkeypatch.setattr(streaming, "tile", lambda *_: streaming.Tile(4, 4, True, True))
    head = with_weights(FullSoftmax(N))
    hidden, labels = batch
    expected = reference.negative_log_likelihood(reference_scores(head, hidden), labels)
    made, second_pass = [], streaming._second_pass
    monkeypatch.setattr(streaming, "_second_pass", lambda *_: made.append(1) or second_pass(*_))
    np.testing.assert_allclose(to_numpy(head(hidden, labels, training=True)), expected, rtol=1e-5)
    assert not made
    head_gradients(head, hidden, labels)
    assert made


def test_log_partition(batch, tiled):
    table = ClassTable(N)
    table.build((None, D))
    table.bias.assign(np.linspace(-3, 80, N))
    hidden = ops.convert_to_tensor(batch[0])
    expected = reference.logsumexp(reference.scores(batch[0], table.kernel, to_numpy(table.bias)))
    np.testing.assert_allclose(to_numpy(table.log_partition(hidden)), expected, rtol=1e-5)


def rounded(x, dtype):
    """float64 values that the dtype has."""
    return np.asarray(x).astype(NUMBERS[dtype]).astype(float)


def drawn(generator, scores):
    """A class of each row by its softmax."""
    return np.argmax(scores + generator.gumbel(size=scores.shape), axis=1).astype("int32")


def measuring(kernel, dtype, chunks, xla, call=(), **options):
    """(hidden, labels, factor (B,)) -> the sum of factor times loss, and its two gradients.

    Args:
        chunks: how many `class_chunk` makes of n; None leaves it to the library.
        call: further arguments of the head's call.
    """
    policy = "float32" if dtype == "float32" else f"mixed_{dtype}"
    units = len(kernel)
    options |= {"class_chunk": chunks and units // chunks, "use_bias": False, "dtype": policy}
    head = on_table(FullSoftmax, units, **options)
    head.build((None, kernel.shape[1]))
    head.table.kernel.assign(kernel)

    def loss(hidden, labels, factor):
        losses = head(hidden, labels, *map(ops.convert_to_tensor, call), training=True)
        return ops.sum(losses * factor)

    function = gradient_function(loss, head, [head.table.kernel], xla=xla)
    return lambda hidden, labels, factor: function(
        hidden.astype("float32"), labels, factor.astype("float32")
    )


def error_of(measured, expected):
    """Relative, of whole arrays."""
    return np.linalg.norm(measured - expected) / np.linalg.norm(expected)


def of_the_model(generator, dtype):
    """Labels that the scores say, so that what is left of p - y is small."""
    hidden = rounded(generator.normal(size=(32, 128)), dtype)
    kernel = rounded(generator.normal(size=(2048, 128)) * 8 / np.sqrt(128), dtype)
    return hidden, kernel, drawn(generator, hidden @ kernel.T)


def of_a_common_mean(generator, dtype):
    """Sums over chunks that are much larger than their differences, as with trained tables."""
    hidden = rounded(generator.normal(size=(16, 32)) + 1.0, dtype)
    kernel = rounded(0.05 * generator.normal(size=(8192, 32)) + 0.1, dtype)
    return hidden, kernel, generator.integers(0, 8192, 16).astype("int32")


def of_10000(generator, dtype):
    """Logits of whole numbers, which every dtype and the sums of their products hold exactly."""
    hidden = generator.integers(-25, 26, (12, 16)).astype(float)
    kernel = generator.integers(-25, 26, (256, 16)).astype(float)
    hidden[0], kernel[0] = 25, 25
    labels = generator.integers(0, 256, 12).astype("int32")
    labels[:2] = (hidden[:2] @ kernel.T).argmax(1)
    return hidden, kernel, labels


PROBLEMS = {"model": of_the_model, "mean": of_a_common_mean, "10,000": of_10000}
BOUNDS = {"model": 0.003, "mean": 0.004, "10,000": HALF}  # of gradients by hidden in bfloat16
IN_BLOCKS = [("model", "bfloat16", 64), ("mean", "bfloat16", 1024)]
MEASURED = [("model", "bfloat16", None), ("mean", "float32", 256), ("10,000", "float16", 16)]
MEASURED = [(*problem, PLAIN) for problem in [*MEASURED, *IN_BLOCKS]]
MEASURED += [(*problem, "xla") for problem in IN_BLOCKS if "xla" in COMPILERS]


@pytest.mark.parametrize(("problem", "dtype", "chunks", "compiler"), MEASURED)
def test_gradients_are_as_exact_as_their_products(problem, dtype, chunks, compiler):
    hidden, kernel, labels = PROBLEMS[problem](np.random.default_rng(0), dtype)
    size, scores = len(hidden), hidden @ kernel.T
    assert problem != "10,000" or scores.max() == 10_000
    error = reference.softmax(scores)
    error[np.arange(size), labels] -= 1
    function = measuring(kernel, dtype, chunks, COMPILERS[compiler])
    loss, (to_hidden, to_kernel) = function(hidden, labels, np.full(size, 1 / size))
    nll = reference.negative_log_likelihood(scores, labels).mean()
    np.testing.assert_allclose(loss, nll, rtol=1e-5)
    is_half = dtype == "bfloat16"
    assert error_of(to_hidden, error @ kernel / size) < (BOUNDS[problem] if is_half else EXACT)
    assert error_of(to_kernel, error.T @ hidden / size) < (HALF if is_half else EXACT)


def losses_of_labels(scores, labels, smoothing):
    """Losses (B,) and their derivatives by scores (B, n); labels (B, P), distinct, or -1 for none.

    The mean over labels of log(1 + exp(log of the sum over the classes that are no label - score)),
    and of one label smoothing (its score - the mean score).
    """
    losses, slopes = np.zeros(len(scores)), np.zeros(scores.shape)
    for b, (row, ids) in enumerate(zip(scores, labels, strict=True)):
        ids = ids[ids >= 0]
        if not len(ids):
            continue
        rest = ~np.isin(np.arange(len(row)), ids)
        log_rest = reference.logsumexp(row[rest])
        share = reference.sigmoid(log_rest - row[ids]) / len(ids)
        slopes[b, rest] = share.sum() * np.exp(row[rest] - log_rest)
        slopes[b, ids] = -share
        losses[b] = reference.softplus(log_rest - row[ids]).mean()
        if smoothing:
            losses[b] += smoothing * (row[ids[0]] - row.mean())
            slopes[b, ids] += smoothing
            slopes[b] -= smoothing / len(row)
    return losses, slopes


ONE = np.array([[3], [0], [255], [77], [3]], "int32")
SEVERAL = np.array([[3, 7, -1], [0, -1, -1], [5, 2, 255], [-1, -1, -1], [4, 130, 10]], "int32")
CASES = {  # labels, weights, options
    "weights": (ONE, np.array([1, 0, 0.5, 3, 0], "float32"), {}),
    "padding": (np.where([[0], [1], [0], [0], [1]], -1, ONE), None, {"ignore_index": -1}),
    "several labels": (SEVERAL, None, {"multi_label": "mean"}),
    "soft cap, label smoothing": (ONE, None, {"logit_soft_cap": 3.0, "label_smoothing": 0.2}),
    "soft cap, several labels": (SEVERAL, None, {"logit_soft_cap": 3.0, "multi_label": "mean"}),
    "absolute, label smoothing": (ONE, None, {"absolute": True, "label_smoothing": 0.2}),
}
BOTH_WAYS = ("weights", "soft cap, several labels")
STEPS = [(case, PLAIN, "float32", 16) for case in CASES]
STEPS += [(case, "xla", "float32", 16) for case in BOTH_WAYS if "xla" in COMPILERS]
HALVES = [(case, PLAIN, "bfloat16", 256) for case in BOTH_WAYS]


@pytest.mark.parametrize(
    ("case", "compiler", "dtype", "chunks"), thorough_but([*STEPS, *HALVES], *STEPS)
)
def test_what_a_loss_may_have(case, dtype, chunks, compiler, monkeypatch):
    """In tiles of two of the five examples, which expect one factor of all losses: and another."""
    monkeypatch.setattr(streaming, "CPU", streaming.Sizes(512, 2, 1, 2, 64, 1))
    labels, weight, options = CASES[case]
    generator, d = np.random.default_rng(3), 16
    hidden = rounded(generator.normal(size=(5, d)), dtype)
    kernel = rounded(generator.normal(size=(256, d)), dtype)
    smoothing = options.get("label_smoothing", 0.0)
    scores, by_inner = hidden @ kernel.T, 1.0
    if "absolute" in options:
        scores, by_inner = np.abs(scores), np.sign(scores)
    if cap := options.get("logit_soft_cap"):
        scores = cap * np.tanh(scores / cap)
        by_inner = 1 - (scores / cap) ** 2
    losses, slopes = losses_of_labels(scores, labels, smoothing)
    call = () if weight is None else (weight,)
    function = measuring(kernel, dtype, chunks, COMPILERS[compiler], call, **options)
    bound = HALF if dtype == "bfloat16" else EXACT
    for factor in (np.full(5, 0.7), generator.uniform(0.5, 2.0, 5)):
        given = labels if "multi_label" in options else labels[:, 0]
        loss, (to_hidden, to_kernel) = function(hidden, given, factor)
        factor = factor if weight is None else factor * weight
        by_scores = slopes * by_inner * factor[:, None]
        np.testing.assert_allclose(loss, factor @ losses, rtol=1e-5)
        assert error_of(to_hidden, by_scores @ kernel) < bound
        assert error_of(to_kernel, by_scores.T @ hidden) < bound


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX has neither of these")
@pytest.mark.parametrize(
    "tiled", thorough_but(["kept, 3 rows", "twice, 3 rows"], "kept, 3 rows"), indirect=True
)
def test_batches_of_any_size_and_two_gradients_of_one_pass(batch, tiled):
    """Of one trace, and of one tape, in which nothing is written that another gradient needs."""
    import tensorflow as tf

    head = with_weights(FullSoftmax(N))
    kernel = head.table.kernel.value
    factors = [np.full(B, 0.25, "float32"), np.linspace(-1, 2, B).astype("float32")]
    factors.append(factors[0])

    def gradients(hidden, labels):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(hidden)
            losses = head(hidden, labels, training=True)
            size = tf.shape(hidden)[0]
            sums = [tf.reduce_sum(losses * tf.constant(factor)[:size]) for factor in factors]
        return [tape.gradient(x, (hidden, kernel)) for x in sums]

    dynamic = [tf.TensorSpec((None, D)), tf.TensorSpec((None,), tf.int32)]
    sizes = {False: (3, B), True: (B,)}  # XLA compiles for each
    hidden, labels = batch
    for xla in sizes:
        call = tf.function(gradients, dynamic, jit_compile=xla)
        for size in sizes[xla]:
            arrays = tf.constant(hidden[:size]), tf.constant(labels[:size])
            for factor, found in zip(factors, call(*arrays), strict=True):
                weights = factor[:size].astype(float)
                expected = expected_gradients(head, hidden[:size], labels[:size], weights)[1]
                assert_all_close(found, expected[:2], 1e-4, 1e-5)
