"""The front page: choices by rule from hand-made records, expected ones by hand."""

import copy
import math
import re

import pytest
from report_records import PLAN, make_record, step_record, write_results

from softbench.bench.config import ConfigError
from softbench.experiments.gradient_bias import page as bias_page
from softbench.experiments.step_time import page as step_page
from softbench.experiments.wall_time import page as wall_page
from softbench.report import app as report
from softbench.report import front as report_front
from softbench.report import papers as report_papers
from softbench.report import which_one
from softbench.report.page import Page

SHARED = {"sampler": {"class_name": "unigram", "config": {"share_draws": True}}}

ALONE = {"count": 2, "own": 1.9, "others": 0.0}
BESIDE = {"count": 2, "own": 1.0, "others": 0.9}


def run(method, curve, kwargs=None, step=60.0, head=30.0, **config):
    """A training record: validation perplexity after each epoch of 10 steps."""
    record = make_record(method=method, step=step, num_classes=10_000)
    record["head_ms"] = {"median": head}
    record["processors"] = ALONE
    record["config"] = record["config"] | {"epochs": len(curve), **config}
    record["config"]["methods"] = {method: {"head": "SampledSoftmax", "kwargs": kwargs or {}}}
    record["curve"] = [
        {"epoch": i, "step": 10 * i, "seconds": 5.0 * i, "valid_perplexity": value}
        for i, value in enumerate(curve, 1)
    ]
    return record


def page(*made, name="demo", **plan):
    return Page(name, PLAN | plan, list(made))


def comparisons(*made, **plan):
    return which_one.comparisons(page(*made, **plan))


def test_rows_are_compared_at_the_last_epoch_that_three_have():
    made = [
        run("full", [180, 150, 120]),
        run("a", [170, 140]),
        run("b", [160, 165]),
        run("short", [100]),
    ]
    (found,) = comparisons(*made)
    assert [(row.method, row.value) for row in found.rows] == [
        ("a", 140),
        ("full", 150),
        ("b", 165),
    ]
    assert found.after == "20 steps" and found.metric == "valid_perplexity"
    assert found.behind(found.rows[2], found.rows[1]) == pytest.approx(0.1)


def test_seeds_are_averaged_and_other_data_are_other_comparisons():
    made = [run("full", [100.0]), run("a", [90.0]), run("a", [80.0])]
    made[2]["config"]["seed"] = 1
    elsewhere = run("a", [1.0], dataset={"name": "other"})
    (found,) = comparisons(*made, elsewhere)
    assert [row.value for row in found.rows] == [85.0, 100.0]
    again = [run("full", [100.0]), run("a", [112.0])]
    again = [record | {"seed": 1} for record in again]
    found = comparisons(run("full", [100.0]), made[1], *again)
    (row,) = which_one.choices(found).table.rows
    assert row[6:9] == ["2", "`full` 100 ± 0", "`a` +1.0 ± 140 % tied"]


def test_few_classes_are_not_compared():
    made = [run("full", [100.0]) | {"num_classes": n} for n in (999, 1_000)]
    others = [run("a", [90.0]) | {"num_classes": n} for n in (999, 1_000)]
    assert comparisons(made[0], others[0]) == []
    assert len(comparisons(made[1], others[1])) == 1


def test_failed_runs_and_pages_without_full_have_no_comparison():
    failed = run("full", [100.0]) | {"status": "nan"}
    assert comparisons(failed, run("a", [90.0])) == []
    assert comparisons(run("full", [None]), run("a", [90.0])) == []


@pytest.mark.parametrize(
    ("head", "expected"),
    [(30.0, "step"), (61.0, "not comparable"), (None, "not measured")],
)
def test_times_are_compared_when_the_shared_part_of_the_step_agrees(head, expected):
    """The step of `full` takes 60 ms: the rest, 30 ms, may differ by up to 30."""
    made = [run("full", [100.0]), run("a", [90.0], head=head)]
    (found,) = comparisons(*made)
    assert found.timing == expected


@pytest.mark.parametrize("processors", [BESIDE, None])
def test_only_records_that_had_the_processors_to_themselves_give_times(processors):
    """Of seeds 0 and 1 of `a` the latter is slower, and says or does not say why."""
    made = [run("full", [100.0]), run("a", [90.0], step=36.0, head=6.0)]
    made += [run("a", [90.0], step=99.0, head=69.0) | {"seed": 1}, run("b", [95.0], head=31.0)]
    made[2]["processors"] = made[3]["processors"] = processors
    (found,) = comparisons(*made)
    assert [row.step_ms for row in found.rows] == [36.0, pytest.approx(math.nan, nan_ok=True), 60.0]
    (row,) = which_one.choices([found]).table.rows
    assert row[9] == "`a`, 0.60 of `full`'s step"
    ((_, data),) = which_one.frontiers([found]).values()
    assert set(data["lines"]) == {"frontier", "full", "a"} and data["x"].endswith(" (no time: b)")


