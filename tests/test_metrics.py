"""Metrics against NumPy float64 (tests/reference.py) and hand arithmetic."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import reference
import scipy.sparse as sp
from conftest import rejects
from keras import ops

from softbench import metrics

RNG = np.random.default_rng(0)
TRUTH = (RNG.random((40, 12)) < 0.2).astype(np.float32)
TRUTH[:3] = 0.0  # examples without labels
SCORES = np.round(RNG.normal(size=(40, 12)), 1).astype(np.float32)  # rounded: with ties
TOP = np.argsort(-SCORES, axis=1, kind="stable")
COUNTS = np.arange(12) ** 2


def padded(truth):
    width = int(truth.sum(1).max()) + 1
    rows = [list(np.flatnonzero(row)) for row in truth]
    return np.array([row + [-1] * (width - len(row)) for row in rows], np.int32)


def totals(top, labels, ks=(1, 3, 5), inverse=None):
    counted = metrics.RankingTotals(ks, inverse_propensity=inverse)
    counted.update(top, labels)
    return counted.result()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_precision_of_ids_and_of_scores(k):
    """Of labels in both forms, in two batches; tests/test_evaluation.py has the totals."""
    plain = reference.ref_precision_at_k(SCORES, TRUTH, k)
    forms = [(padded(TRUTH), TOP[:, :5].astype("int32"), False), (padded(TRUTH), SCORES, False)]
    forms += [(TRUTH, TOP[:, :5].astype("int32"), True), (TRUTH, SCORES, True)]
    for y_true, y_pred, dense in forms:
        metric = metrics.PrecisionAtK(k, dense_labels=dense)
        for part in (slice(0, 15), slice(15, 40)):
            metric.update_state(y_true[part], y_pred[part])
        assert float(metric.result()) == pytest.approx(plain, abs=1e-6)


def test_single_labels_and_sample_weight():
    metric = metrics.PrecisionAtK(2)
    top = np.array([[4, 2], [1, 0], [3, 1]], np.int32)
    metric.update_state(np.array([2, 5, 3]), top, sample_weight=np.array([1.0, 1.0, 0.0]))
    assert float(metric.result()) == pytest.approx(0.25)
    metric.reset_state()
    assert float(metric.result()) == 0.0


def test_perfect_ranking_has_propensity_score_one():
    inverse = metrics.inverse_propensities(COUNTS, 500)
    np.testing.assert_allclose(inverse, reference.ref_inverse_propensities(COUNTS, 500), rtol=1e-12)
    best = np.argsort(-(TRUTH * inverse), axis=1, kind="stable")
    result = totals(best, sp.csr_matrix(TRUTH), inverse=inverse)
    assert [result[f"ps_precision_at_{k}"] for k in (1, 3, 5)] == pytest.approx([1.0] * 3)
    empty = sp.csr_matrix(np.zeros((40, 12)))
    assert totals(TOP, empty, (1,), inverse)["ps_precision_at_1"] == 0.0


def test_perplexity_with_mask():
    nll = RNG.gamma(2.0, size=(4, 6)).astype("float32")
    weight = (RNG.random((4, 6)) < 0.7).astype("float32")
    broken = np.where(weight > 0, nll, np.nan).astype("float32")
    perplexity = metrics.Perplexity()
    perplexity.update_state(broken[:2], weight[:2])
    perplexity.update_state(broken[2:], sample_weight=weight[2:])
    expected = reference.ref_perplexity(nll, weight)
    assert float(perplexity.result()) == pytest.approx(expected, rel=1e-6)


def accumulate(metric, value, steps):
    """Adds the same batch mean many times inside one compiled loop."""
    if keras.backend.backend() == "jax":
        import jax

        def body(_, variables):
            return metric.stateless_update_state(variables, value)

        run = jax.jit(lambda v: jax.lax.fori_loop(0, steps, body, v))
        final = run([v.value for v in metric.variables])
        for variable, new in zip(metric.variables, final, strict=True):
            variable.assign(new)
        return
    import tensorflow as tf

    @tf.function
    def run():
        for _ in tf.range(steps):
            metric.update_state(value)

    run()


def test_a_hundred_thousand_compiled_updates_stay_exact():
    """float32 alone drifts by about 1e-3 here; the compensated sum does not."""
    value = np.full((400,), 6.4321, np.float32)
    steps = 100_000
    metric = metrics.Perplexity()
    accumulate(metric, ops.convert_to_tensor(value), steps)
    expected = float(np.float64(np.float32(6.4321)))
    assert float(metric.mean_and_weight()[0]) == pytest.approx(expected, rel=1e-6)
    weight = float(metric._sums[2]) + float(metric._sums[3])
    assert weight == 400.0 * steps
    naive = np.cumsum(np.full(steps, value.sum(), np.float32), dtype=np.float32)[-1]
    assert abs(naive / (400.0 * steps) - expected) > 1e-4  # what a plain sum would give


@pytest.mark.parametrize(
    "metric",
    [
        metrics.Perplexity(name="p"),
        metrics.ScorePerplexity(),
        metrics.PrecisionAtK(3, dense_labels=True),
    ],
    ids=lambda metric: type(metric).__name__,
)
def test_metrics_serialise(metric):
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(metric) and again.get_config() == metric.get_config()


def test_rankings_equal_rectools():
    """RecTools' metrics of the same rankings, by tests/rectools_figures.py."""
    saved = json.loads((Path(__file__).parent / "data" / "rectools.json").read_text())
    n, items = saved["num_items"], saved["train_items"]
    result = metrics.ranking(
        np.array(saved["top_ids"]),
        np.array(saved["labels"]),
        n,
        saved["ks"],
        seen=np.array(saved["seen"]),
        groups=np.array(saved["groups"]),
        counts=np.bincount(items, minlength=n),
        novelty=metrics.item_novelty(saved["train_users"], items, n),
    )
    figures = saved["figures"].items()
    expected = {f"{name}{of}": value for of, row in figures for name, value in row.items()}
    users = {name for name in result if name.startswith("users")}
    assert len(users) == 6 and len(expected) == 3 * (7 + 2 * 6 + 3 * 5)
    assert {name: result[name] for name in result.keys() - users} == pytest.approx(expected)


