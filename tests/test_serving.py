"""The best classes by an index: candidates, recall, export, and vectors for other libraries."""

import keras
import numpy as np
import pytest
import reference
from conftest import BACKEND, compiled, on_table, rejects, to_numpy
from head_zoo import COUNTS, HEADS, NOISE, D, N, built, numpy_scores
from head_zoo import arrays as table_arrays
from small import spec, training

import softbench
from softbench import FullSoftmax, NegativeSampling, RowAdagrad, SampledSoftmax
from softbench.samplers.codebook import search
from softbench.serving import Index, TopK

UNITS, WIDTH, K = 400, 6, 5
CODEBOOK = spec("codebook", num_codewords=8, counts="equal")
TOP = {"num_top": 4, "share_draws": True, "top": CODEBOOK, "counts": np.ones(UNITS).tolist()}
SAMPLERS = {
    "product": {**CODEBOOK, "config": {**CODEBOOK["config"], "quantizer": "product"}},
    "single": {**CODEBOOK, "config": {"num_codewords": 50, "quantizer": "single"}},
    "top_and_tail": spec("top_and_tail", **TOP),
}
NORMALISED = {"normalize": True, "temperature": 0.2}


def clustered_head(sampler=None, **options):
    """A head of 400 classes in 20 clusters, with biases."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(20, WIDTH)) * 2
    rows = centres[rng.integers(20, size=UNITS)] + 0.5 * rng.normal(size=(UNITS, WIDTH))
    options = {
        "kernel_initializer": lambda shape, dtype=None: keras.ops.convert_to_tensor(rows, dtype),
        "bias_initializer": keras.initializers.RandomNormal(0.0, 1.0, seed=2),
        **options,
    }
    if sampler is None:
        head = on_table(FullSoftmax, UNITS, **options)
    else:
        head = on_table(SampledSoftmax, UNITS, sampler, 6, **options)
    head.build((None, WIDTH))
    return head


def queries(size=64):
    """Hidden vectors near classes, so that there is something to find."""
    rng = np.random.default_rng(4)
    rows = to_numpy(clustered_head().table.kernel)
    near = rows[rng.integers(UNITS, size=size)]
    return (near + 0.5 * rng.normal(size=near.shape)).astype("float32")


def best_of(head, hidden, k, approximate, **options):
    """`head.top_k`, compiled."""
    layers = [head] if approximate is True else [head, approximate]
    find = compiled(lambda h: head.top_k(h, k, approximate=approximate, **options), *layers)
    return find(hidden)


def recall(ids, exact):
    return np.mean([np.isin(a, b).mean() for a, b in zip(exact, to_numpy(ids), strict=True)])


def assert_are_scores(head, hidden, scores, ids):
    """Distinct ids in the order of their exact scores."""
    scores, ids = to_numpy(scores), to_numpy(ids)
    assert all(len(set(row)) == len(row) for row in ids) and ids.dtype == np.int32
    expected = np.take_along_axis(numpy_scores(head, hidden), ids, axis=-1)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert np.all(np.diff(scores, axis=-1) <= 0)


def test_an_index_finds_almost_all_of_the_best_in_a_tenth_of_the_classes():
    hidden = queries()
    for options in ({}, NORMALISED):
        head = clustered_head(**options)
        index = Index(head, 40)

        def best(hidden, head=head, index=index):
            return head.top_k(hidden, K, approximate=index, num_candidates=UNITS // 10)

        call = compiled(best, head, index, xla=True)
        scores, ids = call(hidden)
        assert_are_scores(head, hidden, scores, ids)
        exact = reference.top_k(numpy_scores(head, hidden), K)[1]
        assert recall(ids, exact) >= 0.9, options
        call(hidden + 1)
        assert len(call.traces) == 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in ("single", "product") else ())
        for n in SAMPLERS
    ],
)
def test_the_codebook_of_the_sampler(name):
    """With all classes as candidates exact; with few, it finds most."""
    head, hidden = clustered_head(SAMPLERS[name], **NORMALISED), queries(8)
    exact = reference.top_k(numpy_scores(head, hidden), K)[1]
    ids = {}
    for size in (UNITS // 4, UNITS + 1):
        scores, ids[size] = best_of(head, hidden, K, True, num_candidates=size)
        assert_are_scores(head, hidden, scores, ids[size])
    np.testing.assert_array_equal(to_numpy(ids[UNITS + 1]), exact)
    assert recall(ids[UNITS // 4], exact) >= 0.75


def test_blocks_of_cells(monkeypatch):
    """Cells of the best blocks alone are sorted: k classes or more, all scored exactly."""
    monkeypatch.setattr(search, "BLOCK", 3)
    head, hidden = clustered_head(), queries(16)
    index = Index(head, 100)
    for k, size in ((7, 7), (UNITS, UNITS)):
        scores, ids = best_of(head, hidden, k, index, num_candidates=size)
        assert_are_scores(head, hidden, scores, ids)
    assert recall(ids, reference.top_k(numpy_scores(head, hidden), UNITS)[1]) == 1.0


def test_rows_that_are_alike_share_few_cells():
    """The other cells are small: the more of them are looked at, so that M classes are found."""
    rng = np.random.default_rng(5)
    alike = 3 + 0.01 * rng.normal(size=(300, WIDTH))
    rows = np.concatenate([alike, rng.normal(size=(100, WIDTH))]).astype("float32")
    index = Index(clustered_head(kernel_initializer=lambda *_, **__: rows, use_bias=False), 40)
    edges, order = to_numpy(index.edges), to_numpy(index.order)
    cells_of_alike = {tuple(group) for group in np.split(order, edges[1:-1]) if group.min() < 300}
    assert len(cells_of_alike) <= 10 and 30 <= len(edges) - 1 <= 52
    queries = 5 * rows[300:308] - 2
    found = index.candidates(clustered_head(use_bias=False).table, queries, 60, K)
    assert np.all(to_numpy(found.known))


def test_leading_dims_and_nan():
    head = clustered_head()
    hidden = queries(6).reshape(2, 3, WIDTH)
    hidden[1, 2] = np.nan
    scores, ids = best_of(head, hidden, 2, Index(head, 16), num_candidates=50)
    assert ids.shape == scores.shape == (2, 3, 2)
    assert np.isnan(to_numpy(scores)).sum() == 2 and np.all(np.isnan(to_numpy(scores)[1, 2]))


def test_a_codebook_follows_training():
    """With row updates, the head's own codebook names candidates of the table as it is now."""
    head = clustered_head(CODEBOOK, row_optimizer=RowAdagrad(0.5), seed=1)
    hidden, labels = queries(16), np.arange(16, dtype="int32")
    step = training(head)
    for _ in range(20):
        step(hidden, labels)
    scores, ids = best_of(head, hidden, 1, True, num_candidates=100)
    assert_are_scores(head, hidden, scores, ids)
    exact = reference.top_k(numpy_scores(head, hidden), 1)[1]
    assert recall(ids, exact) >= 0.9