@pytest.mark.parametrize("place", [0, 1])
def test_one_row_with_a_time_is_no_comparison(place):
    made = [run("full", [100.0]), run("a", [90.0])]
    made[place]["processors"] = BESIDE
    assert comparisons(*made)[0].timing == "not measured"


def test_the_fastest_of_those_as_good_is_chosen_from_the_same_model():
    made = [
        run("full", [100.0], step=60.0, head=50.0),
        run("near", [105.0], SHARED, step=15.0, head=5.0),
        run("far", [120.0], SHARED, step=12.0, head=2.0),
        run("exp", [101.0], {"sampler": "exp"}, step=11.0, head=1.0),
        run("other", [50.0], SHARED | {"normalize": True}, step=11.0, head=1.0),
    ]
    section = which_one.choices(comparisons(*made))
    (row,) = section.table.rows
    assert row[6:] == [
        "single",
        "`full` 100",
        "`near` +5.0 %, `far` +20.0 %",
        "`near`, 0.25 of `full`'s step",
        "[demo](demo/README.md)",
    ]
    assert section.answer.startswith("Best against `full`: `near` with perplexity +5.0 %")


@pytest.mark.parametrize(
    ("metric", "ends", "chance", "learned"),
    [
        ("perplexity", 99.0, 100.0, True),
        ("perplexity", 100.0, 100.0, False),
        ("precision_at_1", 0.11, 0.1, True),
        ("precision_at_1", 0.1, 0.1, False),
    ],
)
def test_a_reference_behind_the_most_frequent_classes_gives_no_ratio(metric, ends, chance, learned):
    made = [run("full", [100.0]), run("a", [90.0])]
    for record in made:
        record["curve"][0]["valid_precision_at_1"] = 0.2
    made[0]["final"] = {f"test_{metric}": ends}
    made[0]["most_frequent"] = {f"test_{metric}": chance}
    section = which_one.choices(comparisons(*made, columns=[f"test_{metric}"]))
    assert section.answer.startswith("Best against") == learned
    assert len(section.table.rows) == 1


def test_precision_is_better_when_larger_and_likelihood_when_nll_is_smaller():
    made = [run("full", [100.0]), run("a", [90.0])]
    for record, value in zip(made, (0.4, 0.5), strict=True):
        record["curve"][0]["valid_precision_at_1"] = value
        record["curve"][0]["valid_nll"] = 1 - value
    for column in ("test_precision_at_1", "log_likelihood"):
        (found,) = comparisons(*made, columns=["epochs", column])
        assert found.rows[0].method == "a"
        assert found.behind(found.rows[1], found.rows[0]) > 0


def test_equal_times_are_compared_by_the_best_value_within_them():
    """The tree's curve has fewer points: the first ones lie within its fit. Uniform overfits."""
    curves = {"uniform": [90.0, 80.0, 85.0], "tree": [70.0]}
    made = [run(name, curve, max_train_seconds=30.0) for name, curve in curves.items()]
    reach = {"method": "uniform", "metric": "valid_perplexity"}
    (found,) = comparisons(*made, reach=reach)
    assert (found.timing, found.after) == ("equal time", "at most 30 s")
    assert [row.value for row in found.rows] == [70.0, 80.0]


def test_frontier_joins_what_no_row_beats_and_names_what_is_outside():
    made = [
        run("full", [100.0], step=60.0, head=50.0),
        run("fast", [110.0], step=15.0, head=5.0),
        run("beaten", [120.0], step=20.0, head=10.0),
        run("broken", [1000.0], step=20.0, head=10.0),
        run("other", [50.0], {"temperature": 0.09}, step=20.0, head=10.0),
    ]
    ((_, data),) = which_one.frontiers(comparisons(*made)).values()
    assert data["lines"]["frontier"] == [[0.25, 1.1], [1.0, 1.0]]
    assert set(data["lines"]) == {"frontier", "full", "fast", "beaten", "other *"}
    assert data["x"].endswith("(not shown: broken at 10)")


def steps_of(n, full, keras, rows):
    """`a` and `b` differ in the optimizer alone; their names do not say so."""
    record = step_record(n, full, 0.001)
    own = {"full": full, "a": keras, "b": rows, "c": 50.0}
    methods = record["config"]["methods"]
    methods |= {"full": {"head": "FullSoftmax"}}
    for name, optimizer in (("a", None), ("b", {"name": "adagrad"}), ("c", {"name": "adagrad"})):
        kwargs = {"row_optimizer": optimizer, "num_sampled": 10 if name == "c" else 100}
        methods[name] = {"head": "SampledSoftmax", "kwargs": kwargs}
    step = record["steps"].pop("shared")
    for name, median in own.items():
        record["steps"][name] = copy.deepcopy(step)
        record["steps"][name]["step_ms"]["median"] = median
    record["cell"] = f"n{n}"
    return record


