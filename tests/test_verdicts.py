"""Verdicts on claims: hand-made records, intervals by hand."""

import math

import pytest
from report_records import PLAN, make_record
from scipy import stats
from shipped import ROOT

from softbench.report import claims, frame, measures, pages

GROUP = "ptb-lstm_small"
CLAIM = claims.Claim("x", "A paper", "Table 1", "A claim.", "demo", "valid_perplexity", [])


def frames(*made):
    return {"demo": frame.of("demo", PLAN, list(made))}


def rows(**values):
    """Records of training, a seed for each value: {method: values}."""
    return frames(
        *(
            make_record(seed, value, method=method)
            for method, own in values.items()
            for seed, value in enumerate(own)
        )
    )


def verdict(made, *ratios, **fields):
    return claims.verdict(CLAIM._replace(ratios=list(ratios or ["a / full < 1"]), **fields), made)


def ratio(made, **fields):
    return verdict(made, **fields).ratios[0]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([90.0, 91.0, 92.0], "holds"),  # 0.91 ± 0.025
        ([110.0, 111.0, 112.0], "does not hold"),
        ([99.0, 101.0, 100.5], "not decided"),  # 1.0017 ± 0.026
    ],
)
def test_seeds_decide_by_the_interval_of_their_ratios(values, word):
    found = verdict(rows(a=values, full=[100.0] * 3))
    assert found.word == word
    expected = [value / 100 for value in values]
    low, high = stats.t.interval(0.95, 2, sum(expected) / 3, stats.sem(expected))
    assert found.ratios[0].ends() == pytest.approx((low, high))


def test_a_seed_counts_where_both_rows_have_it():
    found = verdict(rows(a=[90.0, 91.0, 300.0], full=[100.0, 101.0]))
    assert found.word == "holds" and found.ratios[0].of == "2 seeds, after 200 steps"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"a": [50.0], "full": [100.0]}, "single seed"),
        ({"full": [100.0, 101.0]}, "no result of `a` on demo"),
        ({"a": [90.0, math.nan, 91.0], "full": [100.0] * 3}, "a value is missing (NaN)"),
        ({"a": [None, None], "full": [100.0] * 2}, "a value is missing (NaN)"),
    ],
)
def test_nothing_is_decided_without_an_interval(values, reason):
    assert str(verdict(rows(**values))) == f"not decided ({reason})"
    assert str(verdict({})) == "not decided (no record of demo)"


def test_one_failed_ratio_of_several_needs_a_wider_interval():
    """1.05 ± 0.043 excludes 1; at the level of one ratio of two, ± 0.062, it does not."""
    spread = [1.05 + step * math.sqrt(3) / 100 for step in (-1, 0, 1)]
    assert stats.sem(spread) == pytest.approx(0.01)
    values = [100 * value for value in spread]
    made = rows(a=values, b=[90.0, 91.0, 92.0], full=[100.0] * 3, c=[200.0] * 3)
    assert verdict(made).word == "does not hold"
    for left, words in (
        ("a", "not decided (the interval reaches over the limit: 1 of 2)"),
        ("none", "not decided (a row or a number is missing: 1 of 2)"),
        ("c", "does not hold (1 of 2 ratios)"),
    ):
        found = verdict(made, "b / full < 1", f"{left} / full < 1")
        assert str(found) == words and found.decisive == 1


def test_rows_are_compared_after_the_same_steps_and_in_the_same_setting():
    long, short = make_record(0, 80.0), make_record(0, 90.0, method="a")
    short["curve"] = short["curve"][:1]  # 180 after 100 steps, as `long`
    other = make_record(0, 90.0, method="a")
    other["curve"][0]["valid_perplexity"] = 1.0
    other["curve"], other["config"]["dataset"] = other["curve"][:1], {"name": "other"}
    found = ratio(frames(long, short, other))
    assert found.value == 1.0 and found.of == "single seed, after 100 steps"
    again = make_record(0, 40.0, method="a")  # longer: this one counts
    found = ratio(frames(again, long, short))
    assert found.value == 0.5 and found.of == "single seed, after 200 steps"


def test_equal_times_are_compared_at_the_best_point_of_one_device():
    made = [make_record(0, 150.0), make_record(0, 200.0, method="a")]
    for record in made:
        record["config"]["max_train_seconds"] = 20
    found = ratio(frames(*made))
    assert found.value == 180 / 150 and found.of == "single seed, best within 20 s"
    made[1]["device"] = {"kind": "cpu", "name": "Another", "count": 2}
    assert "no setting" in ratio(frames(*made)).missing
    for record in made:  # after equal steps the device does not matter
        record["config"]["max_train_seconds"] = 0
    assert ratio(frames(*made)).value == 200 / 150


def curve(method, *values):
    points = enumerate(values, 1)
    points = [{"seconds": 10.0 * i, "step": i, "valid_accuracy": v} for i, v in points]
    return make_record(method=method, curve=points)


def test_seconds_to_the_best_value_of_another_row():
    """Which one that overfits passes twice: it ends with 0.4."""
    made = frames(
        curve("base", 0.1, 0.4, 0.5, 0.4), curve("fast", 0.5, 0.1), curve("slow", 0.4, 0.4)
    )
    found = verdict(made, "fast / base < 1", "slow / base < 1", until="valid_accuracy").ratios
    assert found[0].value == 10 / 30
    assert found[1].value == 20 / 30 and "not reached by 1 of 1" in found[1].of


