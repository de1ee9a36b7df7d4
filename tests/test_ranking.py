"""Which of several methods is the best, by numbers worked out by hand. Needs no Keras."""

import math

import pytest

from softbench.report import ranking

FULL = (0.50, 0.52, 0.54)


def seeds(*numbers):
    return dict(enumerate(numbers))


def test_rows_of_a_measure_of_which_more_is_better():
    """c: differences -.01, .03 and .01, mean .01, deviation .02; 4.3027 * .02 / sqrt(3) = .04968.

    Over the best mean, .52: .01923 +- .09555. b is .02 worse in each seed.
    """
    values = {"b": seeds(0.48, 0.50, 0.52), "c": seeds(0.51, 0.49, 0.53), "a": seeds(*FULL)}
    rows = ranking.rank(values, lower=False)
    assert [(name, row.status) for name, row in rows.items()] == [
        ("a", "best"),
        ("c", "tied"),
        ("b", "worse"),
    ]
    assert rows["c"].behind.mean == pytest.approx(0.01923, abs=1e-5)
    assert rows["c"].behind.half == pytest.approx(0.09555, abs=1e-5)
    assert rows["b"].behind.mean == pytest.approx(0.02 / 0.52)
    assert rows["a"].mean.half == pytest.approx(4.3027 * 0.02 / math.sqrt(3), rel=1e-4)


def test_rows_of_perplexity_are_compared_by_logarithms():
    """b is 1.1 times as perplexed with every seed, c 1.1, 1 and 1.21 times: mean log 1.1."""
    values = {"a": seeds(100, 110, 121), "b": seeds(110, 121, 133.1), "c": seeds(110, 110, 146.41)}
    rows = ranking.rank(values, lower=True)
    assert [row.status for row in rows.values()] == ["best", "worse", "tied"]
    assert rows["b"].behind.mean == pytest.approx(math.log(1.1))
    half = 4.3027 * math.log(1.1) / math.sqrt(3)
    assert rows["c"].behind == pytest.approx((math.log(1.1), half, 3), rel=1e-4)


def test_seeds_are_paired():
    """Seeds 1 to 3 are common; with one common seed nothing tells the two apart."""
    best = {1: 0.5, 2: 0.6, 3: 0.7}
    other = {0: 0.1, 1: 0.49, 2: 0.59, 3: 0.69}
    row = ranking.rank({"a": best, "b": other}, lower=False)["b"]
    assert row.behind.count == 3 and row.status == "worse"
    row = ranking.rank({"a": best, "b": {3: 0.2, 4: 0.2}}, lower=False)["b"]
    assert row.behind.count == 1 and row.status == "tied"


def test_the_simplest_of_the_tied_is_recommended():
    values = {"codebook": FULL, "unigram": (0.51, 0.49, 0.53), "in_batch": (0.48, 0.50, 0.52)}
    values = {name: seeds(*own) for name, own in values.items()}
    assert ranking.simplest(ranking.rank(values, lower=False)) == "unigram"
    assert ranking.simplest(ranking.rank(values | {"full": values["unigram"]}, False)) == "full"
    alone = ranking.rank(values | {"unigram": values["in_batch"]}, lower=False)
    assert ranking.simplest(alone) == "codebook"
