"""Verdicts on claims: hand-made records, intervals by hand."""

import math

import pytest
from report_records import make_record
from scipy import stats

from softbench.report import front, numbers
from softbench.report.verdicts import rule
from softbench.report.verdicts.all_claims import LIBRARY
from softbench.report.verdicts.ratios import Numbers, Records, Times
from softbench.report.verdicts.training_ratios import Sooner

GROUP = "ptb-lstm_small"
A_BELOW_FULL = rule.better("demo", GROUP, "a", "full")
WHERE = "demo cell=numbers"


def rows(**values):
    """Records of training, a seed for each value: {method: values}."""
    return Records(
        {
            "demo": [
                make_record(seed, value, method=method)
                for method, own in values.items()
                for seed, value in enumerate(own)
            ]
        }
    )


def verdict(records, *parts):
    return rule.verdict(rule.Claim("x", "Table 1", "A claim.", parts), records)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([90.0, 91.0, 92.0], "holds"),  # 0.91 ± 0.025
        ([110.0, 111.0, 112.0], "does not hold"),
        ([99.0, 101.0, 100.5], "not decided"),  # 1.0017 ± 0.026
    ],
)
def test_seeds_decide_by_the_interval_of_their_ratios(values, word):
    found = verdict(rows(a=values, full=[100.0] * 3), A_BELOW_FULL)
    assert found.word == word
    expected = [value / 100 for value in values]
    low, high = stats.t.interval(0.95, 2, sum(expected) / 3, stats.sem(expected))
    assert found.ratios[0].ends() == pytest.approx((low, high))


def test_a_seed_counts_where_both_rows_have_it():
    found = verdict(rows(a=[90.0, 91.0, 300.0], full=[100.0, 101.0]), A_BELOW_FULL)
    assert found.word == "holds" and "2 seeds" in str(found.ratios[0])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"a": [50.0], "full": [100.0]}, "single seed"),
        ({"full": [100.0, 101.0]}, "no result of `a` on demo"),
        ({"a": [90.0, math.nan, 91.0], "full": [100.0] * 3}, "a value is missing (NaN)"),
        ({"a": [None, None], "full": [100.0] * 2}, "a value is missing (NaN)"),
        ({}, "no result of `a`, `full` on demo"),
    ],
)
def test_nothing_is_decided_without_an_interval(values, reason):
    assert str(verdict(rows(**values), A_BELOW_FULL)) == f"not decided ({reason})"


def test_one_failed_ratio_of_several_needs_a_wider_interval():
    """1.05 ± 0.043 excludes 1; at the level of one ratio of two, ± 0.062, it does not."""
    spread = [1.05 + step * math.sqrt(3) / 100 for step in (-1, 0, 1)]
    assert stats.sem(spread) == pytest.approx(0.01)
    records = rows(
        a=[100 * value for value in spread], b=[90.0, 91.0, 92.0], full=[100.0] * 3, c=[200.0] * 3
    )
    b_below_full = rule.better("demo", GROUP, "b", "full")
    assert verdict(records, A_BELOW_FULL).word == "does not hold"
    found = verdict(records, A_BELOW_FULL, b_below_full)
    assert str(found) == "not decided (the interval reaches over the limit: 1 of 2)"
    none = rule.better("demo", GROUP, "none", "full")
    found = verdict(records, none, b_below_full)
    assert str(found) == "not decided (a row or a number is missing: 1 of 2)"
    found = verdict(records, rule.better("demo", GROUP, "c", "full"), b_below_full)
    assert str(found) == "does not hold (1 of 2 ratios)"


def test_rows_are_compared_after_the_same_steps_and_in_the_same_setting():
    long, short = make_record(0, 80.0), make_record(0, 90.0, method="a")
    short["curve"] = short["curve"][:1]  # 180 after 100 steps, as `long`
    shorter = make_record(0, 90.0, method="a")
    shorter["curve"][0]["valid_perplexity"] = 1.0
    shorter["curve"], shorter["config"]["dataset"] = shorter["curve"][:1], {"name": "other"}
    ratio = A_BELOW_FULL.source.ratio(Records({"demo": [long, short, shorter]}))
    assert ratio.value == 1.0 and ratio.of == "single seed, after 100 steps"
    again = make_record(0, 40.0, method="a")  # longer: this one counts
    ratio = A_BELOW_FULL.source.ratio(Records({"demo": [again, long, short]}))
    assert ratio.value == 0.5 and ratio.of == "single seed, after 200 steps"


def test_equal_times_are_compared_at_the_best_point():
    made = [make_record(0, 150.0), make_record(0, 200.0, method="a")]
    for record in made:
        record["config"]["max_train_seconds"] = 20
    ratio = A_BELOW_FULL.source.ratio(Records({"demo": made}))
    assert ratio.value == 180 / 150 and ratio.of == "single seed, best within 20 s"


def test_another_device_does_not_matter_after_equal_steps():
    elsewhere = {"kind": "cpu", "name": "Another", "count": 2}
    made = [make_record(0, 50.0, method="a"), make_record(0, 100.0, device=elsewhere)]
    made[1]["config"]["environment"] = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    assert A_BELOW_FULL.source.ratio(Records({"demo": made})).value == 0.5
    for record in made:
        record["config"]["max_train_seconds"] = 20
    assert "no setting" in A_BELOW_FULL.source.ratio(Records({"demo": made})).missing
    made = [curve("base", 0.1), curve("fast", 0.2) | {"device": elsewhere}]
    found = Sooner("demo", GROUP, "fast", "base").ratio(Records({"demo": made}))
    assert "no setting" in found.missing


