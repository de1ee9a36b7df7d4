"""The report, from hand-made records; expected numbers by hand. Needs no Keras."""

import csv
import io
import subprocess
import sys

import pytest
from report_records import PLAN, files, make_record, step_record, write_results

from softbench.bench import records
from softbench.experiments.step_time import page as report_steps
from softbench.report import app as report
from softbench.report import frame, measures, training, which_one
from softbench.report import page as report_page
from softbench.report import tables as report_tables


def results(plan, records):
    return training.results(plan, frame.cells(records))


def row_of(table, name):
    return next(row for row in table.rows if row[0] == name)


def test_paper_is_shown_next_to_ours_of_rows_that_ran():
    (table,) = results(PLAN, [make_record()])
    assert table.title == "ptb-lstm_small"
    assert table.header == [
        "method",
        "backend",
        "test_perplexity",
        "test_perplexity (paper)",
        "test_perplexity / paper",
        "step_ms",
    ]
    assert table.rows == [["full", "jax", "118", "111.5", "1.058", "60"]]


def test_a_page_marks_the_rows_of_a_single_seed():
    def text(*made):
        return report_page.texts(report_page.Page("demo", PLAN, list(made)))["README.md"]

    full = [make_record(seed=seed) for seed in range(2)]
    alone = make_record(method="exp")
    assert "* Seeds: every row is of a single seed.\n" in text(full[0], alone)
    assert "* Seeds: a single one for `exp`.\n" in text(*full, alone)
    assert "* Seeds:" not in text(*full)
    other = make_record(cell="other")
    other["config"] = {**other["config"], "dataset": {"name": "other"}}
    assert "* Seeds: a single one for `full` on `other-lstm_small`; `exp`.\n" in text(
        *full, other, alone
    )


SINGLE = ["* Seeds: every row is of a single seed."]
ANOTHER = {"kind": "cpu", "name": "Another CPU", "count": 1}


def of_two_machines(**config):
    made = [make_record(seed=seed, cell=f"cell{seed}") for seed in range(2)]
    for record in made:
        record["config"] = record["config"] | config
    made[1]["device"] = ANOTHER
    made[1]["config"] = made[1]["config"] | {"environment": {"A": "1"}}
    return made


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"task": "proposals"}, []), ({"task": "train"}, []), ({"max_train_seconds": 20}, SINGLE)],
)
def test_seeds_of_equal_steps_count_together_on_any_device(config, expected):
    made = of_two_machines(**config)
    assert report_page._seeds(frame.cells(made)) == expected
    made[1]["config"] = made[1]["config"] | {"backend": "tensorflow"}
    assert report_page._seeds(frame.cells(made)) == SINGLE


def test_machines_that_ran_the_same_seed_are_compared():
    made = of_two_machines()
    assert frame.cells(made)["variant"].nunique() == 1
    made[1]["seed"] = made[1]["config"]["seed"] = 0
    found = frame.cells(made)
    assert found["variant"].nunique() == found["setting"].nunique() == 2
    made[0]["status"] = "nan"  # and another machine has made up for it
    assert frame.cells(made)["variant"].nunique() == 1


@pytest.mark.parametrize(
    ("limit", "steps", "group"),
    [
        (0, 2323, "ptb-lstm_small"),
        (1162, 1162, "ptb-lstm_small_1162_steps"),
        (4000, 2323, "ptb-lstm_small"),  # a limit that the data do not reach
    ],
)
def test_shorter_epochs_are_a_group_of_their_own(limit, steps, group):
    whole, other = make_record(), make_record(seed=1)
    other["config"] = other["config"] | {"steps_per_epoch": limit}
    other["steps_per_epoch"] = steps
    assert list(frame.cells([whole, other])["group"]) == ["ptb-lstm_small", group]
    assert list(frame.cells([other])["group"]) == ["ptb-lstm_small"]  # nothing to tell it from


def test_kinds_of_devices_are_rows_of_their_own():
    made = of_two_machines()
    made[1]["device"] = ANOTHER | {"kind": "gpu"}
    assert frame.cells(made)["variant"].nunique() == 2
    assert frame.cells(made)["setting"].nunique() == 2


