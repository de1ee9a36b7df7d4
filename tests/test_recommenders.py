"""SASRec, rankings of unseen items and recommenders in the benchmark, against NumPy float64."""

import itertools

import keras
import numpy as np
import pytest
import reference
import small_runs
from conftest import compiled, rejects, to_numpy
from keras import ops

import softbench
from softbench import datasets, models, partition
from softbench.bench.methods import full, sampled
from softbench.bench.training import checks, problems, recommenders
from softbench.bench.training import run as train

RNG = np.random.default_rng(11)
N, D, B = 13, 4, 6


@pytest.mark.parametrize("chunk", [5, N])
def test_best_of_the_unseen_streamed(chunk, monkeypatch):
    """Padding, ids twice, and a chunk that begins before the classes of the last one end."""
    monkeypatch.setattr(partition, "class_chunk", lambda *_: chunk)
    hidden, kernel = RNG.normal(size=(B, D)), RNG.normal(size=(N, D))
    seen = RNG.integers(-1, N, (B, 7)).astype("int32")
    table = ops.convert_to_tensor(kernel.astype("float32"))

    def best(hidden, seen):
        def scores(ids):
            return ops.matmul(hidden, ops.transpose(ops.take(table, ids, axis=0)))

        return partition.top_k(partition.without(scores, seen), hidden, N, 4)

    found, ids = map(to_numpy, compiled(best)(hidden.astype("float32"), seen))
    scores = hidden @ kernel.T
    for row, own in enumerate(seen):
        scores[row, own[own >= 0]] = -np.inf
    expected, expected_ids = reference.top_k(scores, 4)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sasrec_equals_numpy():
    """Weights as the layers stand: embeddings, and of a block norm, attention, norm, MLP."""
    dim, length = 6, 5
    model = models.sasrec(20, dim, length, hidden_units=8)
    for weight in model.trainable_weights:
        weight.assign(RNG.normal(0, 0.5, weight.shape))
    values = {w.path: to_numpy(w).astype(float) for w in model.trainable_weights}
    items, places, *rest = values.values()
    shapes = [w.shape for w in rest]
    assert shapes[:2] == [(dim,)] * 2 and items.shape == (20, dim) and places.shape == (length, dim)
    attention = [w.reshape(-1, dim) if w.ndim == 3 else w.reshape(-1) for w in rest[2:10]]
    attention = [w.reshape(dim, dim) if w.size == dim * dim else w for w in attention]
    ids, position = np.array([[3, 7, 7, 1, 9]]), np.array([[2, 3, 4, 3, 4]])
    mask = np.tril(np.ones((length, length), bool))
    mask[3:, :3] = False
    x = np.sqrt(dim) * items[ids[0]] + places[position[0]]
    normed = reference.layer_norm(x, *rest[:2])
    x = x + reference.attention(normed, mask, attention)
    inner = np.maximum(reference.layer_norm(x, *rest[10:12]) @ rest[12] + rest[13], 0)
    x = reference.layer_norm(x + inner @ rest[14] + rest[15], *rest[16:])
    np.testing.assert_allclose(to_numpy(model([ids, position]))[0], x, rtol=1e-4, atol=1e-5)


def test_a_history_is_alone_in_its_row():
    """Behind another history, before padding, behind it, or before another: the same vectors."""
    model = models.sasrec(30, 8, 6, num_blocks=2, num_heads=2)
    rows = [[4, 5, 6, 9, 8, 7], [9, 8, 7, 0, 0, 0], [0, 0, 0, 9, 8, 7], [9, 8, 7, 1, 2, 3]]
    places = [[3, 4, 5, 3, 4, 5], [3, 4, 5, 5, 5, 5], [5, 5, 5, 3, 4, 5], [3, 4, 5, 0, 1, 2]]
    hidden = to_numpy(model([np.array(rows), np.array(places)]))
    for row, start in ((1, 0), (2, 3), (3, 0)):
        np.testing.assert_allclose(hidden[row, start : start + 3], hidden[0, 3:], atol=1e-5)


def test_sasrec_arguments():
    rejects("dropout", models.sasrec, 5, dropout=1.0)
    rejects("num_heads", models.sasrec, 5, dim=6, num_heads=4)
    rejects("length", models.sasrec, 5, length=0)


SHARED = {"class_name": "uniform", "config": {"share_draws": True}}
SMALL = {"name": "synthetic_interactions", "num_classes": 40, "num_users": 60}
SASREC = {"name": "sasrec", "dim": 8, "length": 8, "batch_size": 8}
STILL = {"name": "sgd", "learning_rate": 1e-12}
FACTORS = {"name": "matrix_factorisation", "dim": 8, "batch_size": 64}