def of_runs(monkeypatch, **declared):
    """Records with numbers in `final`, whose measures are declared."""
    for name, measure in declared.items():
        monkeypatch.setitem(measures.MEASURES, name, measure)

    def made(**methods):
        return frames(*(make_record(method=m) | {"final": v} for m, v in methods.items()))

    return made


def test_standard_errors_of_a_record_decide(monkeypatch):
    made = of_runs(monkeypatch, bias=measures.Measure("bias", error="error"))
    found = made(a={"bias": 0.5, "error": 0.03}, b={"bias": 1.0, "error": 0.08})
    half = stats.norm.ppf(0.975) * 0.5 * math.hypot(0.06, 0.08)
    ends = pytest.approx((0.5 - half, 0.5 + half))
    for text, word in (
        ("a / b < 0.6", "holds"),
        ("a / b < 0.55", "not decided"),
        ("a / b > 0.6", "does not hold"),
    ):
        decided = verdict(found, text, measure="bias")
        assert decided.word == word and decided.ratios[0].ends() == ends
    constant = verdict(found, "a / 0.25 < 3", measure="bias").ratios[0]  # has no error
    assert constant.error == pytest.approx(2 * 0.06)
    assert verdict(found, "a / b < 0.6", measure="test_x").reason.startswith("no such number")


def test_what_is_calculated_is_exact_and_times_have_the_spread_of_steps(monkeypatch):
    made = of_runs(monkeypatch, kl=measures.Measure("kl", exact=True))
    found = made(a={"kl": 6.0}, b={"kl": 3.0}, c={"kl": None})
    decided = verdict(found, "a / b in 2 to 3", measure="kl")
    assert decided.word == "holds" and decided.ratios[0].ends() == (2.0, 2.0)
    assert verdict(found, "a / c < 1", measure="kl").word == "not decided"

    def steps(name, median, low, high):
        return make_record(method=name, step_ms={"median": median, "p20": low, "p80": high})

    times = frames(steps("a", 1.0, 0.9, 1.1), steps("b", 2.0, 1.8, 2.2), steps("c", 1.5, 0.5, 3.0))
    decided = verdict(times, "a / b < 1", measure="step_ms")
    assert decided.word == "holds"
    assert decided.ratios[0].error == pytest.approx(0.5 * math.hypot(0.1, 0.1))
    assert verdict(times, "a / c < 1", measure="step_ms").word == "not decided"


def test_sides_have_the_fields_of_the_claim_and_those_that_follow():
    claim = CLAIM._replace(where=f"group={GROUP} seed=1")
    part = claims.part(claim, "a seed=2 / b measure=kl experiment=other in 0.5 to 2")
    common = {"experiment": "demo", "measure": "valid_perplexity", "group": GROUP}
    assert part.left == common | {"seed": "2", "method": "a"}
    assert part.right == common | {
        "seed": "1",
        "method": "b",
        "measure": "kl",
        "experiment": "other",
    }
    assert (part.low, part.high, part.range) == (0.5, 2.0, "0.5 to 2")
    assert claims.part(claim, "a / 3 > 1").right == 3.0


def test_what_is_not_decided_names_its_runs(monkeypatch):
    library = [
        CLAIM._replace(ratios=["a / full < 1"]),
        CLAIM._replace(
            name="y", ratios=["b / full < 1"], experiment="none", run="softbench --config=n"
        ),
    ]
    monkeypatch.setattr(claims, "library", lambda: library)
    command = (
        "softbench --config=configs/demo.py --config.methods=a,b --config.seeds=(0,1) --config.x=2"
    )
    values = {"a": (90.0, 110.0), "full": (100.0, 100.0)}
    made = [
        make_record(seed, value, method=method, command=command)
        for method, own in values.items()
        for seed, value in enumerate(own)
    ]
    made = frames(*made)
    decided = claims.verdicts(made)
    assert claims.undecided(decided, made) == [
        "# x: the interval reaches over the limit",
        "softbench --config=configs/demo.py --config.x=2 --config.methods=a,full "
        "'--config.seeds=(2,3)'",
        "# y: no record of none",
        "softbench --config=n --config.methods=b,full '--config.seeds=(0,1,2)'",
    ]
    page = pages.Page(made, "", decided)
    text = page.claims()
    assert "| A, Table 1 | A claim. | [not decided](demo/README.md) | 1 ± 1.3 | < 1 |" in text
    assert page.functions()["verdict"]("y") == "not decided"
    table = claims.table(decided)
    assert list(table["claim"]) == ["x", "y"] and table["of"][1] == "no record of none"
    assert claims.counts(decided) == ("Of 2 claims 0 hold, 0 do not hold and 2 are not decided.")


def test_the_library_names_what_the_records_have():
    """Each name once; where an experiment has records, a side lacks rows and not columns."""
    names = [claim.name for claim in claims.library()]
    assert len(names) == len(set(names)) > 70
    frames, _ = pages.read_all(ROOT / "results")
    for claim in claims.library():
        for text in claim.ratios:
            part = claims.part(claim, text)
            for side in (part.left, part.right):
                if isinstance(side, dict) and side["experiment"] in frames:
                    where = dict(side)
                    found = frames[where.pop("experiment")]
                    assert where.pop("measure") in [*found.runs, *found.curves]
                    assert set(where) <= set(found.runs), claim.name
    assert claims.verdicts({}) == {}