def test_each_seed_of_equal_times_may_have_a_device_of_its_own():
    """One that both rows have: the third seed of `a` has no partner where it ran."""
    made = []
    for seed, (left, right) in enumerate([("One", "One"), ("Other", "Other"), ("One", "Other")]):
        for method, best, name in (("a", 90.0 + seed, left), ("full", 100.0, right)):
            device = {"kind": "cpu", "name": name, "count": 2}
            made.append(make_record(seed, best, method=method, device=device))
            made[-1]["config"]["max_train_seconds"] = 20
    ratio = A_BELOW_FULL.source.ratio(Records({"demo": made}))
    assert ratio.value == pytest.approx(0.905) and ratio.of == "2 seeds, best within 20 s"


def curve(method, *values):
    record = make_record(method=method)
    points = enumerate(values, 1)
    record["curve"] = [{"seconds": 10.0 * i, "step": i, "valid_accuracy": v} for i, v in points]
    return record


def test_seconds_to_the_best_value_of_another_row():
    """Which one that overfits passes twice: it ends with 0.4."""
    made = [curve("base", 0.1, 0.4, 0.5, 0.4), curve("fast", 0.5, 0.1), curve("slow", 0.4, 0.4)]
    records = Records({"demo": made})
    fast, slow = (Sooner("demo", GROUP, name, "base").ratio(records) for name in ("fast", "slow"))
    assert fast.value == 10 / 30
    assert slow.value == 20 / 30 and "not reached by 1 of 1" in slow.of


def numbered(**changes):
    return Records({"demo": [make_record(cell="numbers", **changes)]})


def test_standard_errors_of_a_record_decide():
    records = numbered(bias={"a": {"mean": 0.5, "error": 0.03}, "b": {"mean": 1.0, "error": 0.08}})
    source = Numbers("", f"{WHERE} bias.a.mean", f"{WHERE} bias.b.mean", error="error")
    assert source.ratio(records).error == pytest.approx(0.5 * math.hypot(0.06, 0.08))
    half = stats.norm.ppf(0.975) * 0.05
    assert source.ratio(records).ends() == pytest.approx((0.5 - half, 0.5 + half))
    assert verdict(records, rule.Part(source, high=0.6)).word == "holds"
    assert verdict(records, rule.Part(source, high=0.55)).word == "not decided"
    assert verdict(records, rule.Part(source, low=0.6)).word == "does not hold"
    assert verdict(records, rule.Part(source._replace(error=""), high=0.6)).word == "not decided"
    constant = source._replace(right=0.25)  # has no error of its own
    assert constant.ratio(records).error == pytest.approx(2 * 0.06)


def test_exact_numbers_ratios_of_ratios_and_places_that_records_lack():
    records = numbered(kl={"a": 6.0, "b": 3.0, "c": 4.0, "d": 8.0, "e": None})
    source = Numbers("", f"{WHERE} kl.a / {WHERE} kl.b", f"{WHERE} kl.c / {WHERE} kl.d", exact=True)
    assert source.ratio(records).ends() == (4.0, 4.0)
    assert verdict(records, rule.Part(source, 4.0, 5.0)).word == "holds"
    for place in ("kl.f", "kl.e", "kl"):
        found = verdict(records, rule.Part(Numbers("", f"{WHERE} {place}", exact=True), high=1))
        assert found.word == "not decided" and "no such number" in found.reason


def test_times_are_decided_by_the_spread_of_the_steps():
    def steps(median, low, high):
        return {"median": median, "p20": low, "p80": high}

    fast, slow, wild = steps(1.0, 0.9, 1.1), steps(2.0, 1.8, 2.2), steps(1.5, 0.5, 3.0)
    records = numbered(fast=fast, slow=slow, wild=wild)
    source = Times("", f"{WHERE} fast", f"{WHERE} slow")
    assert source.ratio(records).error == pytest.approx(0.5 * math.hypot(0.1, 0.1))
    assert verdict(records, rule.Part(source, high=1)).word == "holds"
    wild = source._replace(right=f"{WHERE} wild")
    assert verdict(records, rule.Part(wild, high=1)).word == "not decided"
    assert verdict(records, rule.Part(source._replace(right=f"{WHERE} none"))).word == "not decided"


def test_the_page_has_a_row_for_each_claim_and_notes_ask_for_its_verdict():
    names = [claim.name for claims in LIBRARY.values() for claim in claims]
    assert len(names) == len(set(names))
    library = {"A paper": (rule.Claim("x", "Table 1", "A claim.", (A_BELOW_FULL,), "Ours"),)}
    found = rule.verdicts(library, rows(a=[90.0, 91.0, 92.0], full=[100.0] * 3))
    text = rule.page(library, found, {"demo"})
    assert "Of 1 claims 1 hold, 0 do not hold and 0 are not decided." in text
    for part in (
        "| A claim. *Ours.* ",
        "| **holds** ",
        "| validation perplexity of `a` / `full` | below 1 ",
        "| 0.91 ± 0.025, 3 seeds, after 200 steps ",
        "| [demo](demo/README.md) |",
    ):
        assert part in text
    texts = {name: str(verdict) for name, verdict in found.items()}
    marked = numbers.filled("<!--= verdict x -->?<!--/-->", None, verdicts=texts)
    assert marked == "<!--= verdict x -->holds<!--/-->"
    assert front.verdicts([]) == {}
