"""The pictures of the report, from hand-made records. Needs no Keras."""

import sys

import pytest
from report_records import PLAN, make_record, step_record

from softbench.bench.config import ConfigError
from softbench.report import colours, frame, pages, plots


def data_of(*made, plan=PLAN, **arguments):
    page = pages.Page({"demo": frame.of("demo", plan, list(made))}, "demo")
    text = page.picture(**arguments)
    if not page.pictures:
        assert text == ""
        return None
    ((name, (caption, data)),) = page.pictures.items()
    assert name == "picture.svg" and text == f"![{caption}](picture.svg)"
    return data


def test_training_shows_learning_curves_over_seeds_and_what_needs_none():
    """118 and 120 have mean 119 and half 12.706 times the standard error, 1."""
    bounds = {"most_frequent": {"valid_perplexity": 700.0}, "oracle": {"valid_perplexity": 50.0}}
    made = [make_record(0, 118.0, **bounds), make_record(1, 120.0), make_record(method="exp")]
    data = data_of(*made)
    assert data["x"] == "training time, s" and data["y"] == "validation perplexity"
    assert data["lines"]["full"][1] == pytest.approx([20.0, 119.0, 12.706], abs=1e-3)
    assert data["lines"]["exp"] == [[10.0, 180.0], [20.0, 118.0]]
    assert data["levels"] == {"oracle": 50.0, "class frequencies": 700.0} and data["log"] == ""
    by_steps = data_of(*made, plan=PLAN | {"curves_against": "step"})
    assert by_steps["x"] == "training steps" and by_steps["lines"]["exp"][1][0] == 200
    made[1]["device"] = {"kind": "cpu", "name": "Another", "count": 1}
    assert data_of(*made)["x"] == "training steps"  # seconds of two machines say nothing


def test_rows_of_one_method_that_differ_are_two_lines():
    longer = make_record(cell="ptb-lstm_small-full-s0-jax-99887766")
    longer["config"] = longer["config"] | {"epochs": 13}
    assert list(data_of(make_record(), longer)["lines"]) == ["full", "full, 9988"]


def test_the_best_lines_are_shown_and_no_more_than_there_are_looks():
    made = [make_record(0, 100.0 - i, method=f"m{i}") for i in range(20)]
    assert list(data_of(*made)["lines"]) == [f"m{i}" for i in range(12, 20)]
    many = data_of(*made, x="step", y="valid_perplexity", curves=True, top=30)
    assert len(many["lines"]) == 12


def test_costs_are_against_n_and_single_points_are_marks():
    steps = [step_record(n, ms, 4.0) for n, ms in ((10_000, 2.0), (90_000, 3.0))]
    data = data_of(*steps)
    assert data["lines"]["shared"] == [[10_000, 2.0], [90_000, 3.0]] and data["log"] == "xy"
    marks = data_of(make_record(), x="step_ms", y="test_perplexity", names={"full": "The softmax"})
    assert marks["lines"] == {"The softmax": [[60.0, 118.0]]}
    assert marks["of"] == {"The softmax": "full"}
    assert data_of(make_record(status="nan", final=None, curve=[])) is None


def test_an_axis_ends_a_little_beyond_oracle_and_frequencies():
    """8 % of 80 - 40; bars and first points reach from -100 to 1,700."""
    from matplotlib.figure import Figure

    lines = {"full": [[1, 50, 5], [2, 45, 1]], "uniform": [[1, 800, 900], [2, 100, 70]]}
    data = {"x": "x", "y": "y", "log": "", "lines": lines}
    figure = Figure()
    plots._draw(figure, "a", data | {"levels": {"oracle": 40.0, "class frequencies": 80.0}})
    assert figure.axes[0].get_ylim() == pytest.approx((36.8, 83.2))


def test_marks_are_not_joined_and_axes_of_whole_numbers_have_no_others():
    from matplotlib.figure import Figure

    data = {"x": "x", "y": "y", "log": "", "lines": {"a": [[1, 2000], [2, 3000]]}, "marks": True}
    figure = Figure()
    plots._draw(figure, "a", data)
    (axes,) = figure.axes
    assert axes.lines[0].get_linestyle() == "None"
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    assert "2,200" in [label.get_text() for label in axes.get_yticklabels()]
    made = [step_record(n, 2.0, 4.0) for n in (10_000, 90_000)]
    assert data_of(*made, x="n", y="step_ms", marks=True)["marks"]


@pytest.mark.parametrize(("level", "end"), [(174, 177.72), (175, 112)])
def test_a_level_is_in_the_picture_if_it_is_no_further_than_half_of_what_it_shows(level, end):
    """Which is 0 to 100 and 12 on both sides: no further than 112 and 62. It has 3 % beyond it."""
    from matplotlib.figure import Figure

    figure, data = Figure(), {"x": "x", "y": "y", "log": "", "lines": {"a": [[1, 0], [2, 100]]}}
    plots._draw(figure, "a", data | {"levels": {"class frequencies": level}})
    assert figure.axes[0].get_ylim()[1] == pytest.approx(end)


def test_a_picture_is_out_of_date_when_its_look_or_caption_changed(monkeypatch):
    data = {"x": "x", "y": "y", "log": "", "lines": {"a": [[1, 2]]}}
    digest = plots.digest("a", data)
    assert digest.encode() in plots.svg("a", data) and plots.digest("b", data) != digest
    with monkeypatch.context() as patch:
        patch.setattr(colours, "LOOKS", [("#123456", "s")] * len(colours.LOOKS))
        assert plots.digest("a", data) != digest
    monkeypatch.setattr(plots, "VERSION", -1)
    assert plots.digest("a", data) != digest


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="a picture needs matplotlib: install the `report` extra"):
        plots.svg("a", {"x": "x", "y": "y", "log": "", "lines": {"a": [[1, 2]]}})
