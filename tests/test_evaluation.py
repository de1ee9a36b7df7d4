"""Streamed evaluation against brute force in NumPy."""

import itertools
import types

import keras
import numpy as np
import pytest
import reference
import scipy.sparse as sp
from small_runs import BAG, job

import softbench
from softbench import datasets, diagnostics, metrics, models
from softbench.bench import timing
from softbench.bench.training import build, problems
from softbench.bench.training import run as train
from softbench.bench.training.evaluation import evaluate

RNG = np.random.default_rng(3)
N, ROWS = 40, 90
COUNTS = np.sort(RNG.geometric(0.02, N))[::-1] - 1
TRUTH = (RNG.random((ROWS, N)) < 0.08).astype(np.float32)
TRUTH[:4] = 0.0
SCORES = RNG.normal(size=(ROWS, N)).astype(np.float32)
LOG_P = SCORES - reference.logsumexp(SCORES.astype(float))[:, None]
TOP = np.argsort(-SCORES, axis=1, kind="stable")[:, :5]
KS = (1, 3, 5)


def streamed(batch, inverse=None):
    totals = metrics.RankingTotals(KS, COUNTS, inverse)
    for start in range(0, ROWS, batch):
        part = slice(start, start + batch)
        labels = sp.csr_matrix(TRUTH[part])
        rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
        confidence = np.exp(LOG_P[part]).max(axis=1)
        totals.update(TOP[part], labels, -LOG_P[part][rows, labels.indices], confidence)
    return totals.result()


def expected_error(log_p, truth):
    """Of dense log-probabilities and labels, over the rows that have some."""
    truth = truth.astype(float)
    kept = truth.any(axis=1)
    best, sizes = log_p.argmax(axis=1), truth.sum(axis=1)
    correct = truth[np.arange(len(truth)), best][kept] / sizes[kept]
    return reference.ref_calibration_error(np.exp(log_p.max(axis=1))[kept], correct, 15)


@pytest.mark.parametrize("batch", [1, 7, 32, ROWS])
def test_totals_equal_brute_force_whatever_the_batches(batch):
    inverse = reference.ref_inverse_propensities(COUNTS, 500)
    found = streamed(batch, inverse)
    expected = {}
    for k in KS:
        expected |= {
            f"precision_at_{k}": reference.ref_precision_at_k(SCORES, TRUTH, k),
            f"ndcg_at_{k}": reference.ref_ndcg_at_k(SCORES, TRUTH, k),
            f"ps_precision_at_{k}": reference.ref_propensity_scored_precision_at_k(
                SCORES, TRUTH, inverse, k
            ),
        }
    buckets = reference.ref_class_buckets(COUNTS.tolist())
    assert metrics.class_buckets(COUNTS).tolist() == buckets and set(buckets) == {0, 1, 2}
    for index, name in enumerate(("head", "torso", "tail")):
        for k in KS:
            nll, recall = reference.ref_bucket_scores(SCORES, LOG_P, TRUTH, buckets, index, k)
            expected |= {f"nll_{name}": nll, f"recall_at_{k}_{name}": recall}
    own = [-LOG_P[i][TRUTH[i] > 0].mean() for i in range(ROWS) if TRUTH[i].any()]
    expected |= {"nll": np.mean(own), "perplexity": np.exp(np.mean(own))}
    expected["ece"] = expected_error(LOG_P, TRUTH)
    assert found == pytest.approx(expected, rel=1e-9)


def test_calibration_error():
    """By hand, bins of equal confidence, and what is no input."""
    error = metrics.expected_calibration_error
    # Bins {.1, .2}, {.6, .9}: gaps |.15 - .5| and |.75 - .5|.
    assert error([0.9, 0.1, 0.6, 0.2], [1, 0, 0, 1], 2) == pytest.approx(0.5 * (0.35 + 0.25))
    assert error(np.full(8, 0.25), [0, 1] * 4, 4) == 0.25  # one bin, whatever stands where
    assert error([0.5], [0.25]) == 0.25
    assert np.isnan(error([], [])) and np.isnan(error([np.nan], [1]))
    for wrong in (dict(correct=[1, 0]), dict(correct=[[1]]), dict(correct=[1], bins=0)):
        with pytest.raises(ValueError, match="must"):
            error([0.5], **wrong)