def test_times_are_of_one_machine_and_quality_of_all():
    """Seeds 0 and 1 of `full` and `exp` are of one machine, seed 2 and `uniform` of another."""
    made = [make_record(seed=seed, perplexity=value) for seed, value in enumerate((90, 100, 110))]
    made += [make_record(method="exp", perplexity=200), make_record(method="uniform")]
    for record, step in zip(made, (10.0, 20.0, 90.0, 70.0, 80.0), strict=True):
        record["step_ms"] = {"median": step}
    for record in (made[2], made[4]):
        record["device"] = ANOTHER
    plan = PLAN | {"columns": ["test_perplexity", "epochs", "step_ms"]}
    (found,) = results(plan, made)
    rows = [dict(zip(found.header, row, strict=True)) for row in found.rows]
    shown = [tuple(row[key] for key in ("seeds", *plan["columns"])) for row in rows]
    full = ("3", "100 ± 25", "2", "15 ± 64")
    assert shown == [full, ("single", "200", "2", "70"), ("single", "118", "2", "-")]
    assert "`Test CPU (cpu x 2)`" in found.words
    (apart,) = results(plan, made[2:])
    assert [row[-1] for row in apart.rows] == ["90", "70", "80"] and "Times" not in apart.words
    made[4]["processors"] = {"count": 2, "own": 1.9, "others": 0.0}  # and no other record says so
    (found,) = results(plan, made)
    assert [row[-1] for row in found.rows] == ["90", "-", "80"]


def test_a_run_of_fewer_epochs_has_no_ratio_to_the_paper():
    paper = {"ptb-lstm_small-full": {"test_perplexity": 100.0, "epochs": 13}}
    columns = ["epochs", "test_perplexity"]
    longer = make_record(perplexity=130.0)
    longer["config"] = longer["config"] | {"epochs": 13}
    plan = PLAN | {"paper": paper, "columns": columns}
    (table,) = results(plan, [make_record(), longer])
    assert table.header[2:] == [
        "epochs",
        "epochs (paper)",
        "test_perplexity",
        "test_perplexity (paper)",
        "test_perplexity / paper",
    ]
    assert sorted(row[2:] for row in table.rows) == [
        ["13", "13", "130", "100", "1.3"],
        ["2", "13", "118", "100", "-"],
    ]


def test_seeds_become_mean_and_interval():
    """t(0.975, 1) = 12.706 times the standard error: 1.5 of the perplexities, 10 of the steps."""
    made = [make_record(0, 110.0, 50.0), make_record(1, 113.0, 70.0)]
    (table,) = results(PLAN, made)
    assert row_of(table, "full")[2:] == ["2", "111.5 ± 19", "111.5", "1 ± 0.17", "60 ± 130"]


SEEDS = {"full": (10, 11, 12), "exp": (12, 13, 14), "uniform": (30, 31, 32), "lone": (1,)}


def test_the_best_row_is_marked_and_those_whose_interval_overlaps():
    """Half of each interval is t(0.975, 2) / sqrt(3) = 4.3027 / 1.7321 = 2.484."""
    plan = PLAN | {"paper": {}, "columns": ["test_perplexity"]}
    made = [
        make_record(seed, value, method=name)
        for name, values in SEEDS.items()
        for seed, value in enumerate(values)
    ]
    table, paired = training.tables(plan, made)
    expected = {"full": "**11 ± 2.5**", "exp": "13 ± 2.5 tied", "uniform": "31 ± 2.5", "lone": "1"}
    assert {row[0]: row[3] for row in table.rows} == expected
    assert [row_of(table, name)[2] for name in SEEDS] == ["3", "3", "3", "single"]
    assert "Student's t" in table.words
    first = cells_of(table)[0]
    assert float(first["test_perplexity_half"]) == pytest.approx(2.484, abs=1e-3)
    assert (first["test_perplexity_mean"], first["test_perplexity_count"]) == ("11", "3")
    assert paired.header == ["method", "backend", "seeds", "test_perplexity"]
    assert [row[2:] for row in paired.rows] == [["3", "2 ± 0"], ["3", "20 ± 0"]]
    ((_, plot),) = training.plots(plan, made).values()
    assert plot["lines"]["full"][1] == pytest.approx([20.0, 11.0, 2.484], abs=1e-3)
    assert plot["lines"]["lone"] == [[10.0, 180.0], [20.0, 1]]
    (alone,) = results(plan, made[::3])
    assert row_of(alone, "lone")[2] == "**1**" and "One seed" in alone.words
    kept = [record | {"best": record["final"]} for record in made]  # of the best weights
    table, paired = training.tables(plan | {"columns": ["best.test_perplexity"]}, kept)
    assert {row[0]: row[3] for row in table.rows} == expected
    assert [row[2:] for row in paired.rows] == [["3", "2 ± 0"], ["3", "20 ± 0"]]


