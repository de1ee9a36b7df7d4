"""The plots of the report, from hand-made records. Needs no Keras."""

import sys

import pytest
from report_records import PLAN, make_record, write_results

from softbench.bench import records
from softbench.bench.config import ConfigError
from softbench.report import app as report
from softbench.report import page as report_page
from softbench.report import plots as report_style
from softbench.report import training


def test_check_notices_a_stale_plot(tmp_path, capsys):
    """Only the curve changes, which no table of this page shows; then a file is missing."""
    plan = PLAN | {"columns": ["test_perplexity"]}
    results = write_results(tmp_path / "demo", make_record())
    records.write_json(results / "experiment.json", plan)
    report.main(["softbench-report", f"--results={results}"])
    changed = make_record()
    changed["curve"][0]["valid_perplexity"] = 200.0
    write_results(results, changed)
    records.write_json(results / "experiment.json", plan)
    assert report.main(["softbench-report", f"--results={results}", "--check"]) == 1
    stale = capsys.readouterr().err
    assert "valid_perplexity.png" in stale and "valid_perplexity.svg" in stale
    assert "README.md" not in stale
    report.main(["softbench-report", f"--results={results}"])
    assert report.main(["softbench-report", f"--results={results}", "--check"]) == 0
    (results / "ptb-lstm_small-valid_perplexity.svg").unlink()
    assert report.main(["softbench-report", f"--results={results}", "--check"]) == 1


def test_an_axis_ends_a_little_beyond_oracle_and_frequencies():
    """8 % of 80 - 40; bars and first points reach from -100 to 1,700."""
    from matplotlib.figure import Figure

    lines = {"full": [[1, 50, 5], [2, 45, 1]], "uniform": [[1, 800, 900], [2, 100, 70]]}
    data = {"x": "x", "y": "y", "log": "", "lines": lines}
    figure = Figure()
    report_style._draw(figure, "a", data | {"levels": {"oracle": 40.0, "class frequencies": 80.0}})
    assert figure.axes[0].get_ylim() == pytest.approx((36.8, 83.2))


def test_a_plot_is_out_of_date_when_its_look_or_caption_changed(monkeypatch):
    data = {"x": "x", "y": "y", "log": "", "lines": {"a": [[1, 2]]}}
    digest = report_style.digest("a", data)
    assert report_style.digest("b", data) != digest
    monkeypatch.setattr(report_style, "VERSION", -1)
    assert report_style.digest("a", data) != digest


def test_rows_of_one_method_have_lines_of_their_own():
    again = make_record(cell="ptb-lstm_small-full-s0-jax-99999999")
    again["config"]["epochs"] = 13
    other = make_record(method="exp")
    found = training.plots(PLAN, [other, make_record(), again])
    _, data = found["ptb-lstm_small-valid_perplexity"]
    assert list(data["lines"]) == ["exp", "full, jax, 0123", "full, jax, 9999"]


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    data = {"x": "x", "y": "y", "log": "", "lines": {"a": [[1, 2]]}}
    with pytest.raises(ConfigError, match=r"softbench\[report\]"):
        report_style.pictures("a", data)


def test_a_page_of_costs_alone_shows_no_learning_curves():
    record = make_record(most_frequent={"test_perplexity": 700.0})
    for columns, curves in ((["step_ms", "memory_mb"], 0), (["step_ms", "test_perplexity"], 1)):
        page = report_page.Page("demo", PLAN | {"columns": columns, "paper": {}}, [record])
        assert len(page.plots) == curves
        assert report_page.texts(page)["README.md"].count("(most frequent)") == curves


def test_curves_are_against_what_the_plan_says_and_beside_what_needs_no_training():
    made = [
        make_record(oracle={"valid_perplexity": 40.0}, most_frequent={"valid_perplexity": 700.0}),
        make_record(method="exp"),
    ]
    for axis, first in (("seconds", 10.0), ("step", 100)):
        _, data = training.plots(PLAN | {"curves_against": axis}, made)[
            "ptb-lstm_small-valid_perplexity"
        ]
        assert data["lines"]["full"] == [[first, 180.0], [2 * first, 118.0]]
        assert data["levels"] == {"oracle": 40.0, "class frequencies": 700.0}
        assert data["log"] == ""