RANKED, WANTED = np.array([[3, 0, 1], [2, 4, 0]]), np.array([[0, -1], [4, 1]])


def test_rankings_by_hand():
    """Ranks 2 of one label, 2 of two; the second user's 0 and 2 are seen, so 4 moves up."""
    seen = np.array([[-1, -1, -1], [0, 2, 2]])
    result = metrics.ranking(RANKED, WANTED, 5, (1, 2))
    assert result["map_at_2"] == (1 / 2 + 1 / 4) / 2 and result["recall_at_2"] == 0.75
    with pytest.raises(ValueError, match=r"`top_ids` must have 2 .* Received: 1 in row 1"):
        metrics.ranking(RANKED, WANTED, 5, (1, 2), seen=seen)
    seen = np.append(seen, [[-1], [3]], axis=1)
    with pytest.raises(ValueError, match=r"`top_ids` must have 2 .* Received: 1 in row 1"):
        metrics.ranking(RANKED, WANTED, 5, (1, 2), seen=seen)
    ended = np.array([[3, 0, 1], [2, 4, -1]])  # no more than these are recommended
    result = metrics.ranking(ended, WANTED, 5, (1, 2), seen=seen, groups=np.array([7, 8]))
    assert result["map_at_2"] == result["map_at_2_of_7"] == result["map_at_2_of_8"] == 1 / 2
    assert result["coverage_at_1"] == 0.4 and result["users"] == 2
    # Of 5 items 4 are seen: one is all that can be ranked.
    seen[1] = [0, 2, 3, 1]
    assert metrics.ranking(RANKED, WANTED, 5, (1, 2), seen=seen)["recall_at_2"] == 0.75


def test_novelty_by_hand():
    """Of four users one, two and four have had the items, one of them twice; nobody the last."""
    users, items = [9, 9, 5, 5, 5, 6, 7, 9, 9], [0, 0, 1, 2, 2, 2, 2, 1, 2]
    assert metrics.item_novelty(users, items, 4).tolist() == [2.0, 1.0, 0.0, 2.0]


LABELS = sp.csr_matrix(TRUTH)
BAD = [
    *(("k", lambda k=k: metrics.PrecisionAtK(k)) for k in (0, -1, 1.5, True)),
    ("ks", lambda: totals(TOP, LABELS, (0,))),
    ("top_ids", lambda: totals(TOP[:, :2], LABELS, (3,))),
    ("top_ids", lambda: totals(TOP + 12, LABELS, (3,))),
    ("inverse_propensity", lambda: totals(TOP, LABELS, inverse=np.ones(3))),
    ("ks", lambda: metrics.ranking(RANKED, WANTED, 5, (6,))),
    ("ks", lambda: metrics.ranking(RANKED, WANTED, 5, (0,))),
    ("top_ids", lambda: metrics.ranking(RANKED, WANTED, 5, (4,))),
    ("top_ids", lambda: metrics.ranking(RANKED, WANTED, 3, (1,))),
    ("top_ids", lambda: metrics.ranking(RANKED * 1.0, WANTED, 5, (1,))),
    ("top_ids", lambda: metrics.ranking(RANKED // 2, WANTED, 5, (1,))),
    ("top_ids", lambda: metrics.ranking(RANKED[0], WANTED, 5, (1,))),
    ("top_ids", lambda: metrics.ranking(np.array([[1, -1, 2]] * 2), WANTED, 5, (1,))),
    ("labels", lambda: metrics.ranking(RANKED, WANTED + 1, 5, (1,))),
    ("labels", lambda: metrics.ranking(RANKED, WANTED[:1], 5, (1,))),
    ("labels", lambda: metrics.ranking(RANKED, WANTED * 0 - 1, 5, (1,))),
    ("seen", lambda: metrics.ranking(RANKED, WANTED, 5, (1,), seen=WANTED[0])),
    ("groups", lambda: metrics.ranking(RANKED, WANTED, 5, (1,), groups=["a"])),
    ("counts", lambda: metrics.ranking(RANKED, WANTED, 5, (1,), counts=np.ones(4))),
    ("novelty", lambda: metrics.ranking(RANKED, WANTED, 5, (1,), novelty=np.ones(6))),
    (
        "y_pred",
        lambda: metrics.PrecisionAtK(3).update_state(np.zeros(2, "int32"), np.zeros((2, 2), int)),
    ),
]


@pytest.mark.parametrize("argument, call", BAD)
def test_bad_arguments(argument, call):
    rejects(argument, call)