def test_rows_are_compared_seed_by_seed_with_the_best_one_too():
    """full - exp is 3, 2 and 1; half of the interval is 2.484 as above."""
    plan = PLAN | {"paper": {}, "columns": ["test_perplexity"]}
    values = {"full": (13, 13, 13), "exp": (10, 11, 12), "lone": (1,)}
    made = [
        make_record(seed, value, method=name)
        for name, own in values.items()
        for seed, value in enumerate(own)
    ]
    tables = training.tables(plan, made)
    assert [table.title.split(": ")[-1] for table in tables[1:]] == [
        "difference to full",
        "difference to exp",
    ]
    assert [table.rows for table in tables[1:]] == [
        [["exp", "jax", "3", "-2 ± 2.5"]],
        [["full", "jax", "3", "2 ± 2.5"]],
    ]


def test_marks_stay_marks_with_pyarrow(tmp_path):
    """Texts of the table of a learning curve, whose lowest value is bold."""
    pytest.importorskip("pyarrow")
    path = write_results(tmp_path, make_record(), make_record(method="exp", perplexity=120.0))
    records.write_json(path / "experiment.json", PLAN | {"columns": ["valid_perplexity"]})
    report.main(["softbench-report", f"--results={path}"])
    page = (path / "README.md").read_text()
    assert "**118**" in page


def test_a_failed_seed_is_left_out_of_its_row_and_empty_in_the_csv():
    failed = make_record(1, status="timed_out", final=None)
    plan = PLAN | {"columns": ["epochs", "test_perplexity"]}
    (table,) = results(plan, [make_record(), failed])
    assert row_of(table, "full")[2:4] == ["2", "118"]
    rows = [row for row in cells_of(table) if row["method"] == "full"]
    assert [row["epochs"] for row in rows] == ["2", ""]
    (table,) = results(plan, [failed])
    assert row_of(table, "full")[2:4] == ["timed out", "timed out"]


def test_growth_and_ratio_to_the_peer():
    """The ratio is that at the largest n: at the smallest it is 4."""
    made = [step_record(10_000, 2.0, 8.0), step_record(1_000_000, 3.0, 4.5)]
    (table,) = report_steps.tables(PLAN, made)
    assert table.header[1:] == [
        "n = 10,000, ms (p20-p80)",
        "n = 1,000,000, ms (p20-p80)",
        "growth",
        "peer_tf / this",
    ]
    assert row_of(table, "shared") == ["shared", "2 (1-4)", "3 (1.5-6)", "1.5", "1.5"]
    assert row_of(table, "peer_tf")[-2:] == ["0.562", "1"]


def test_several_runs_of_a_step_are_one_row_of_medians():
    made = [step_record(10_000, ms, 8.0) for ms in (4.0, 2.0, 9.0)]
    for seed, record in enumerate(made):
        record |= {"seed": seed, "cell": record["cell"].replace("s0", f"s{seed}")}
    (table,) = report_steps.tables(PLAN, made)
    assert row_of(table, "shared")[1] == "4 (2-8)"


def test_memory_is_shown_where_each_method_had_a_process_of_its_own():
    made = [step_record(n, 2.0, 8.0) for n in (10_000, 90_000)]
    for place, record in enumerate(made):
        del record["steps"]["peer_tf"]
        record |= {"resident_mb": 700.0 + place, "peak_memory_mb": {"host": 900.0 + place}}
    (table,) = report_steps.tables(PLAN, made)
    assert table.header[-2:] == ["n = 10,000, peak MB", "n = 90,000, peak MB"]
    assert row_of(table, "shared")[-4:] == ["700", "701", "900", "901"]
    assert cells_of(table)[1]["peak_mb"] == "901"


def cells_of(table):
    return list(csv.DictReader(io.StringIO(table.csv())))


def test_csv_files_hold_numbers_one_column_for_each_quantity():
    (table,) = report_steps.tables(PLAN, [step_record(10_000, 2.0, 3.0), step_record(90_000, 3, 9)])
    assert cells_of(table)[0] == {
        "method": "shared",
        "num_classes": "10000",
        "step_ms_p50": "2",
        "step_ms_p20": "1",
        "step_ms_p80": "4",
    }
    made = [make_record(0, 110.123456789), make_record(1, 113.0), make_record(method="exp")]
    made[2] |= {"status": "nan", "final": None}
    (table,) = results(PLAN, made)
    rows = cells_of(table)
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("full", "0"),
        ("full", "1"),
        ("exp", "0"),
    ]
    assert rows[0]["test_perplexity"] == "110.1235" and rows[0]["step_ms_p50"] == "60"
    assert float(rows[0]["test_perplexity_over_paper"]) == pytest.approx(110.123456789 / 111.5)
    assert rows[2]["status"] == "nan" and rows[2]["test_perplexity"] == ""
    assert rows[2]["test_perplexity_paper"] == "120"


