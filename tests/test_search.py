"""A grid of settings: its short runs, the choice and the record. Needs no Keras."""

import pytest
from shipped import config_path, get_config

from softbench import __main__ as command
from softbench.bench import (
    app,
    arguments,
    cell,
    environment,
    learning_rates,
    matrix,
    records,
    runner,
    search,
)
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.report import frame, pages

RATES = [0.005, 0.02, 0.08]
LINE = ["softbench", f"--config={config_path('quickstart')}", "--config.methods=full,unigram"]
LINE += [
    f"--config.search.learning_rate={tuple(RATES)}",
    "--config.search_budget.steps=7",
]


def of_schedule(config, name):
    return learning_rates.base(config)["config"][name]


@pytest.fixture
def ran(monkeypatch):
    """What runs instead of cells: records whose perplexity is a function of (method, rate)."""
    found = []

    def run_cells(cells, workdir, data_dir, line, retry_failed, minutes, launcher):
        for own in cells:
            if runner.is_pending(own, workdir, retry_failed):
                found.append((workdir.name, own.config))
                record = cell.new_record(
                    {"cell": own._asdict(), "data_dir": None, "command": "softbench"}
                )
                value = run_cells.perplexity(
                    *own.config["methods"], of_schedule(own.config, "initial_learning_rate")
                )
                point = {"epoch": 1, "step": 7, "seconds": 1.0, "valid_perplexity": value}
                record |= {"status": "nan" if value is None else "ok", "curve": [point]}
                records.write_json(workdir / "runs" / f"{own.id}.json", record)
        return [records.status(workdir / "runs" / f"{own.id}.json") for own in cells]

    run_cells.perplexity = lambda method, rate: {0.005: 9.0, 0.02: 5.0, 0.08: 7.0}[rate]
    monkeypatch.setattr(runner, "run_cells", run_cells)
    monkeypatch.setattr(environment, "check_backends", lambda names: None)
    return found, run_cells


def test_cells_run_with_the_best_rate_of_the_same_short_runs(ran, tmp_path, capsys):
    found, run_cells = ran
    run_cells.perplexity = lambda method, rate: (
        rate if method == "full" else {0.005: 9.0, 0.02: 5.0, 0.08: None}[rate]
    )
    line = [*LINE, "--config.seeds=(3,4)", f"--workdir={tmp_path / 'out'}"]
    assert command.main(line) == 0
    short = [config for place, config in found if place == "search"]
    whole = [config for place, config in found if place == "out"]
    assert len(short) == 2 * 2 * 3 and len(whole) == 2 * 2 * 2
    assert {(c["seed"], c["epochs"], c["steps"], c["steps_per_epoch"]) for c in short} == {
        (3, 1, 7, 0)
    }
    assert {(*c["methods"], of_schedule(c, "initial_learning_rate")) for c in whole} == {
        ("full", 0.005),
        ("unigram", 0.02),
    }
    assert {(c["seed"], c["epochs"]) for c in whole} == {(3, 5), (4, 5)}

    made = records.read_all(tmp_path / "out")
    grid = next(r["search"] for r in made if "unigram" in r["config"]["methods"])
    assert grid["measure"] == "perplexity" and grid["chosen"] == {"learning_rate": 0.02}
    assert [row["value"] for row in grid["grid"]] == [9.0, 5.0, None]
    assert [row["status"] for row in grid["grid"]] == ["ok", "ok", "nan"]
    for row in grid["grid"]:
        assert (tmp_path / "out" / "search" / "runs" / f"{row['cell']}.json").is_file()
    assert all(config["test"] is False for config in short)
    assert {of_schedule(config, "decay_steps") for config in short} == {7}
    found = frame.read(tmp_path / "out")
    footer = pages.Page({"out": found}, "out").footer()
    assert "Best at the edge of its search: `full`." in footer
    rows = found.runs[found.runs["method"] == "unigram"]
    assert set(rows["chosen"]) == {"learning_rate=0.02"} and not rows["at_edge"].any()
    assert rows["search"].iloc[0].startswith("learning_rate=0.005: 9; learning_rate=0.02: 5; ")

    count = len(found)
    assert command.main(line) == 0 and len(found) == count  # all of it is kept


def test_a_method_without_any_result_is_named_and_left_out(ran, tmp_path, capsys):
    found, run_cells = ran
    run_cells.perplexity = lambda method, rate: None if method == "full" else 5.0
    assert command.main([*LINE, f"--workdir={tmp_path / 'out'}"]) == 1
    assert {name for place, c in found if place == "out" for name in c["methods"]} == {"unigram"}
    assert "no run of full has a result" in capsys.readouterr().out


def test_rates_keep_their_ratios_and_arguments_are_those_of_the_head():
    rows = {"name": "adagrad", "learning_rate": 0.1}
    falling = {"initial_learning_rate": 0.02, "end_learning_rate": 0.001, "decay_steps": 90}
    users = {"name": "adam", "learning_rate": {"class_name": "PolynomialDecay", "config": falling}}
    method = {"head": "FullSoftmax", "kwargs": {"row_optimizer": rows}}
    config = {"optimizer": {"name": "adam", "learning_rate": 0.002}, "methods": {"a": method}}
    config["model"] = {"name": "matrix_factorisation", "row_optimizer": users}
    found = search._with(config, {"learning_rate": 0.008, "temperature": 0.2})
    made = found["methods"]["a"]
    assert made["optimizer"]["learning_rate"] == pytest.approx(0.008)
    assert made["kwargs"]["temperature"] == 0.2
    assert made["kwargs"]["row_optimizer"]["learning_rate"] == pytest.approx(0.4)
    of_users = found["model"]["row_optimizer"]["learning_rate"]["config"]
    assert of_users == pytest.approx(
        falling | {"initial_learning_rate": 0.08, "end_learning_rate": 0.004}
    )
    assert rows["learning_rate"] == 0.1 and falling["initial_learning_rate"] == 0.02
    with pytest.raises(ConfigError, match="learning_rate"):
        search._with(
            config | {"optimizer": {"name": "sgd", "schedule": "zaremba"}}, {"learning_rate": 0.1}
        )