def test_unseen_classes_are_tail():
    assert metrics.class_buckets(np.array([0, 6, 0, 3])).tolist() == [2, 0, 2, 2]
    assert metrics.class_buckets(np.zeros(3, int)).tolist() == [2, 2, 2]


def assert_scores(found, expected):
    """A problem's evaluation has these, among others."""
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def config(**model):
    return {"model": {"batch_size": 16, "dim": 8, **model}, "seed": 0, "steps_per_epoch": 0}


def trained(problem):
    head = softbench.FullSoftmax(problem.num_classes)
    model = softbench.Classifier(problem.encoder, head)
    model.compile(keras.optimizers.Adam(0.05))
    model.fit(problem.train, epochs=2, shuffle=False, verbose=0, callbacks=problem.callbacks())
    return model


def expected_scores(scores, truth, counts, inverse=None):
    """Of dense scores and truth, the metrics that a problem's evaluation reports."""
    log_p = scores - reference.logsumexp(scores.astype(float))[:, None]
    own = [-log_p[i][truth[i] > 0].mean() for i in range(len(truth)) if truth[i].any()]
    found = {"nll": np.mean(own), "ece": expected_error(log_p, truth)}
    for k in KS:
        found[f"precision_at_{k}"] = reference.ref_precision_at_k(scores, truth, k)
        found[f"ndcg_at_{k}"] = reference.ref_ndcg_at_k(scores, truth, k)
        if inverse is not None:
            found[f"ps_precision_at_{k}"] = reference.ref_propensity_scored_precision_at_k(
                scores, truth, inverse, k
            )
    buckets = reference.ref_class_buckets(counts.tolist())
    nll, recall = reference.ref_bucket_scores(scores, log_p, truth, buckets, 0, 5)
    return found | {"nll_head": nll, "recall_at_5_head": recall}


@pytest.mark.parametrize(
    "row",
    [None, pytest.param({"name": "adagrad", "learning_rate": 0.1}, marks=pytest.mark.thorough)],
)
def test_multi_label_problem(row, monkeypatch):
    monkeypatch.setattr("softbench.bench.training.evaluation._SLOTS", 3)  # several pieces of labels
    sizes = dict(num_classes=30, num_features=80, num_train=64, num_valid=20, num_test=40)
    given = {"name": "synthetic_xmc", "labels_per_example": 3.0, **sizes}
    problem = problems.load(
        config(name="bag", row_optimizer=row, normalize=True, prefetch=2) | {"dataset": given}, None
    )
    model = trained(problem)
    found = problem.evaluate(model, "test")
    data = datasets.load(**given)
    batches = datasets.BagBatches(data, "test", 16)
    scores = [
        keras.ops.convert_to_numpy(model([keras.ops.convert_to_tensor(x) for x in inputs]))
        for inputs, *_ in batches
    ]
    scores = np.concatenate(scores)[:40]
    truth = data.test_labels.toarray()
    inverse = reference.ref_inverse_propensities(data.counts, 64)
    assert_scores(found, expected_scores(scores, truth, data.counts, inverse))
    assert "accuracy" not in found
    frequencies = np.tile(np.log(data.counts + 1.0), (40, 1))
    ranked = frequencies - 1e-9 * np.arange(30)  # ties: the lower id first
    frequent = problem.evaluate(None, "test")
    assert_scores(frequent, expected_scores(ranked, truth, data.counts, inverse))
    hidden, labels = problem.probe()
    assert hidden.shape == (16, 8) and truth.shape[1] > labels.max()


def test_dense_single_label_problem(tmp_path):
    import data_files

    data_files.write_xmc_folder(tmp_path, size=60)
    given = {"name": "xmc/own", "first_label": True}
    problem = problems.load(config(name="linear", dim=None) | {"dataset": given}, str(tmp_path))
    model = trained(problem)
    found = problem.evaluate(model, "test")
    data = datasets.load(**given, data_dir=tmp_path)
    scores = model.predict(data.test_features.toarray(), verbose=0)
    truth = data.test_labels.toarray()
    assert_scores(found, expected_scores(scores, truth, data.counts))
    assert found["accuracy"] == found["precision_at_1"]