def test_a_measure_is_said_once(monkeypatch):
    """Registered and a column of a config, it is in tables, CSV, plots and the front page."""
    monkeypatch.setitem(measures.MEASURES, "regret", measures.Measure("regret", lower=True))
    made = [make_record(method="full"), make_record(method="exp")]
    for record, regret in zip(made, (0.5, 0.25), strict=True):
        record["final"]["test_regret"] = regret
        record["curve"][1]["valid_regret"] = regret
    plan = PLAN | {"columns": ["test_regret"], "paper": {}}
    (table,) = training.tables(plan, made)
    assert [row[2] for row in table.rows] == ["0.5", "**0.25**"]
    assert [row["test_regret"] for row in cells_of(table)] == ["0.5", "0.25"]
    _, plot = training.plots(plan, made)["ptb-lstm_small-valid_regret"]
    assert plot["y"] == "validation regret" and plot["lines"]["exp"] == [[20.0, 0.25]]
    for record in made:
        record["curve"] = record["curve"][1:]
    (found,) = which_one.comparisons(report_page.Page("demo", plan, made))
    assert found.metric == "valid_regret" and found.rows[0].method == "exp"


def test_names_of_samplers():
    methods = [
        {"head": "FullSoftmax"},
        {"kwargs": {"sampler": "exp"}},
        {"sampler": {"class_name": "rff", "config": {}}},
    ]
    assert [records.sampler_name(method) for method in methods] == [None, "exp", "rff"]


@pytest.mark.parametrize(
    ("value", "text"), [(118.0, "118"), (0.123456, "0.1235"), (12345.6, "12,346"), (0, "0")]
)
def test_number(value, text):
    assert report_tables.number(value) == text


def test_page_is_deterministic_and_check_notices_a_change(tmp_path, capsys):
    """The same records in another folder give the same bytes."""
    made = make_record(), make_record(1, 119.0)
    results, other = (write_results(tmp_path / name / "demo", *made) for name in "ab")
    for folder in (results, other):
        assert report.main(["softbench-report", f"--results={folder}"]) == 0
    plot = "ptb-lstm_small-valid_perplexity"
    assert {"README.md", "ptb-lstm_small.csv", f"{plot}.png", f"{plot}.svg"} <= set(files(results))
    assert files(results) == files(other)
    assert report.main(["softbench-report", f"--results={results}", "--check"]) == 0
    page = (results / "README.md").read_text()
    for expected in ("# A demonstration", "softbench --config=configs/demo.py", "Test CPU"):
        assert expected in page
    write_results(results, make_record(2, 130.0))
    assert report.main(["softbench-report", f"--results={results}", "--check"]) == 1
    assert "README.md" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pandas", "tabulate"])
def test_a_missing_library_of_the_report_names_the_extra(name, tmp_path):
    code = (
        f"import sys; sys.modules[{name!r}] = None;"
        "from softbench.bench import app, cell; from softbench.commands import ConfigError;"
        "from softbench.report import app as report\n"
        f"try: report.main(['softbench-report', '--results={tmp_path}'])\n"
        "except ConfigError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = (
        f"the report needs {name}: install the `report` extra, pip install 'softbench[report]'"
    )
    assert run.stdout.strip() == expected


def test_seconds_to_what_another_method_ends_with():
    """Uniform ends at 0.3 after 40 s; the tree is there at its first point, 12 s."""

    def run(method, curve, **fields):
        keys = ("seconds", "valid_accuracy")
        record = {
            "config": {
                "task": "train",
                "dataset": {"name": "d"},
                "model": {"name": "m"},
                "backend": "jax",
                "methods": {method: {}},
                "max_train_seconds": 40,
            },
            "seed": 0,
            "status": "ok",
            "curve": [dict(zip(keys, point, strict=True)) for point in curve],
        }
        return record | fields

    plan = {
        "methods": ["tree", "uniform", "slow"],
        "reach": {"method": "uniform", "metric": "valid_accuracy"},
    }
    records = [
        run("uniform", [(20, 0.35), (40, 0.3)]),
        run("slow", [(20, 0.1), (40, 0.2)]),
        run("tree", [(12, 0.3), (40, 0.5)], tree={"fit_seconds": 10.5}),
        run("slow", [(60, 0.9)], status="nan"),
    ]
    (table,) = training.reach(plan, frame.cells(records), frame.points(records))
    assert table.rows == [
        ["tree", "10.5", "12", "0.3", "0.5", "0.5", "12", "0.30"],
        ["uniform", "-", "20", "0.35", "0.35", "0.3", "20", "0.50"],
        ["slow", "-", "20", "0.1", "0.2", "0.2", "not", "-"],
    ]
    assert training.reach({"methods": []}, frame.cells(records), frame.points(records)) == []


