"""The distribution of generated data: against one by enumeration, its draws, and its scores."""

import itertools
import sys

import numpy as np
import pytest
import small_runs

from softbench import datasets
from softbench.bench.methods import full
from softbench.bench.training import evaluation
from softbench.bench.training import run as train
from softbench.datasets.draws import SLOTS


def arrays(data, truth="truth"):
    """Probabilities (N, n) and labels (N, n) of the whole test set, or of another."""
    p, labels = zip(*getattr(data, truth)(), strict=True)
    return np.concatenate(p), np.concatenate([part.toarray() for part in labels]).astype(float)


@pytest.mark.parametrize("n", [3, 13])
def test_language_by_enumeration(n, monkeypatch):
    monkeypatch.setattr(sys.modules[datasets.synthetic_language.__module__], "_ENTRIES", 7 * n)
    data = datasets.synthetic_language(n, 300, 20, 30, seed=3, num_groups=4, collocation=0.3)
    source, (raw_id, _) = data.truth.func.__self__, data.truth.args
    groups, ranks = min(4, n), -(-n // 4) if n > 4 else 1
    z = (np.arange(ranks) + 1.0) ** -1.1
    for truth, before_it, split in (
        ("truth", data.valid, data.test),
        ("valid_truth", data.train, data.valid),
    ):
        text = raw_id[[before_it[-1], *split]]
        expected = np.zeros((len(split) - 1, n))
        for row, (before, last) in zip(expected, itertools.pairwise(text), strict=False):
            for slot, share in enumerate(SLOTS):
                row[source.successors[last, slot]] += 0.3 * share
                group = source.next_group[before % groups, last % groups, slot]
                for rank in range(ranks):
                    member = rank * groups + group
                    row[member if member < n else group] += 0.7 * share * z[rank] / z.sum()
        p, labels = arrays(data, truth)
        np.testing.assert_allclose(p, expected[:, raw_id], rtol=1e-12)
        np.testing.assert_array_equal(labels.argmax(1), split[1:])


def counts_probability(counts, emissions):
    """Probability that draws from these distributions (v,), one each, have these counts (v,)."""
    ways = np.zeros(counts + 1)
    ways[(0,) * len(counts)] = 1.0
    for shares in emissions:
        after = np.zeros_like(ways)
        for feature, share in enumerate(shares):
            own, rest = (np.moveaxis(part, feature, 0) for part in (after, ways))
            own[1:] += share * rest[:-1]
        ways = after
    return ways[tuple(counts)]


CASES = {
    "one level": dict(num_classes=40, lowest_level=1),
    "two levels": dict(num_classes=300, lowest_level=1),
    "down to the leaves": dict(num_classes=40, lowest_level=0),
}
SIZES = dict(num_train=10, num_valid=5, labels_per_example=1.0)


@pytest.mark.parametrize("name", CASES)
def test_xmc_by_enumeration(name):
    data = datasets.synthetic_xmc(num_features=6, num_test=3, seed=2, **SIZES, **CASES[name])
    source, (counts, _) = data.truth.func.__self__, data.truth.args
    p, _ = arrays(data)
    tables = [np.stack([np.bincount(t, minlength=6) / 6 for t in level]) for level in source.tables]
    units, share = source.leaves // source.widths[0], (np.arange(data.num_classes) + 5.0) ** -1
    for row, own in zip(p, counts.toarray().astype(int), strict=True):
        joint = share / share.sum()
        for unit in range(units.max() + 1):
            node = unit * source.widths[0]
            path = [t[node // w] for w, t in zip(source.widths, tables, strict=True)]
            emissions = [shares for shares in path for _ in range(3)]
            joint[units == unit] *= counts_probability(own, emissions + [source.background] * 4)
        np.testing.assert_allclose(row, joint / joint.sum(), rtol=1e-9, atol=1e-15)


def generated():
    yield datasets.synthetic_language(200, 500, 20, 2_000, num_groups=4)
    for case in CASES.values():
        yield datasets.synthetic_xmc(**case, num_features=150, num_test=1_000, **SIZES)


def test_labels_follow_the_truth():
    """-log p of labels less the entropy has mean 0: 4 standard errors, and not for another p."""
    for data in generated():
        p, labels = arrays(data)
        np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
        log_p = np.log(np.maximum(p, 1e-300))
        share = labels / labels.sum(1, keepdims=True)

        def score(share, log_p=log_p, p=p):
            distance = ((p - share) * log_p).sum(1)
            return distance.mean() / (distance.std() / len(distance) ** 0.5)

        assert abs(score(share)) < 4
        assert abs(score(np.full_like(p, 1 / p.shape[1]))) > 10


def test_scores_of_the_truth():
    for data in generated():
        p, labels = arrays(data)
        found = evaluation.oracle(data.truth, (1, 3, 5), data.counts)
        share = labels / labels.sum(1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            nll = -np.where(labels > 0, share * np.log(p), 0.0).sum(1).mean()
        assert found["nll"] == pytest.approx(nll, rel=1e-12)
        assert found["perplexity"] == pytest.approx(np.exp(nll), rel=1e-12)
        best = np.argsort(-p, axis=1, kind="stable")
        for k in (1, 3, 5):
            hits = np.take_along_axis(labels, best[:, :k], axis=1).mean()
            assert found[f"precision_at_{k}"] == pytest.approx(hits, abs=0.01)  # ties
        assert list(found) == ["nll", "perplexity", *(f"precision_at_{k}" for k in (1, 3, 5))]


def test_a_run_of_a_search_asks_the_validation_set_alone():
    job = small_runs.job(**small_runs.LANGUAGE, methods={"full": full()}, test=False)
    train.run(job)
    result = job.result
    names = [*result["most_frequent"], *result["oracle"], *result["final"]]
    assert names.count("valid_nll") == 3
    assert not any(name.startswith("test_") for name in names)


def test_a_set_whose_distribution_has_no_closed_form_has_no_truth():
    assert datasets.synthetic_xmc(40, 30, 10, 5, 5).truth is None
    with pytest.raises(ValueError, match=r"`lowest_level` must be .*Received"):
        datasets.synthetic_xmc(40, 30, 10, 5, 5, lowest_level=-1)