def test_marks_without_intervals_say_what_the_table_says():
    made = [make_record(seed=s, method=m) for m in ("full", "exp") for s in range(2)]
    for record in made:
        record["cell"] = f"{record['cell']}-{record['seed']}"
        record["curve"] = record["curve"][1:]
    name = "ptb-lstm_small-valid_perplexity"
    assert training.plots(PLAN, made[::2]) == {}
    assert training.plots(PLAN, made)[name][1]["lines"]["full"] == [[20.0, 118.0, 0.0]]


def test_quality_against_a_number_of_the_draws():
    """Rows that differ in nu alone, at the last step of all; `full` there is a level."""
    made = [make_record()]
    for name, nu, last in (("rff", 4.0, 130.0), ("rff_nu1", 1.0, 160.0), ("rff_nu8", 8.0, 150.0)):
        made.append(make_record(method=name, perplexity=last))
        sampler = {"class_name": "rff", "config": {"nu": nu, "num_features": 64}}
        made[-1]["config"]["methods"] = {name: {"kwargs": {"sampler": sampler}}}
    other = {"class_name": "rff", "config": {"nu": 2.0, "num_features": 32}}
    made.append(make_record(method="other"))
    made[-1]["config"]["methods"] = {"other": {"kwargs": {"sampler": other}}}
    caption, data = training.plots(PLAN, made)["ptb-lstm_small-nu"]
    assert data["lines"] == {"rff": [[1.0, 160.0], [4.0, 130.0], [8.0, 150.0]]}
    assert data["levels"] == {"full": 118.0} and "200 steps" in caption
    made[-2]["curve"] = made[-2]["curve"][:1]  # ended after 100 steps
    assert training.plots(PLAN, made)["ptb-lstm_small-nu"][1]["levels"] == {"full": 180.0}


def draws(name, perplexity, **kwargs):
    """A row with draws of RFF: a sampler's config in `config`, else arguments of the head."""
    config = kwargs.pop("config", {})
    made = make_record(method=name, perplexity=perplexity)
    sampler = {"class_name": "rff", "config": config}
    made["config"]["methods"] = {name: {"kwargs": {"sampler": sampler, **kwargs}}}
    return made


def test_rows_of_one_name_that_differ_are_not_one_point_of_a_sweep():
    made = [draws("rff_4", 50.0, config={"nu": 4}, num_sampled=7)]
    made += [draws(f"rff_{nu}", 100.0 + nu, config={"nu": nu}) for nu in (1, 2, 4)]
    assert "ptb-lstm_small-nu" not in training.plots(PLAN, made)
    assert "ptb-lstm_small-nu" in training.plots(PLAN, made[1:])


def test_of_several_settings_a_sweep_shows_that_with_the_most_rows():
    more = [draws(f"rff_{nu}", 100.0 + nu, config={"nu": nu}) for nu in (1, 2, 4, 8)]
    fewer = [draws(f"rff_{nu}", 10.0 + nu, config={"nu": nu}) for nu in (1, 2, 4)]
    for backend in ("tensorflow", "aaa"):  # settings are sorted: after `more`, and before it
        for record in fewer:
            record["config"]["backend"] = backend
        _, data = training.plots(PLAN, more + fewer)["ptb-lstm_small-nu"]
        assert data["lines"] == {"rff": [[nu, 100.0 + nu] for nu in (1, 2, 4, 8)]}


def test_two_sweeps_of_one_name_are_two_lines():
    made = [
        draws(f"rff_{D}_{nu}", D + nu, config={"nu": nu, "num_features": D})
        for D in (100, 200)
        for nu in (1, 2)
    ]
    lines = training.plots(PLAN, made)["ptb-lstm_small-nu"][1]["lines"]
    assert sorted(lines.values()) == [[[1, 101], [2, 102]], [[1, 201], [2, 202]]]
    lines = training.plots(PLAN, made)["ptb-lstm_small-num_features"][1]["lines"]
    assert lines == {
        "rff": [[100, 101], [200, 201]],
        "rff_100_2, rff_200_2": [[100, 102], [200, 202]],
    }