def test_triple_problem(tmp_path):
    folder = tmp_path / "wd50k"
    folder.mkdir()
    keras.utils.set_random_seed(0)  # whatever ran before: a confidence may be at a bin's edge
    draws = np.random.default_rng(0).integers((9, 3, 9), size=(90, 3))
    triples = [f"e{head},r{relation},e{tail}\n" for head, relation, tail in draws]
    for split, start, end in (("train", 0, 60), ("valid", 60, 75), ("test", 75, 90)):
        (folder / f"{split}.txt").write_text("".join(triples[start:end]))
    given = {"name": "wd50k"}
    row = {"name": "adagrad", "learning_rate": 0.1}
    options = config(name="pair", hidden_units=6, row_optimizer=row) | {"dataset": given}
    problem = problems.load(options, str(tmp_path))
    model = trained(problem)
    found = problem.evaluate(model, "test")
    data = datasets.load(**given, data_dir=tmp_path)
    (x, y, mask) = datasets.TripleBatches(data, "test", 16)[0]
    scores = keras.ops.convert_to_numpy(model([keras.ops.convert_to_tensor(part) for part in x]))
    truth = np.eye(data.num_classes)[y[mask > 0]]
    assert_scores(found, expected_scores(scores[mask > 0], truth, data.counts))
    assert found["accuracy"] == found["precision_at_1"]


def test_language_problem_equals_the_classifier():
    given = {"name": "synthetic_language", "num_classes": 30}
    given |= {"num_train": 400, "num_valid": 90, "num_test": 90}
    row = {"name": "adagrad", "learning_rate": 0.1}
    model = {"name": "lstm", "units": 4, "num_layers": 1, "batch_size": 4, "num_steps": 5}
    options = {"dataset": given, "model": {**model, "row_optimizer": row}}
    problem = problems.load(options | {"seed": 0, "steps_per_epoch": 0}, None)
    classifier = trained(problem)
    found = problem.evaluate(classifier, "test")
    batches = datasets.EvaluationBatches(datasets.load(**given).test, 4, 5)
    expected = classifier.evaluate(
        build.Batches(batches), callbacks=[models.CarryState()], verbose=0, return_dict=True
    )
    names = ("perplexity", "precision_at_1", "precision_at_3", "precision_at_5")
    assert_scores(found, {name: expected[name] for name in names})
    assert found["nll"] == pytest.approx(np.log(expected["perplexity"]), rel=1e-5)


def test_evaluation_holds_one_batch():
    """The batches come from a generator, and none is alive two batches later."""
    import gc
    import weakref

    data = datasets.synthetic_xmc(20, 50, 40, 10, 64)
    encoder = models.sparse_bag_encoder(50, 4)
    head = softbench.FullSoftmax(20)
    head.build((None, 4))
    model = softbench.Classifier(encoder, head)
    alive = []

    def batches():
        for item in datasets.BagBatches(data, "test", 8):
            gc.collect()
            alive.append(sum(ref() is not None for ref in references))
            references.append(weakref.ref(item[1]))
            yield item

    references = []
    gc.collect()
    gc.freeze()  # else each collection goes through what all earlier tests have left
    evaluate(model, batches(), KS, data.counts)
    assert len(alive) == 8 and max(alive) <= 2


def bag_job(**fields):
    """Passes of 5 steps over a small problem."""
    keras.utils.set_random_seed(0)
    return job(optimizer={"name": "sgd", "learning_rate": 0.1}, **BAG, **fields)


def timed_curve(monkeypatch, **fields):
    """The learning curve with passes of 5 steps, each 0.25 s long by a clock of the test."""
    made = bag_job(**fields)
    problem = problems.load(made.config, None)

    def tick(timer, batch, logs):
        timer.clock, timer.steps = timer.clock + 0.25, timer.steps + 1

    monkeypatch.setattr(timing.StepTimer, "on_train_batch_end", tick)
    train.fit(made, {"head": "FullSoftmax"}, problem, made.config["optimizer"])
    return made.result["curve"]