def test_curves_are_after_epochs_or_after_parts_of_a_budget():
    def table_of(curves, **fields):
        common = {"task": "train", "dataset": {"name": "d"}, "model": {"name": "m"}}
        made = [
            {
                "config": {**common, "backend": "jax", "methods": {method: {}}, **fields},
                "seed": 0,
                "status": "ok",
                "steps_per_epoch": 5,
                "curve": curve,
            }
            for method, curve in curves.items()
        ]
        plan = {"methods": list(curves), "columns": ["valid_perplexity"]}
        (table,) = training.curves(plan, frame.points(made))
        return table

    def curve(*points):
        keys = ("epoch", "step", "seconds", "valid_perplexity")
        return [dict(zip(keys, point, strict=True)) for point in points]

    slow = curve((1, 5, 4.0, 30.0), (2, 7, 6.1, 20.0))
    fast = curve((1, 5, 2.0, 40.0), (2, 10, 4.1, 35.0), (3, 15, 6.0, 32.0))
    beyond = curve((4, 16, 6.3, 33.0))
    table = table_of({"slow": slow, "fast": fast + beyond}, epochs=0, max_train_seconds=6.0)
    assert table.header[2:] == ["epoch 1", "epoch 2", "epoch 3", "6 s", "lowest", "after, s"]
    assert table.rows == [
        ["slow", "jax", "**30**", "-", "-", "**20**", "**20**", "6.1"],
        ["fast", "jax", "40", "35", "32", "33", "32", "6"],
    ]
    parts = table_of({"fast": fast, "slow": slow[1:]}, epochs=3, max_train_seconds=6.0)
    assert parts.header[2:] == ["2 s", "4 s", "6 s", "lowest", "after, s"]
    assert parts.rows == [
        ["fast", "jax", "40", "35", "32", "32", "6"],
        ["slow", "jax", "-", "**20**", "-", "**20**", "6.1"],
    ]
    assert "part of the time" in parts.title and "epoch" not in parts.title
    whole = table_of({"fast": fast}, epochs=3)
    assert whole.header[2:] == ["epoch 1", "epoch 2", "epoch 3"]


def test_the_most_frequent_classes_are_a_row_of_records_that_have_them():
    with_it = make_record(most_frequent={"test_perplexity": 700.0, "test_nll": 6.55})
    plan = {**PLAN, "columns": ["valid_perplexity", "test_perplexity", "step_ms"], "paper": {}}
    (table,) = results(plan, [with_it])
    assert table.rows[-1] == ["(most frequent)", "-", "-", "700", "-"]
    (table,) = results(plan, [make_record()])
    assert all(row[0] != "(most frequent)" for row in table.rows)
    (table,) = results(plan, [with_it | {"oracle": {"test_perplexity": 50.0}}, make_record()])
    assert [row[0] for row in table.rows[-2:]] == ["(most frequent)", "(oracle)"]
    assert table.rows[-1] == ["(oracle)", "-", "-", "50", "-"]


def test_a_number_of_the_notes_that_is_in_no_record_fails_the_check(tmp_path, capsys):
    results = write_results(tmp_path / "demo", make_record(), make_record(1, 120.0))
    notes = results / "NOTES.md"
    one = "<!--= . seed=0 final.test_perplexity as .1f -->118.0<!--/-->"
    mean = "<!--= . seed=mean final.test_perplexity as .0f -->119<!--/-->"
    change = "<!--= . seed=1 final.test_perplexity % . seed=0 final.test_perplexity as +.1f % -->"
    text = f"In Table 1 it has {one}, {mean} or {change}+1.7 %<!--/--> after 2 epochs (`x_9`)."

    def check():
        code = report.main(["softbench-report", f"--results={results}", "--check"])
        return code, capsys.readouterr().err

    notes.write_text(f"{text} <!--= said: arithmetic -->Half is 59.<!--/-->\n")
    assert report.main(["softbench-report", f"--results={results}"]) == 0
    page = (results / "README.md").read_text()
    assert "it has 118.0, 119 or +1.7 % after 2 epochs (`x_9`). Half is 59." in page
    assert check() == (0, "")
    notes.write_text(notes.read_text().replace("118.0<", "117.0<"))
    assert check() == (1, "softbench-report: out of date: NOTES.md\n")
    notes.write_text(f"{text} It takes 59 s.\n")
    report.main(["softbench-report", f"--results={results}"])
    code, said = check()
    assert code == 1 and said.endswith("accounts for numbers in: NOTES.md (59)\n")