def test_steps_name_the_fastest_of_ours_and_from_which_n_on():
    section = step_page.front([page(steps_of(1_000, 2, 3, 4), steps_of(9_000, 8, 6, 2))])
    first, second = section.table.rows
    assert first[1:7] == ["1,000", "2", "`full`", "2", "1", "0.75"]
    assert second[1:7] == ["9,000", "8", "`b`", "2", "4", "3"]
    assert section.answer.startswith("From n = 9,000 on, a step of the fastest row is 4 to 4 times")


def test_draws_are_compared_with_exact_ones():
    def record(n, exact, kernel):
        parts = {name: {"loss": {"step_ms": {"median": t}}} for name, t in kernel.items()}
        parts["exp"] = {"loss": {"step_ms": {"median": exact}}}
        made = make_record(cell=f"w{n}", num_classes=n, wall_time=parts)
        methods = {name: {"sampler": {"class_name": "rff"}} for name in kernel}
        made["config"] = made["config"] | {"task": "wall_time", "model": {"label": "b10"}}
        made["config"]["methods"] = methods | {"exp": {"sampler": "exp"}, "product": {}}
        return made

    made = record(100, 1.0, {"small": 0.5, "large": 2.0}), record(900, 8.0, {"small": 1.0})
    section = wall_page.front([page(*made)])
    assert section.table.rows[0][4:8] == ["1", "`small` 0.5", "`large` 2", "0.5 to 2"]
    assert section.answer.startswith("From n = 900 on, the loss with any of the kernels is 8 to 8")


def test_the_nearest_proposal_of_each_kind():
    methods = {
        "full": {"head": "FullSoftmax"},
        "uniform": {"kwargs": {"sampler": "uniform"}},
        "unigram": {"kwargs": SHARED},
        "rff": {"kwargs": {"sampler": {"class_name": "rff", "config": {}}}},
    }
    made = make_record(num_classes=100, mutual_information=1.5, valid_perplexity=90.0)
    made |= {"batch": 400, "contexts": 8}
    made["config"] = made["config"] | {"task": "gradient_bias", "methods": methods}
    sizes = {"uniform": (0.01, 4.0), "unigram": (0.125, None), "rff": (0.0625, 2.0)}
    rest = {"ratio": {}, "negative_share": None, "bias": {"10": {}, "100": {}}}
    made["samplers"] = {name: {"ess": ess, "kl": kl, **rest} for name, (ess, kl) in sizes.items()}
    section = bias_page.front([page(made)])
    assert [row[2] for row in section.table.rows] == ["100", "100"]
    assert [row[5:9] for row in section.table.rows] == [
        ["needs no scores", "`unigram`", "12.5 %", "inf"],
        ["kernel", "`rff`", "6.2 %", "2"],
    ]
    assert "`unigram` with 12.5 %" in section.answer


def test_no_records_no_claims(tmp_path):
    text, plots = report_front.front_page(tmp_path, [])
    assert plots == {}
    assert text.count("Not measured.") == 6
    assert "* " not in text.split("### Quality")[0]


def state(item, *made, **plan):
    return report_papers._state(item, page(*made, **plan))


def test_state_of_a_table_counts_the_paper_rows_that_ran():
    item = report_papers.Item("Table 1", "", "demo")
    paper = {"ptb-lstm_small-full": {"epochs": 13}, "ptb-lstm_small-exp": {"epochs": 2}}
    assert state(item, make_record(), paper=paper) == "1 of 2 rows: 2 of 13 epochs; single seed"
    longer = make_record(method="exp", seed=1)
    longer["config"]["epochs"] = 2
    both = [make_record(method="exp"), longer]
    expected = "1 of 2 rows: 2 of 2 epochs; 2 seeds"
    assert state(item, *both, paper=paper) == expected
    expected = "2 of 2 rows: 2 of 13 epochs (1), 2 of 2 epochs (1); 1 to 2 seeds"
    assert state(item, make_record(), *both, paper=paper) == expected
    longer["config"]["epochs"] = 1  # shorter: its seed does not count
    expected = "1 of 2 rows: 2 of 2 epochs; single seed"
    assert state(item, *both, paper=paper) == expected
    assert state(item, make_record(method="other"), paper=paper) == "not run"
    assert state(item, make_record(), paper={}) == "run"
    assert state(item, make_record(status="nan"), paper={}) == "not run"
    figure = item._replace(methods=("full", "rff"))
    half = make_record()
    half["config"] = half["config"] | {"steps_per_epoch": 5}
    assert state(figure, make_record()) == "1 of 2 rows: 2 epochs; single seed"
    assert state(figure, half) == "1 of 2 rows: 10 steps; single seed"
    timed = step_record(10_000, 1.0, 2.0)
    assert state(item, timed, timed | {"seed": 1}, paper={}) == "run; 2 seeds"
    elsewhere = item._replace(datasets=("amazon",))
    assert state(elsewhere, make_record()) == "not run on the paper's data"
    absent = elsewhere._replace(available=False)
    assert state(absent, make_record()) == f"not run: {report_papers.NOT_HERE}"