@pytest.fixture(scope="module")
def two_epochs():
    """The result of a run by a clock of the test: each look at it is a second after the last."""
    looks = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: float(next(looks)))
    of_head = {"warmup_steps": 1, "head_repetitions": 2}
    made = bag_job(epochs=2, methods={"full": {"head": "FullSoftmax"}}, timing=of_head)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "time", clock)
        train.run(made)
    return made.result


def test_the_clock_runs_in_training_alone(two_epochs):
    """A pass of 5 steps has 6 looks; the head is timed by itself."""
    assert [point["seconds"] for point in two_epochs["curve"]] == [5.0, 10.0]
    assert [point["step"] for point in two_epochs["curve"]] == [5, 10]
    # Without the first step of each pass, which is the warm-up.
    assert two_epochs["step_ms"] == {"median": 1000.0, "p20": 1000.0, "p80": 1000.0, "count": 8}
    assert two_epochs["compile_seconds"] == 0.0
    assert two_epochs["examples_per_second"] == 8.0
    assert two_epochs["head_ms"] == {"median": 1000.0, "p20": 1000.0, "p80": 1000.0, "count": 2}


def test_a_proposal_is_judged_on_as_many_examples_as_scores_are_held(monkeypatch):
    """2^24 / n of them: here three of the batch of 8."""
    found = []
    monkeypatch.setattr(diagnostics, "LARGEST_SCORES", 3 * 20 + 19)
    monkeypatch.setattr(
        diagnostics,
        "proposal_quality",
        lambda head, hidden, inputs: (
            found.append((hidden.shape[0], inputs)) or types.SimpleNamespace(kl=0.0, ess=1.0)
        ),
    )
    method = {"head": "SampledSoftmax", "kwargs": {"sampler": "uniform", "num_sampled": 3}}
    train.run(bag_job(epochs=1, methods={"sampled": method}))
    assert found == [(3, None)]


def test_final_scores_are_those_of_the_last_point(two_epochs):
    first, last = two_epochs["curve"]
    names = {name for name in last if name.startswith(("valid_", "proposal_", "mutual_"))}
    assert {"valid_nll", "mutual_information"} <= names
    final = two_epochs["final"]
    assert {name: final[name] for name in names} == {name: last[name] for name in names}
    assert first["valid_nll"] != last["valid_nll"]
    assert final["log_likelihood"] == -final["test_nll"]


def test_a_time_budget_is_equal_parts_whatever_a_pass_takes(monkeypatch):
    curve = timed_curve(monkeypatch, epochs=3, max_train_seconds=6.0)
    assert [point["step"] for point in curve] == [8, 16, 24]
    assert [point["seconds"] for point in curve] == [2.0, 4.0, 6.0]


def test_a_time_budget_without_epochs_has_a_point_after_each_and_at_its_end(
    two_epochs, monkeypatch
):
    curve = timed_curve(monkeypatch, epochs=0, max_train_seconds=3.0)
    assert [point["step"] for point in curve] == [5, 10, 12]
    assert [point["epoch"] for point in curve] == [1, 2, 3]
    whole = [point["valid_nll"] for point in two_epochs["curve"]]
    assert [point["valid_nll"] for point in curve[:2]] == whole


def test_limited_epochs_continue_and_go_to_any():
    data = datasets.synthetic_xmc(20, 50, 40, 10, 10)
    whole = datasets.BagBatches(data, "train", 8)
    limited = build.Batches(datasets.BagBatches(data, "train", 8), 3)
    expected = [whole[i][1] for i in range(5)]
    whole.set_epoch(1)
    expected += [whole[i][1] for i in range(4)]
    for epoch in (0, 1, 2, 1):
        limited.go_to(3 * epoch)
        for index in range(3):
            np.testing.assert_array_equal(limited[index][1], expected[3 * epoch + index])
    longer = build.Batches(datasets.BagBatches(data, "train", 8), 9)
    assert len(longer) == 9 > len(whole)
    for index, labels in enumerate(expected):
        np.testing.assert_array_equal(longer[index][1], labels)