@pytest.mark.parametrize(
    "options", [{}, {"use_bias": False}, {**NORMALISED}, {**NORMALISED, "use_bias": False}]
)
def test_index_vectors_are_the_scores(options):
    head = built(FullSoftmax(N, **options))
    hidden = np.random.default_rng(1).normal(size=(3, D)).astype("float32")
    vectors, query = head.index_vectors(), to_numpy(head.index_queries(hidden))
    assert vectors.dtype == np.float32 and vectors.shape == (N, D + options.get("use_bias", True))
    found = query.astype(float) @ vectors.T.astype(float)
    np.testing.assert_allclose(found, numpy_scores(head, hidden), rtol=1e-4, atol=1e-5)


def test_vectors_of_negative_sampling_hold_the_noise():
    """Also where a class has noise 0: its score of -inf is a finite one here, below all others."""
    hidden = np.random.default_rng(1).normal(size=(3, D)).astype("float32")
    for counts in (np.array([0, *COUNTS[1:]]), np.array(COUNTS)):
        sampler = spec("unigram", counts=counts)
        head = built(NegativeSampling(N, sampler, num_sampled=2))
        found = to_numpy(head.index_queries(hidden)) @ head.index_vectors().T
        with np.errstate(divide="ignore"):
            log_p = np.log(counts / counts.sum())
        expected = reference.scores(hidden, *table_arrays(head.table)) + log_p
        possible = np.isfinite(expected)
        np.testing.assert_allclose(found[possible], expected[possible], rtol=1e-4, atol=1e-4)
        assert np.all(found[~possible] < found[possible].min())
        ids = best_of(head, hidden, 2, Index(head, 4), num_candidates=N)[1]
        np.testing.assert_array_equal(to_numpy(ids), reference.top_k(expected, 2)[1])


