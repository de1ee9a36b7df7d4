"""What holds for every sampler: its draws and their expected counts are of `log_prob`."""

import keras
import numpy as np
from conftest import assert_drawn_from, compiled, components, log_counts, to_numpy

from softbench.groups import of_every_example


def log(q):
    with np.errstate(divide="ignore"):
        return np.log(q)


def observer(sampler, table, size, xla=False):
    """(hidden, labels) -> what `observe` returns, compiled once."""

    def function(hidden, labels, ids):
        return {
            "all": sampler.sample(table, hidden, size, labels, exclude_labels=False),
            "others": sampler.sample(table, hidden, size, labels),
            "log_prob": sampler.log_prob(table, hidden),
            "log_prob_others": sampler.log_prob(table, hidden, labels=labels),
            "of_ids": [sampler.log_prob(table, hidden, ids, own) for own in (None, labels)],
        }

    call = compiled(function, sampler, table, xla=xla)

    def run(hidden, labels):
        shape = (len(labels), 6)
        ids = np.random.default_rng(0).integers(0, sampler.units, shape).astype("int32")
        ids[:, 0] = labels
        found = call(hidden, labels, ids)
        arrays = keras.tree.map_structure(lambda x: None if x is None else to_numpy(x), found)
        return {**arrays, "ids": ids}

    return run


def observe(sampler, table, hidden, labels, size, xla=False):
    """Samples and log probabilities of one compiled call: of all classes, and of the others.

    "all" draws the labels too, "others" does not if it need not.
    """
    return observer(sampler, table, size, xla)(hidden, labels)


def assert_log_prob(log_q, expected, rtol, atol=1e-9, total=1.0, zeros=True):
    """log q (B, n) float32 is of the distribution `expected` (R, n) in float64."""
    q = np.exp(np.float64(log_q))
    assert log_q.dtype == np.float32
    np.testing.assert_allclose(q, np.broadcast_to(expected, q.shape), rtol=rtol, atol=atol)
    if zeros:
        impossible = np.broadcast_to(expected == 0, q.shape)
        np.testing.assert_array_equal(np.isneginf(log_q), impossible)
    possible = q.sum(-1) > 0  # of one class nothing is left without the label
    np.testing.assert_allclose(q.sum(-1)[possible], total, rtol=1e-5)


def assert_draws_are_of_log_prob(sampler, found, labels, atol=1e-4, exact=slice(None)):
    """Chi-square, expected counts and labels of what `observe` returned.

    The draws are with replacement, m of them: log E[times drawn] = log m + log q. `exact`: rows of
    the others' counts that are as exact as that.
    """
    own = sampler.per_example
    every, others = found["log_prob"], found["log_prob_others"]
    each, rows = len(labels), sampler.rows or len(labels)
    for key, log_q in (("all", every), ("others", others if own else every)):
        ids, count = found[key].ids, found[key].log_expected_count
        size = ids.shape[1]
        assert ids.dtype == np.int32 and len(ids) == rows
        q = np.exp(np.float64(log_q))
        for row, p in zip(ids, q, strict=False):
            if p.sum() > 0:
                assert_drawn_from(row, p)
            else:
                assert sampler.units == 1 and np.all(row == 0)  # nothing but the label
        expected = np.log(size) + np.take_along_axis(log_q, np.broadcast_to(ids, (each, size)), -1)
        checked = exact if key == "others" else slice(None)
        expected = expected[:rows][checked]
        np.testing.assert_allclose(count[checked], expected, rtol=1e-5, atol=atol)
    true = np.log(size) + every[np.arange(each), labels]
    close = {"rtol": 2e-5, "atol": atol}
    np.testing.assert_allclose(found["all"].true_log_expected_count, true, **close)
    if own:
        assert found["others"].true_log_expected_count is None
        assert np.all(np.isneginf(others[np.arange(each), labels]))
        assert sampler.units == 1 or not np.any(found["others"].ids == labels[:, None])
    else:
        np.testing.assert_allclose(found["others"].true_log_expected_count, true, **close)


def assert_log_prob_of_ids(found, rtol=1e-5, atol=0.0):
    for of_ids, log_q in zip(
        found["of_ids"], (found["log_prob"], found["log_prob_others"]), strict=True
    ):
        expected = np.take_along_axis(log_q, found["ids"], -1)
        np.testing.assert_allclose(of_ids, expected, rtol=rtol, atol=atol)


def each_drawn(samples, hidden):
    """Ids and log counts (B, M) of all components of a call of `sample`."""
    pairs = [
        [to_numpy(of_every_example(x, hidden)) for x in part[:2]] for part in components(samples)
    ]
    ids, counts = (np.concatenate(arrays, axis=-1) for arrays in zip(*pairs, strict=True))
    return ids, counts


def assert_drawn_as_often_as_said(sampler, table, hidden, size, labels=None, rounds=400):
    """How often each class is drawn for each example, against exp(log E[times drawn]) (B, n).

    Returns that, and how often each was drawn. A draw of log count -inf does not count.
    """
    excluded = labels if sampler.excludes_labels else None
    expected = np.exp(log_counts(sampler, table, hidden, size, excluded).astype(float))
    draw = compiled(lambda h: sampler.sample(table, h, size, labels), sampler, table)
    seen, rows = np.zeros(expected.shape), np.arange(len(hidden))[:, None]
    for _ in range(rounds):
        ids, count = each_drawn(draw(hidden), hidden)
        known = np.isfinite(count)
        said = np.log(np.take_along_axis(expected, ids, -1)[known])
        np.testing.assert_allclose(count[known], said, atol=1e-4)
        np.add.at(seen, (np.broadcast_to(rows, ids.shape)[known], ids[known]), 1)
    error = np.sqrt(expected / rounds)
    assert (np.abs(seen / rounds - expected) < 5 * error + 1e-3).all()
    return expected, seen
