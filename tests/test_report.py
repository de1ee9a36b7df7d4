"""The report, from hand-made records; expected numbers by hand. Needs no Keras."""

import subprocess
import sys

import pandas as pd
import pytest
from report_records import PLAN, files, make_record, step_record, write_results
from shipped import ROOT

from softbench import __main__ as command
from softbench.bench.config import ConfigError
from softbench.report import app as report
from softbench.report import checks, explorer, frame, intervals, measures, pages, tables
from softbench.report.selection import Selection

ANOTHER = {"kind": "cpu", "name": "Another CPU", "count": 1}


def of(*made, **plan):
    return frame.of("demo", PLAN | plan, list(made))


def cells(text):
    """The texts of a Markdown table, its header first."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line
    ]


def page_of(*made, **plan):
    return pages.render(pages.Page({"demo": of(*made, **plan)}, "demo"), None, "page.md")


def run(*arguments):
    return report.main(["softbench-report", *map(str, arguments)])


# The frame.


def test_a_run_is_a_row_and_a_point_of_a_curve_too():
    made = of(make_record(), make_record(method="exp", status="nan", final=None))
    full, exp = made.runs.to_dict("records")
    assert (full["method"], full["group"], full["n"]) == ("full", "ptb-lstm_small", 10_000)
    assert (full["test_perplexity"], full["step_ms"], full["step_ms_p20"]) == (118.0, 60.0, 60.0)
    assert (full["best.valid_perplexity"], full["steps"]) == (118.0, 200)
    assert (full["test_perplexity.paper"], exp["test_perplexity.paper"]) == (111.5, 120.0)
    assert exp["status"] == "nan" and pd.isna(exp["test_perplexity"])
    assert list(made.curves["point"]) == [0, 1, 0, 1]


def of_two_machines(**config):
    made = [make_record(seed=seed, cell=f"cell{seed}") for seed in range(2)]
    for record in made:
        record["config"] = record["config"] | config
    made[1]["device"] = ANOTHER
    made[1]["config"] = made[1]["config"] | {"environment": {"A": "1"}}
    return made


@pytest.mark.parametrize(("config", "rows"), [({}, 1), ({"max_train_seconds": 20}, 2)])
def test_seeds_of_equal_steps_count_together_on_any_device(config, rows):
    made = of_two_machines(**config)
    assert of(*made).runs["variant"].nunique() == rows
    made[1]["config"] = made[1]["config"] | {"backend": "tensorflow"}
    assert of(*made).runs["variant"].nunique() == 2


@pytest.mark.parametrize(("name", "rows"), [("diagnose_last", 1), ("warmup_steps", 2)])
def test_which_points_have_diagnostics_makes_no_other_row(name, rows):
    made = of_two_machines()
    made[0]["config"] = made[0]["config"] | {"timing": {}}
    made[1]["config"] = made[1]["config"] | {"timing": {name: 1}}
    assert of(*made).runs["variant"].nunique() == rows


def test_machines_that_ran_the_same_seed_are_compared():
    made = of_two_machines()
    made[1]["seed"] = made[1]["config"]["seed"] = 0
    runs = of(*made).runs
    assert runs["variant"].nunique() == 2
    made[0]["status"] = "nan"  # and another machine has made up for it
    assert of(*made).runs["variant"].nunique() == 1


@pytest.mark.parametrize(
    ("precision", "rows"), [("default", 2), ("tensorfloat32", 2), ("highest", 1), ("float32", 1)]
)
def test_kinds_of_devices_are_rows_to_themselves_unless_float32_is_whole(precision, rows):
    made = of_two_machines()
    made[1]["device"] = ANOTHER | {"kind": "gpu", "matmul_precision": precision}
    assert of(*made).runs["variant"].nunique() == rows


@pytest.mark.parametrize(
    ("limit", "steps", "group"),
    [
        (0, 2323, "ptb-lstm_small"),
        (1162, 1162, "ptb-lstm_small_1162_steps"),
        (4000, 2323, "ptb-lstm_small"),  # a limit that the data do not reach
    ],
)
def test_shorter_epochs_are_a_separate_group(limit, steps, group):
    whole, other = make_record(), make_record(seed=1)
    other["config"] = other["config"] | {"steps_per_epoch": limit}
    other["steps_per_epoch"] = steps
    assert list(of(whole, other).runs["group"]) == ["ptb-lstm_small", group]
    assert list(of(other).runs["group"]) == ["ptb-lstm_small"]  # nothing to tell it from


def test_a_run_that_failed_before_its_first_epoch_stays_in_its_group():
    config = make_record()["config"] | {"steps_per_epoch": 187}
    good, late = (make_record(seed, config=config, steps_per_epoch=187) for seed in (0, 1))
    del late["steps_per_epoch"], late["final"]
    late["status"] = "timed_out"
    assert list(of(good, late).runs["group"]) == ["ptb-lstm_small"] * 2


def test_seconds_to_what_another_method_ends_with():
    """Uniform ends at 180 s worth of 0.3; the tree is there at its first point, slow never."""

    def curve(*points):
        keys = ("seconds", "valid_accuracy")
        return [{"step": i, **dict(zip(keys, p, strict=True))} for i, p in enumerate(points, 1)]

    made = [
        make_record(method="uniform", curve=curve((20, 0.35), (40, 0.3))),
        make_record(method="slow", curve=curve((20, 0.1), (40, 0.2))),
        make_record(method="tree", curve=curve((12, 0.3), (40, 0.5))),
    ]
    runs = of(*made, reach={"method": "uniform", "metric": "valid_accuracy"}).runs
    assert runs.set_index("method")["goal_s"].fillna(-1).to_dict() == {
        "uniform": 20.0,
        "slow": -1,
        "tree": 12.0,
    }


def test_rows_are_selected_by_their_fields_and_points_by_their_index_or_as_the_best():
    worse = make_record(1, 200.0)
    made = of(make_record(), worse)
    assert len(frame.select(made.runs, seed="1", method=["full", "exp"])) == 1
    with pytest.raises(LookupError, match="no column 'none'"):
        frame.select(made.runs, none=1)
    assert list(frame.at(made.curves, -1)["valid_perplexity"]) == [118.0, 200.0]
    assert list(frame.at(made.curves, "valid_perplexity")["step"]) == [200, 100]


# Numbers of templates.


def test_numbers_of_a_template():
    """1 - 110 / 118 and 1 - 130 / 120 have mean 0.0078; half: 12.706 times 0.0756."""
    made = [make_record(0, 118.0), make_record(1, 120.0)]
    made += [make_record(0, 110.0, method="exp"), make_record(1, 130.0, 30.0, method="exp")]
    numbers = Selection({"demo": of(*made)}, "demo")
    assert numbers.value("test_perplexity", method="full") == "119"
    assert numbers.value("valid_perplexity", ".2f", at=0, method="full", seed=0) == "180.00"
    assert numbers.interval("test_perplexity", method="full") == "119 ± 13"
    assert numbers.ratio("step_ms", "exp", "full") == "0.75"
    assert numbers.change("test_perplexity", "exp", "full") == "+0.8 ± 96 % tied"
    alone = numbers.change("step_ms", {"seed": 1}, {"seed": 1, "method": "full"}, method="exp")
    assert alone == "-50.0 % (single seed)"
    for where in ({"method": "none"}, {}, {"method": "full", "experiment": "other"}):
        with pytest.raises(LookupError):
            numbers.value("test_perplexity", **where)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (118.0, "", "118"),
        (0.123456, "", "0.1235"),
        (12345.6, "", "12,346"),
        (10_000, ",", "10,000"),
        (0.5, ".1%", "50.0%"),
        (float("nan"), "", "-"),
    ],
)
def test_number(value, form, text):
    assert intervals.number(value, form) == text


def test_a_readme_asks_as_templates_do():
    made = {"demo": of(make_record())}
    marker = '<!--= value("test_perplexity", experiment="demo") -->{}<!--/-->'
    assert pages.filled(marker.format("?"), made) == marker.format("118")
    with pytest.raises(ConfigError, match=r"Marker `value.*has no number: no experiment 'other'"):
        pages.filled(marker.replace("demo", "other"), made)


# Tables.

SEEDS = {"full": (10, 11, 12), "exp": (12, 13, 14), "uniform": (30, 31, 32), "lone": (1,)}


def test_values_that_are_the_same_have_no_interval():
    assert intervals.interval([0.1] * 3).text() == "0.1"  # whose mean is rounded


def test_the_best_row_is_marked_and_those_whose_interval_overlaps():
    """Half of each interval is t(0.975, 2) / sqrt(3) = 4.3027 / 1.7321 = 2.484."""
    made = [
        make_record(seed, value, method=name)
        for name, values in SEEDS.items()
        for seed, value in enumerate(values)
    ]
    text = tables.table(of(*made, paper={}, columns=["test_perplexity"]))
    assert cells(text) == [
        ["method", "seeds", "test perplexity"],
        ["full", "3", "**11 ± 2.5**"],
        ["exp", "3", "13 ± 2.5 tied"],
        ["uniform", "3", "31 ± 2.5"],
        ["lone", "1", "1"],
    ]
    assert "±: half of the 95 % interval over seeds. Tied: it overlaps" in text
    longer = make_record(method="exp")
    longer["config"] = longer["config"] | {"epochs": 13}
    assert "**" not in tables.table(of(make_record(), longer, paper={}))


def test_the_paper_is_next_to_ours_and_needs_no_training_below():
    with_it = make_record(most_frequent={"test_perplexity": 700.0}, oracle={"test_perplexity": 50})
    text = tables.table(of(with_it, make_record(method="exp")), rows=["method"])
    assert cells(text) == [
        ["method", "test perplexity", "paper's perplexity", "step, ms"],
        ["full", "**118**", "111.5", "60"],
        ["exp", "118", "120", "60"],
        ["(most frequent)", "700", "-", "-"],
        ["(oracle)", "50", "-", "-"],
    ]


@pytest.mark.parametrize("other", [{}, {"kind": "gpu", "matmul_precision": "highest"}])
def test_times_are_of_one_machine_and_quality_of_all(other):
    """Seeds 0 and 1 of `full` and `exp` are of one machine, seed 2 and `uniform` of another."""
    made = [make_record(seed=seed, perplexity=value) for seed, value in enumerate((90, 100, 110))]
    made += [make_record(method="exp", perplexity=200), make_record(method="uniform")]
    for record, step in zip(made, (10.0, 20.0, 90.0, 70.0, 80.0), strict=True):
        record["step_ms"] = {"median": step}
    for record in (made[2], made[4]):
        record["device"] = ANOTHER | other
    shown = cells(tables.table(of(*made, paper={})))[1:]
    assert [row[1:] for row in shown] == [
        ["3", "100 ± 25", "15 ± 64"],
        ["1", "200", "70"],
        ["1", "118", "-"],
    ]
    made[4]["processors"] = {"count": 2, "own": 1.9, "others": 0.0}  # no other record says so
    assert [row[-1] for row in cells(tables.table(of(*made)))[1:]] == ["90", "-", "80"]


def test_times_are_of_runs_that_no_other_program_slowed_where_there_are_any():
    slowed, alone = ({"count": 2, "own": 1.0, "others": others} for others in (0.9, 0.1))
    made = [
        make_record(0, 100.0, step=10.0, processors=alone),
        make_record(1, 100.0, step=50.0, processors=slowed),
        make_record(0, 200.0, step=70.0, method="exp", processors=slowed),
    ]
    assert [row[1:] for row in cells(tables.table(of(*made, paper={})))[1:]] == [
        ["2", "100", "10"],
        ["1", "200", "70"],
    ]


def test_failed_rows_say_why_and_failed_seeds_do_not_count():
    failed = make_record(1, status="timed_out", final=None)
    assert cells(tables.table(of(failed, paper={})))[1][1] == "timed out"
    assert cells(tables.table(of(make_record(), failed, paper={})))[1][1] == "118"


def test_a_table_has_at_most_twelve_rows_and_eight_columns():
    names = [f"m{i}" for i in range(20)]
    made = [make_record(0, 100.0 - i, method=name) for i, name in enumerate(names)]
    columns = [f"test_recall_at_{k}" for k in range(12)]
    for record in made:
        record["final"] |= dict.fromkeys(columns, 1.0)
    columns = ["test_perplexity", *columns]
    text = tables.table(of(*made, paper={}, columns=columns))
    shown = cells(text)
    assert [row[0] for row in shown[1:]] == names[8:] and len(shown[0]) == 8
    assert "8 more rows are left out here." in text
    text = tables.table(of(*made[:13], paper={}, columns=columns))
    assert "1 more row is left out here." in text
    whole = cells(tables.table(of(*made, paper={}, columns=columns), top=None))
    assert len(whole) == 21 and len(whole[0]) == 14


def test_a_measure_against_the_values_of_a_column():
    made = of(*(step_record(n, ms, 4.0) for n, ms in ((10_000, 2.0), (90_000, 3.0))))
    text = tables.table(made, ["step_ms"], ["method"], over="n")
    assert cells(text)[0] == [
        "method",
        "step, ms: number of classes 10,000",
        "number of classes 90,000",
    ]
    assert ["shared", "2", "3"] in cells(text)


def test_a_measure_is_said_once(monkeypatch):
    """Declared and a column of a config, it is in table, picture and CSV, in its direction."""
    monkeypatch.setitem(measures.MEASURES, "regret", measures.Measure("regret, $", measures.LOWER))
    made = [make_record(), make_record(method="exp")]
    for record, regret in zip(made, (0.5, 0.25), strict=True):
        record["final"]["test_regret"] = record["curve"][1]["valid_regret"] = regret
        record["curve"][0]["valid_regret"] = 0.6
    made = of(*made, columns=["test_regret"], paper={})
    page = pages.Page({"demo": made}, "demo")
    assert "| exp | **0.25** |" in pages.render(page, None, "page.md")
    ((_, data),) = page.pictures.values()
    assert data["y"] == "validation regret, $" and data["lines"]["exp"] == [[10, 0.6], [20, 0.25]]
    assert "test_regret" in tables.csv(made.runs).splitlines()[0].split(",")


# Pages.


def test_a_page_is_the_same_for_the_same_records_and_check_notices_a_change(tmp_path, capsys):
    made = make_record(), make_record(1, 119.0)
    results, other = (write_results(tmp_path / name / "demo", *made) for name in "ab")
    for folder in (results, other):
        assert run(f"--results={folder}") == 0
    assert {"README.md", "rows.csv", "curves.csv", "picture.svg"} <= set(files(results))
    assert files(results) == files(other)
    assert run(f"--results={results}", "--check") == 0
    page = (results / "README.md").read_text()
    for expected in ("# A demonstration", "`softbench --config=configs/demo.py`", "Test CPU"):
        assert expected in page
    changed = make_record()
    changed["curve"][0]["valid_perplexity"] = 200.0  # in the picture and the curves alone
    write_results(results, changed)
    capsys.readouterr()
    assert run(f"--results={results}", "--check") == 1
    assert capsys.readouterr().err == ("softbench-report: out of date: curves.csv, picture.svg\n")
    run(f"--results={results}")
    (results / "old.csv").write_text("")
    assert run(f"--results={results}", "--check") == 1
    assert "no record accounts for: old.csv" in capsys.readouterr().err


def test_a_template_says_what_differs_and_its_numbers_must_be_of_records(tmp_path, capsys):
    results = write_results(tmp_path / "demo", make_record(), make_record(1, 120.0))
    template = results / pages.TEMPLATE
    start = '{% extends "page.md" %}{% block follows %}'
    prose = 'In Table 1 it has {{ value("test_perplexity") }} after 2 epochs (`x_9`)'
    template.write_text(
        f'{start}{prose}; half is {{{{ said("59", "arithmetic") }}}}.{{% endblock %}}'
    )
    assert run(f"--results={results}") == run(f"--results={results}", "--check") == 0
    text = (results / "README.md").read_text()
    assert "In Table 1 it has 119 after 2 epochs (`x_9`); half is 59." in text
    template.write_text(f"{start}{prose}; it takes 59 s.{{% endblock %}}")
    run(f"--results={results}")
    capsys.readouterr()
    assert run(f"--results={results}", "--check") == 1
    assert "accounts for numbers in: page.jinja (59)\n" in capsys.readouterr().err
    for wrong, why in (
        ('{{ value("test_perplexity", method="none") }}', "0 rows have 'test_perplexity'"),
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{{ value.__globals__ }}", "unsafe"),
    ):
        template.write_text(f"{start}{wrong}{{% endblock %}}")
        with pytest.raises(ConfigError, match=rf"demo/page\.jinja has no page: .*{why}"):
            run(f"--results={results}")


def test_a_page_says_what_not_to_trust():
    alone, several = "Every row is of a single seed.", "1 of 2 rows are of a single seed."
    assert alone in page_of(make_record())
    assert several in page_of(make_record(), make_record(1), make_record(method="exp"))
    assert "single" not in page_of(make_record(), make_record(1))
    failed = make_record(1, status="crashed", error="Traceback\nValueError: `units` is wrong")
    text = page_of(make_record(), failed | {"code": "b"}, make_record(2, code="a"))
    assert "Without a result: 1." in text and "crashed. ValueError: `units` is wrong" in text
    assert "The rows come from 2 versions of the code." in text
    assert "No cell has run." in page_of()


@pytest.mark.parametrize(("line", "problem"), [("x" * 161, "161"), ("a " * 401, "402 words")])
def test_a_page_has_at_most_400_words_and_no_long_line(line, problem):
    text = f"# {line}" if " " not in line else "b\n" + "\n".join(line.split())
    (found,) = checks.too_long({"a.md": text})
    assert problem in found or "163" in found
    assert checks.too_long({"a.md": "short"}) == []
    many = {f"{i}.md": "word\n" * 400 for i in range(63)}
    assert checks.too_long(many) == ["all pages (25200 words)"]


def test_a_folder_of_experiments_has_a_front_page_and_one_check(tmp_path, capsys):
    results = tmp_path / "results"
    for name in ("one", "two"):
        write_results(results / name, make_record(0, 118.0, command=f"softbench --config={name}"))
    assert run(f"--results={results}") == 0
    front = (results / "README.md").read_text()
    assert "* [one](one/README.md): A demonstration\n* [two](two/README.md): A" in front
    assert not (results / "CLAIMS.md").exists()  # no record is of any claim
    assert run(f"--results={results}", "--check") == 0
    (results / "two" / "README.md").unlink()
    assert run(f"--results={results}", "--check") == 1
    assert "out of date: two/README.md" in capsys.readouterr().err


def test_every_committed_experiment_is_on_the_front_page_and_no_page_is_long():
    front = (ROOT / "results" / "README.md").read_text()
    for path in (ROOT / "results").glob("*/experiment.json"):
        assert f"({path.parent.name}/README.md)" in front
        assert (path.parent / pages.TEMPLATE).is_file()
    texts = {
        path.relative_to(ROOT / "results").as_posix(): path.read_text()
        for path in (ROOT / "results").rglob("README.md")
    }
    assert checks.too_long(texts) == []
    assert len((ROOT / "results" / "CLAIMS.md").read_text().splitlines()) <= 90


def test_html_is_one_file_and_nothing_else(tmp_path):
    results = write_results(tmp_path / "demo", make_record(), make_record(method="exp"))
    path = tmp_path / "report.html"
    assert run(f"--results={results}", f"--html={path}") == 0
    assert "<h1>Compare methods</h1>" in path.read_text()
    assert not (results / "README.md").exists()
    for wrong in (["--check"], ["--undecided"]):
        with pytest.raises(ConfigError, match="exclude each other"):
            run(f"--results={results}", f"--html={path}", *wrong)


def test_missing_folders_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--results must be .* Received: .*nowhere"):
        run(f"--results={tmp_path / 'nowhere'}")
    with pytest.raises(ConfigError, match=r"--results must name a folder\. Received: none"):
        run()


@pytest.mark.parametrize("name", ["pandas", "jinja2"])
def test_a_missing_library_of_the_report_names_the_extra(name, tmp_path):
    code = (
        f"import sys; sys.modules[{name!r}] = None;"
        "from softbench.bench import app, cell; from softbench.commands import ConfigError;"
        "from softbench.report import app as report\n"
        f"try: report.main(['softbench-report', '--results={tmp_path}'])\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = f"the report needs {name}: install the `report` extra"
    assert done.stdout.startswith(expected)


def test_a_run_ends_well_without_what_draws_its_page(tmp_path, monkeypatch, capsys):
    results = write_results(tmp_path / "demo", make_record())
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    explorer.bundle.cache_clear()
    command._show(results)
    shown = capsys.readouterr().out
    assert "\n| full" in shown and "\nNo page: the page needs vl_convert: install" in shown
    assert not (results / command.PAGE).exists()