def test_errors():
    hidden = np.ones((2, D), "float32")
    head = built(FullSoftmax(N))
    assert "serving.Index" in rejects("approximate", head.top_k, hidden, 2, approximate=True)
    rejects("approximate", head.top_k, hidden, 2, approximate="faiss")
    index = Index(head, 4)
    rejects("num_candidates", head.top_k, hidden, 4, approximate=index, num_candidates=3)
    rejects("num_candidates", head.top_k, hidden, 4, approximate=index, num_candidates=0)
    hierarchical = built(HEADS["hierarchical"]())
    rejects("approximate", hierarchical.top_k, hidden, 2, approximate=index)
    rejects("head", Index, hierarchical)
    rejects("head", Index, FullSoftmax(N))
    rejects("head", TopK, FullSoftmax(N))
    rejects("k", TopK, head, N + 1)
    rejects("num_cells", Index, head, 0)
    rejects("absolute", Index, built(on_table(FullSoftmax, N, absolute=True)))
    conditional = built(HEADS["negative conditional"](), width=NOISE.shape[0])
    rejects("sampler", conditional.index_vectors)
    other = built(FullSoftmax(N + 1))
    rejects("approximate", other.top_k, hidden, 2, approximate=index)
    head.table.kernel.assign(np.full((N, D), np.nan))
    rejects("head", Index, head)


def test_top_k_layer():
    """In a model beside the exact one, with a batch size that is not known."""
    head = clustered_head()
    x = keras.Input((WIDTH,))
    outputs = TopK(head, 3, approximate=Index(head, 40), num_candidates=100)(x)
    assert outputs["scores"].shape == outputs["ids"].shape == (None, 3)
    found = keras.Model(x, outputs).predict(queries(10), batch_size=4, verbose=0)
    assert_are_scores(head, queries(10), found["scores"], found["ids"])
    exact = keras.Model(x, TopK(head, 3)(x)).predict(queries(10), verbose=0)
    np.testing.assert_array_equal(
        exact["ids"], reference.top_k(numpy_scores(head, queries(10)), 3)[1]
    )


@pytest.mark.parametrize("approximate", [False, True])
def test_top_k_without_what_is_seen(approximate):
    """Also ids that are seen twice, padding, and where fewer than k are left."""
    head = built(FullSoftmax(N))
    hidden = np.random.default_rng(0).normal(size=(4, D)).astype("float32")
    scores = numpy_scores(head, hidden)
    seen = np.full((4, N), -1, "int32")
    seen[1, :3] = seen[1, 3:6] = np.argsort(-scores[1])[:3]
    seen[2, : N - 1] = np.delete(np.arange(N), 3)
    seen[3] = np.arange(N)
    layer = TopK(head, 2, Index(head, 4) if approximate else False, num_candidates=N)
    x, ids = keras.Input((D,)), keras.Input((N,), dtype="int32")
    result = keras.Model([x, ids], layer(x, seen=ids)).predict([hidden, seen], verbose=0)
    for row, (own, left_out) in enumerate(zip(scores, seen, strict=True)):
        own[left_out[left_out >= 0]] = -np.inf
        best = reference.top_k(own[None], 2)[1][0]
        expected = np.where(np.isfinite(own[best]), best, -1)
        np.testing.assert_array_equal(result["ids"][row], expected)
        np.testing.assert_allclose(result["scores"][row], own[best], rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.skipif(BACKEND != "tensorflow", reason="SavedModels are TensorFlow's")
@pytest.mark.parametrize("approximate", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_export(tmp_path, approximate):
    """Ids in, ids and scores out, by a signature of TensorFlow Serving."""
    import tensorflow as tf

    encoder = keras.Sequential(
        [keras.layers.Embedding(30, WIDTH), keras.layers.GlobalAveragePooling1D()]
    )
    head = SampledSoftmax(UNITS, CODEBOOK, 6, row_optimizer=RowAdagrad(0.3))
    model = softbench.Classifier(encoder, head)
    rng = np.random.default_rng(0)
    tokens = rng.integers(30, size=(9, 5)).astype("int32")
    model.compile("adam")
    model.fit(tokens, np.arange(9), batch_size=9, verbose=0)
    inputs = keras.Input((5,), dtype="int32", name="tokens")
    best = TopK(model.head, 4, approximate, num_candidates=UNITS)
    keras.Model(inputs, best(model.encoder(inputs))).export(tmp_path / "model", verbose=False)
    serve = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    scores = numpy_scores(head, to_numpy(encoder(tokens)))
    for size in (1, 9):
        found = serve(tokens=tf.constant(tokens[:size]))
        assert set(found) == {"scores", "ids"}
        expected, ids = reference.top_k(scores[:size], 4)
        np.testing.assert_array_equal(found["ids"].numpy(), ids)
        np.testing.assert_allclose(found["scores"].numpy(), expected, rtol=1e-4, atol=1e-5)
