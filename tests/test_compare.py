"""`softbench.compare`: equal beginnings, data and time; means and intervals; errors."""

import itertools
import types

import keras
import numpy as np
import pytest
from conftest import to_numpy
from scipy import stats
from small import assert_all_equal, values

import softbench
from softbench import comparison
from softbench.bench.training import given

N, WIDTH, CLASSES = 96, 6, 20


def arrays(size=N, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=size)
    centres = np.random.default_rng(9).normal(size=(CLASSES, WIDTH))
    return (centres[labels] + 0.1 * rng.normal(size=(size, WIDTH))).astype("float32"), labels


def encoder():
    return keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(4)])


DATA = (arrays(), arrays(40, seed=1))
QUICK = {"minutes": 0.003, "batch_size": 32, "num_sampled": 5, "verbose": False}


def test_a_row_for_each_method_with_mean_and_interval():
    methods = ["full", "unigram_rows"]
    compared = softbench.compare(encoder, DATA, methods, seeds=2, optimizer="sgd", **QUICK)
    assert compared["method"].tolist() == ["full", "unigram_rows"]
    assert compared["runs"].tolist() == [2, 2] and compared["error"].tolist() == ["", ""]
    runs = compared.attrs["runs"]
    assert [(run["method"], run["seed"]) for run in runs] == [
        ("full", 0),
        ("unigram_rows", 0),
        ("unigram_rows", 1),
        ("full", 1),
    ]
    for _, row in compared.iterrows():
        own = [run for run in runs if run["method"] == row["method"]]
        logs = np.log([run["perplexity"] for run in own])
        half = stats.t.interval(0.95, 1, loc=0, scale=stats.sem(logs))[1]
        assert row["perplexity"] == pytest.approx(np.exp(logs.mean()))
        assert row["perplexity_high"] == pytest.approx(np.exp(logs.mean() + half))
        values = [run["precision_at_3"] for run in own]
        assert row["precision_at_3"] == pytest.approx(np.mean(values))
        assert row["perplexity_low"] < row["perplexity"] < row["perplexity_high"]
    for run in runs:
        assert run["steps"] >= 2, "the clock began before the step was compiled"


def test_methods_of_a_seed_begin_alike_and_take_the_same_batches(monkeypatch):
    """Seen where a run trains: the weights that it begins with, and the order of its batches."""
    seen = []

    def train(model, batches, seconds):
        before = [np.array(w) for w in model.encoder.get_weights()]
        labels = []
        for epoch in (0, 1):
            batches.set_epoch(epoch)
            labels += [batches[i][1] for i in range(len(batches))]
        seen.append((before, np.concatenate(labels)))
        raise ValueError("enough is seen")

    monkeypatch.setattr(comparison, "_train", train)
    softbench.compare(encoder, DATA, ["full", "uniform"], seeds=2, **QUICK)
    for first, second in ((0, 1), (2, 3)):
        for a, b in zip(seen[first][0], seen[second][0], strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(seen[first][1], seen[second][1])
    assert not np.array_equal(seen[0][1], seen[2][1])
    assert not np.array_equal(seen[0][0][0], seen[2][0][0])
    assert np.sort(seen[0][1][:N]).tolist() == np.sort(DATA[0][1]).tolist()


def test_what_the_warm_up_trained_is_taken_back(monkeypatch):
    """No time, no step: all is as it was before."""
    x, y = DATA[0]
    head = softbench.SampledSoftmax(
        CLASSES, sampler="uniform", num_sampled=5, row_optimizer=softbench.RowAdagrad(1)
    )
    model = softbench.Classifier(encoder(), head)
    model.compile(keras.optimizers.Adam(0.1))
    model.build(x.shape)
    before = values(model.variables)
    batches = given.ArrayBatches(x, y, "train", 32)
    timer = comparison._train(model, batches, 0.0)
    assert timer.steps == 0
    assert_all_equal(before, model.variables)
    slots = [v for v in model.optimizer.variables if v.path.endswith(("momentum", "velocity"))]
    assert len(slots) == 4 and not any(to_numpy(v).any() for v in slots)
    assert int(model.optimizer.iterations) == 0


def test_a_run_ends_when_its_time_is_over(monkeypatch):
    """Each look at the clock is a second later: a first step that does not count, and three."""
    looks = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: float(next(looks)))
    monkeypatch.setattr(comparison.timing, "time", clock)
    model = softbench.Classifier(encoder(), softbench.FullSoftmax(CLASSES))
    model.compile("sgd")
    timer = comparison._train(model, given.ArrayBatches(*DATA[0], "train", 32), 3.0)
    assert (timer.steps, timer.first_seconds, timer.clock) == (4, 1.0, 4.0)


class Stream:
    """Batches in one order, the last one smaller."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        for start in range(0, len(self.y), 32):
            yield self.x[start : start + 32], self.y[start : start + 32]


def test_batches_that_can_be_gone_through_again():
    x, y = arrays(72)
    problem = given.read((Stream(x, y), Stream(*DATA[1])), 7, None)
    np.testing.assert_array_equal(problem.counts, np.bincount(y, minlength=CLASSES))
    train = problem.train(0)
    assert len(train) == 2  # the third has 8 rows
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate([train[i][1] for i in range(2)]), y[:64])
    np.testing.assert_array_equal(train[1][0], x[32:64])
    found = [labels for _, labels, _ in problem.valid]
    np.testing.assert_array_equal(np.concatenate(found), DATA[1][1])


def test_heads_and_rows_of_the_users_own_and_a_run_that_fails():
    """A bad value is that method's error alone; the others have their rows."""
    methods = {
        "mine": softbench.OneVsEach(CLASSES, num_sampled=4),
        "row": {"head": "SampledSoftmax", "kwargs": {"num_sampled": 0}},
    }
    found = softbench.compare(encoder, DATA, methods, seeds=1, **QUICK)
    assert found["runs"].tolist() == [1, 0]
    assert found["error"][0] == "" and "`num_sampled` must be an integer >= 1" in found["error"][1]
    assert np.isnan(found["perplexity_low"][0]) and np.isnan(found["perplexity"][1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": ["ful"]}, "`methods` must be among: full, .*Received: 'ful'"),
        ({"methods": ["rff"]}, "`methods` must be among: full"),
        ({"methods": []}, "`methods` must name one or more"),
        ({"methods": [softbench.FullSoftmax(7)]}, "a head must be of softbench.*of 20 classes"),
        (
            {"methods": {"a": {"head": "SampledSoftmax", "kwargs": {"num_smpled": 3}}}},
            r"methods\.a: SampledSoftmax has no argument 'num_smpled'; did you mean 'num_sampled'",
        ),
        ({"seeds": 0}, "`seeds` must be one or more and `minutes` positive"),
        (
            {"num_classes": 5},
            "`num_classes` must be above every label, 19 the largest. Received: 5",
        ),
        ({"data": (DATA[0],)}, r"`data` must be \(training, validation\)"),
        ({"data": (DATA[0], (DATA[1][0], np.ones((40, 2), int)))}, r"`data`: labels must be int"),
    ],
)
def test_what_is_of_no_use_is_an_error_before_anything_is_trained(options, words):
    def never():
        raise AssertionError("an encoder was made")

    with pytest.raises(ValueError, match=words):
        softbench.compare(never, **{"data": DATA, **QUICK, **options})