def test_folder_of_experiments_has_a_front_page_and_one_check(tmp_path, capsys):
    root = tmp_path / "results"
    write_results(root / "demo", make_record(), make_record(method="exp"))
    (tmp_path / "configs").mkdir()
    for name in ("demo", "later"):
        (tmp_path / "configs" / f"{name}.py").touch()
    assert report.main(["softbench-report", f"--results={root}"]) == 0
    text = (root / "README.md").read_text()
    assert re.search(r"\| \[demo\]\(demo/README.md\) +\| A demonstration +\| +2 of 2 ", text)
    assert "`softbench --config=configs/demo.py`" in text and "later" not in text
    assert (root / "demo" / "ptb-lstm_small-valid_perplexity.svg").is_file()
    assert report.main(["softbench-report", f"--results={root}", "--check"]) == 0
    write_results(root / "later", make_record())
    assert report.main(["softbench-report", f"--results={root}", "--check"]) == 1
    stale = capsys.readouterr().err
    assert "README.md" in stale and "later/ptb-lstm_small.csv" in stale
    assert "demo/README.md" not in stale
    assert report.main(["softbench-report", f"--results={root}"]) == 0
    (root / "demo" / "old.csv").write_text("a\n")
    assert report.main(["softbench-report", f"--results={root}", "--check"]) == 1
    assert "no record accounts for: demo/old.csv" in capsys.readouterr().err


def test_every_paper_table_is_listed_with_a_page_or_a_command():
    """By the names that the papers give them; the lists are read off the papers."""
    expected = {
        "Rawat": ["Table 1", "Table 2", "Table 3", *(f"Figure {i}" for i in range(1, 5))],
        "Ma & Collins": ["Table 1", "Table 2", "Figure 1", "Figure 2", "Figure 3"],
        "Bamler": ["Table 1", "Figure 1", "Theorem 2"],
        "Stratos": ["Section 1.1"],
    }
    absent = {"Rawat": {"Table 3", "Figure 4"}, "Bamler": {"Table 1", "Figure 1"}}
    index = report_papers.index([page(make_record(), name="kernel_mse")])
    for paper, names in expected.items():
        (table,) = (table for table in index if table.title.startswith(paper))
        listed = [row[0].split(",")[0] for row in table.rows]
        assert set(names) <= set(listed)
        for row in table.rows:
            assert row[4].startswith("`softbench --config=configs/")
            known = row[2] == "[kernel_mse](kernel_mse/README.md)"
            here = row[0].split(",")[0] not in absent.get(paper, ())
            assert known or row[3] == ("not run" if here else f"not run: {report_papers.NOT_HERE}")


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_results_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match=rf"--results must be .* Received: .*{name}"):
        report.main(["softbench-report", f"--results={tmp_path / name}"])


def test_information_is_the_largest_estimate():
    made = [run("full", [100.0]), run("a", [90.0])]
    made[0]["curve"][0]["mutual_information"] = 1.25
    made[1]["curve"][0]["mutual_information"] = 1.5
    (found,) = comparisons(*made)
    assert math.isclose(found.information, 1.5)


def test_draws_that_are_shared_are_compared_with_shared_exact_ones():
    """268 and 1,696 times were of exact draws for each example, of two timed steps."""
    shared = {"config": {"share_draws": True}}
    kinds = {"exp": {}, "exp_shared": shared, "rff": {}, "rff_shared": shared}
    times = {"exp": (64.0, 20), "exp_shared": (8.0, 3), "rff": (16.0, 20), "rff_shared": (1.0, 20)}
    made = make_record(num_classes=900)
    made["config"] = made["config"] | {"task": "wall_time", "model": {"label": "b256"}}
    made["config"]["methods"] = {
        name: {"sampler": {"class_name": name.split("_")[0]} | own} for name, own in kinds.items()
    }
    made["wall_time"] = {
        name: {"loss": {"step_ms": {"median": time, "count": count}}}
        for name, (time, count) in times.items()
    }
    section = wall_page.front([page(made)])
    assert [[row[3], row[4], row[7]] for row in section.table.rows] == [
        ["b256", "64", "4 to 4"],
        ["b256, shared", "8 (3 steps)", "8 to 8"],
    ]
    assert "is 4 to 4 times cheaper" in section.answer