def of_recommenders(*options):
    line = ["softbench", f"--config={config_path('matrix_factorisation')}", *options]
    config = app.read_config(app.parse(line))
    config_lib.check(config)
    return config


def test_the_whole_run_alone_is_a_refit():
    cells = matrix.cells(of_recommenders("--config.methods=uniform", "--config.refit=True"))
    assert all(own.config["refit"] is True for own in cells)
    assert all("refit" not in trial.config for trial in search.trials(cells))
    with pytest.raises(ConfigError, match=r"--config\.refit must be False"):
        of_recommenders("--config.refit=True", "--config.keep=best")
    line = ["softbench", f"--config={config_path('scaling')}", "--config.refit=True"]
    with pytest.raises(ConfigError, match=r"refit is for the task 'train'.*step_time"):
        config_lib.check(app.read_config(app.parse(line)))


def test_what_is_inside_of_an_argument_is_tried_where_a_row_has_it():
    line = "--config.methods=uniform,bsl", "--config.search.objective.ratio=(1.1,1.4)"
    cells = matrix.cells(of_recommenders(*line))
    grids = {name: own.config["search"] for own in cells for name in own.config["methods"]}
    assert set(grids["uniform"]) == {"temperature"}
    assert grids["bsl"] == {**grids["uniform"], "objective.ratio": [1.1, 1.4]}
    tried = [trial.config["methods"] for trial in search.trials(cells)]
    ratios = [m["bsl"]["kwargs"]["objective"]["config"]["ratio"] for m in tried if "bsl" in m]
    count = len(grids["uniform"]["temperature"])
    assert {r: ratios.count(r) for r in ratios} == dict.fromkeys([1.1, 1.4], count)
    assert all(m["bsl"]["kwargs"]["objective"]["class_name"] == "bsl" for m in tried if "bsl" in m)
    written = of_recommenders()["method_table"]["bsl"]["kwargs"]["objective"]["config"]["ratio"]
    assert written not in ratios  # what the config says stays as it is


def test_a_cell_without_a_setting_of_the_search_runs_as_it_is(tmp_path):
    none = ["--config.search.learning_rate=()", "--config.search.temperature=()"]
    cells = matrix.cells(of_recommenders(*none, "--config.methods=uniform"))
    assert search.trials(cells) == []
    assert search.chosen(cells, tmp_path, "ndcg_at_20") == (cells, [])


@pytest.mark.parametrize("setting", [{"objective": {"rate": [1.0]}}, {"temprature": [0.1]}])
def test_a_setting_that_no_row_has_is_an_error(setting):
    with pytest.raises(ConfigError, match="must name an argument that a method"):
        config_lib.check({**of_recommenders(), "search": setting})


def test_names_of_settings():
    nested = {"first": {"class_name": "unigram", "config": {"power": 1.0}}}
    kwargs = {"sampler": {"class_name": "mixed", "config": nested}, "rows": {"rate": 0.1}, "m": 8}
    for name, value in (("sampler.first.power", 1.0), ("rows.rate", 0.1), ("m", 8)):
        assert arguments.has({"kwargs": kwargs}, name)
        made = arguments.changed(kwargs, name, 0.5)
        assert str(made) == str(kwargs).replace(str(value), "0.5")
    for name in ("sampler.power", "m.n", "sampler.config", "rows.rate.x", "n"):
        assert not arguments.has({"kwargs": kwargs}, name)
    assert not arguments.has({"head": "FullSoftmax"}, "temperature")


def test_a_short_run_in_whole_epochs_has_its_part_of_the_fall():
    falling = {"class_name": "CosineDecay", "config": {"decay_steps": 900, "warmup_steps": 50}}
    assert learning_rates.shortened(falling, 0.1)["config"]["decay_steps"] == 90
    assert learning_rates.ending(falling, 300)["config"]["decay_steps"] == 250
    assert learning_rates.ending(0.1, 300) == 0.1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--config.search.learning_rate=(0.0,0.1)"], "positive"),
        (["--config.search_budget.epochs=0"], "one epoch or more"),
        (["--shard=1/2"], "--shard"),
    ],
)
def test_what_cannot_be_meant_is_an_error(options, error, tmp_path):
    with pytest.raises(ConfigError, match=error):
        command.main([*LINE, *options, f"--workdir={tmp_path}"])
    assert not list(tmp_path.rglob("*.json"))


def test_without_a_search_cells_are_what_they_were():
    config = config_lib.plain(get_config(config_path("quickstart")))
    for own in matrix.cells(config):
        assert not {"search", "search_budget"} & set(own.config) and own.search is None
    assert search.FOLDER not in {path.name for path in app.shipped().values()}