def loaded(model, **fields):
    return problems.load(
        {"dataset": SMALL, "model": model, "seed": 0, "steps_per_epoch": 0, **fields}, None
    )


def fitted(problem, **options):
    head = softbench.SampledSoftmax(40, "uniform", 20, use_bias=False, **options)
    head.build(problem.encoder.output.shape)
    encoder = problem.tied(head) if problem.tied else problem.encoder
    model = softbench.Classifier(encoder, head)
    model.compile(keras.optimizers.Adam(0.01))
    history = model.fit(problem.train, epochs=3, shuffle=False, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    return model


@pytest.mark.parametrize(
    "model", [pytest.param(SASREC, marks=pytest.mark.thorough), FACTORS], ids=["sasrec", "factors"]
)
def test_evaluation_equals_brute_force(model, monkeypatch):
    monkeypatch.setattr(recommenders, "USERS", 16)
    rows = {"name": "adagrad", "learning_rate": 0.1}
    problem = loaded(model if model is SASREC else {**model, "row_optimizer": rows})
    model = fitted(problem)
    found, frequent = problem.evaluate(model, "test"), problem.evaluate(None, "test")
    data = softbench.datasets.load(**SMALL)
    users = np.flatnonzero(data.test.sizes())
    before = data.before("test")
    scores, seen = [], np.zeros((len(users), 40), bool)
    for row, user in enumerate(users):
        items = before.items[before.ends[user] : before.ends[user + 1]]
        seen[row, items] = True
        last = items[-8:]
        x = np.array([user])
        if problem.tied:  # from the first column on: what follows cannot be seen
            x = [np.pad(last, (0, 8 - len(last)))[None], np.arange(8)[None] + 8 - len(last)]
            x[1] = np.minimum(x[1], 7)
        hidden = to_numpy(model.encoder(x)).reshape(-1, 8)
        hidden = hidden[len(last) - 1 if problem.tied else 0]
        scores.append(reference.scores(hidden[None], to_numpy(model.head.table.kernel))[0])
    scores, labels = np.array(scores), data.test.items[data.test.ends[users]]
    truth = np.eye(40)[labels]
    nll = reference.negative_log_likelihood(scores, labels).mean()
    assert found["nll"] == pytest.approx(nll, rel=1e-4)
    log_p = scores - reference.logsumexp(scores)[:, None]
    best = np.where(seen, -np.inf, log_p).argmax(axis=1)
    confidence = np.exp(log_p[np.arange(len(users)), best])
    error = reference.ref_calibration_error(confidence, (best == labels).astype(float), 15)
    assert found["ece"] == pytest.approx(error, rel=1e-3)
    # By buckets and groups too: a label each, so the parts add up.
    for names in (("head", "torso", "tail"), ("of_few", "of_some", "of_many")):
        kept = [name for name in names if f"users_{name}" in found]
        assert sum(found[f"users_{name}"] for name in kept) == found["users"] == len(users)
        total = sum(found[f"users_{name}"] * found[f"map_at_10_{name}"] for name in kept)
        assert total / len(users) == pytest.approx(found["map_at_10"])
    train = [data.train.items[a:b] for a, b in itertools.pairwise(data.train.ends)]
    few = np.quantile([len(items) for items in train], 1 / 3, method="higher")
    assert found["users_of_few"] == sum(len(train[user]) <= few for user in users)
    assert "users_of_few" not in problem.evaluate(None, "valid")
    novelty = reference.ref_novelty(train, 40)
    popular = np.tile(np.log(data.counts + 1.0) - 1e-9 * np.arange(40), (len(users), 1))
    for k in (1, 10, 20):
        for own, given in ((found, scores), (frequent, popular)):
            expected = reference.ref_recommendation(given, truth, seen, novelty, k)
            assert {name: own[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    hidden, labels = problem.probe(model.encoder)
    assert hidden.shape == (len(labels), 8) and len(labels) == 16


def test_a_tied_table_is_one_variable():
    """It gets the gradient of both sides: a row that is only an input moves too."""
    problem = loaded(SASREC)
    head = softbench.SampledSoftmax(40, SHARED, 1, use_bias=False)
    head.build(problem.encoder.output.shape)
    model = softbench.Classifier(problem.tied(head), head)
    model.compile(keras.optimizers.SGD(1.0))
    tables = [v for v in model.trainable_variables if tuple(v.shape) == (40, 8)]
    assert len(tables) == 1 and tables[0] is head.table.kernel
    items, places = np.full((8, 8), 5, "int32"), np.tile(np.arange(8, dtype="int32"), (8, 1))
    labels, before = np.zeros((8, 8), "int32"), to_numpy(head.table.kernel)
    batches = [((items, places), labels, np.ones((8, 8), "float32"))]
    model.fit(recommenders.build.Batches(batches), verbose=0)
    moved = np.abs(to_numpy(head.table.kernel) - before).max(axis=1) > 0
    assert moved[0] and moved[5] and moved.sum() <= 3  # the label, the input, one draw
    assert problem.evaluate(model, "valid")["nll"] > 0


def test_a_tied_table_has_no_row_optimizer():
    problem = loaded(SASREC)
    with pytest.raises(ValueError, match=r"`model.tied` must be False.*Received: RowAdagrad"):
        fitted(problem, row_optimizer=softbench.RowAdagrad(0.1))
    assert loaded({**SASREC, "tied": False}).tied is None
    with pytest.raises(ValueError, match=r"`model.name` must be one of sasrec, .*: 'pair'"):
        loaded({**SASREC, "name": "pair"})


def test_users_of_the_curve_are_some_of_all(monkeypatch):
    asked = []
    monkeypatch.setattr(recommenders, "evaluate", lambda _, queries, *__: asked.append(queries))
    problem = loaded({**SASREC, "valid_users": 5, "test_users": 0})
    assert len(problem.probe()[1]) == 5
    limited = loaded({**SASREC, "test_users": 7})
    assert [p.evaluate(None, "test") for p in (problem, limited)] == [None, None]
    users = np.count_nonzero(softbench.datasets.load(**SMALL).test.sizes())
    assert [len(queries.users) for queries in asked] == [users, 7]


def test_a_refit_trains_on_the_validation_set_and_asks_the_test_set_alone():
    data = softbench.datasets.load(**SMALL)
    problem, before = loaded(FACTORS, refit=True), data.before("test")
    owners = np.repeat(np.arange(len(before.ends) - 1), before.sizes())
    expected = sorted(zip(owners, before.items, strict=True))
    batches = [np.stack(problem.train[i][:2], 1) for i in range(len(problem.train))]
    made = np.concatenate(batches)[: len(expected)]  # after it the last batch is filled up
    assert sorted(map(tuple, made)) == expected
    np.testing.assert_array_equal(problem.counts, np.bincount(before.items, minlength=40))
    with pytest.raises(ValueError, match="users to test in 'valid'"):
        problem.evaluate(None, "valid")

    short = {"dataset": SMALL, "model": FACTORS, "epochs": 2, "methods": {"full": full()}}
    job, known = (small_runs.job(**short, **fields) for fields in ({"refit": True}, {}))
    model, _ = train.trained(job)
    names = set(job.result["final"]) - {"log_likelihood"}
    assert names and all(name.startswith("test_") for name in names)
    assert [sorted(point) for point in job.result["curve"]] == [
        ["epoch", "seconds", "step", "train_loss"]
    ] * 2
    queries = datasets.Queries(data, "test", 16, lambda users: users.astype("int32"))
    asked = recommenders.evaluate(model, queries, data.counts)
    assert asked["ndcg_at_10"] == job.result["final"]["test_ndcg_at_10"]
    train.run(known)
    assert known.result["final"]["test_nll"] != job.result["final"]["test_nll"]


def test_a_refit_is_of_users_and_items_in_memory():
    with pytest.raises(ValueError, match="`refit` must be False for MultiLabelData"):
        problems.load({**small_runs.BAG, "seed": 0, "refit": True}, None)
    streamed = softbench.datasets.load(**SMALL)._replace(stream=lambda batch, seed: None)
    with pytest.raises(ValueError, match="`refit` must be False for streamed"):
        recommenders.problem(streamed, {"model": FACTORS, "refit": True})


def test_spectral_rows_are_those_of_a_dense_decomposition():
    users, items = np.array([0, 0, 1, 1, 1, 2, 3, 3, 5]), np.array([0, 1, 0, 2, 4, 4, 1, 2, 0])
    had = np.zeros((6, 7))  # user 4 has had nothing, items 3, 5 and 6 nobody
    np.add.at(had, (users, items), 1.0)
    root = [np.sqrt(np.maximum(had.sum(axis), 1)) for axis in (1, 0)]
    left, values, right = np.linalg.svd(had / root[0][:, None] / root[1])
    made = models.spectral_rows(users, items, 6, 7, 2)
    for rows, side, none in zip(made, (left, right.T), ([4], [3, 5, 6]), strict=True):
        assert rows.dtype == np.float32 and rows.shape == (len(side), 2)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
        kept = np.setdiff1d(np.arange(len(side)), none)
        expected = side[kept, :2] * np.sqrt(values[:2])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(rows[kept] @ rows[kept].T, expected @ expected.T, atol=1e-6)
    again = models.spectral_rows(users, items, 6, 7, 2)
    assert all((a == b).all() for a, b in zip(made, again, strict=True))
    with pytest.raises(ValueError, match="`dim` must be less than the numbers of users"):
        models.spectral_rows(users, items, 6, 7, 6)


def test_training_begins_with_spectral_rows_and_counts_their_time():
    spectral = {**FACTORS, "spectral": True}
    data, methods = softbench.datasets.load(**SMALL), {"full": full()}
    job = small_runs.job(dataset=SMALL, model=spectral, methods=methods, optimizer=STILL)
    model, problem = train.trained(job)
    sizes = data.train.sizes()
    owners = np.repeat(np.arange(len(sizes)), sizes)
    users, items = models.spectral_rows(owners, data.train.items, len(sizes), 40, 8)
    asked = np.arange(len(sizes), dtype="int32")
    np.testing.assert_allclose(to_numpy(model.encoder(asked)), users, atol=1e-6)
    np.testing.assert_allclose(to_numpy(model.head.table.kernel), items, atol=1e-6)
    assert job.result["curve"][0]["seconds"] >= problem.start_seconds > 0
    streamed = data._replace(stream=lambda batch, seed: None)
    with pytest.raises(ValueError, match=r"`model.spectral` must be False for streamed"):
        recommenders.problem(streamed, {"model": spectral, "seed": 0})


def test_what_users_have_had_is_no_negative_of_theirs():
    data = softbench.datasets.load(**SMALL)
    method = sampled("uniform", 40, unique=True)
    problem = loaded(FACTORS, methods={"x": {**method, "excluded": 5}})
    lists, seen = data.train, [set() for _ in data.train.sizes()]
    for index in range(len(problem.train)):
        x, items = problem.train[index][:2]
        for user, own, item in zip(x["users"], x["excluded"], items, strict=True):
            had = lists.items[lists.ends[user] : lists.ends[user + 1]]
            ids = set(own.tolist()) - {-1}
            assert item in had and ids <= set(had.tolist())
            assert len(ids) == min(5, len(set(had.tolist()))) or len(had) > 5
            seen[user] |= ids
    again = problem.train[0][0]["excluded"]
    np.testing.assert_array_equal(again, problem.train[0][0]["excluded"])
    sizes = np.array([len(set(seen[u])) for u in range(len(seen))])
    assert (sizes[lists.sizes() > 8] > 5).any()  # others in other batches

    made = small_runs.job(dataset=SMALL, model=FACTORS, methods={"x": {**method, "excluded": 5}})
    plain = small_runs.job(dataset=SMALL, model=FACTORS, methods={"x": method})
    for job in (made, plain):
        keras.utils.set_random_seed(0)
        train.run(job)
    assert made.result["curve"][0]["train_loss"] < plain.result["curve"][0]["train_loss"]
    with pytest.raises(ValueError, match="`excluded` must be"):
        datasets.InteractionBatches(data, 8, -5)
    streamed = data._replace(stream=lambda batch, seed: None)
    with pytest.raises(ValueError, match="`excluded` must be left out for streamed"):
        recommenders.problem(streamed, {"model": FACTORS, "methods": {"x": {"excluded": 5}}})
    wrong = {"model": SASREC, "methods": {"x": {**method, "excluded": 5}}, "optimizer": STILL}
    (line,) = checks.mistakes([wrong])
    assert "excluded is for config.model.name='matrix_factorisation'" in line


def make_encoder(data, dim, length, seed):
    items, places = (keras.Input((length,), dtype="int32") for _ in range(2))
    return keras.Model([items, places], keras.layers.Embedding(data.num_classes, dim)(items))


def test_an_encoder_of_the_users_own_takes_packed_histories():
    problem = loaded({**SASREC, "name": f"{__name__}:make_encoder"})
    assert problem.tied is None and problem.encoder.output.shape == (None, 8, 8)
    hidden, labels = problem.probe()
    assert hidden.shape == (len(labels), 8) and np.isfinite(hidden).all()
