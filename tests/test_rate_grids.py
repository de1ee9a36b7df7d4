"""A grid of learning rates: its short runs, the choice, the record and the page. Needs no Keras."""

import pytest
from shipped import config_path, get_config

from softbench import __main__ as command
from softbench.bench import app, cell, environment, matrix, rates, records, runner
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.report import frame, pages

RATES = [0.005, 0.02, 0.08]
LINE = ["softbench", f"--config={config_path('quickstart')}", "--config.methods=full,unigram"]
LINE += [f"--config.rates={tuple(RATES)}", "--config.rate_budget.steps_per_epoch=7"]


def set_rate(config):
    (method,) = config["methods"].values()
    return method["optimizer"]["learning_rate"]["config"]["initial_learning_rate"]


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
                value = run_cells.perplexity(*own.config["methods"], set_rate(own.config))
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
    short = [config for place, config in found if place == "rates"]
    whole = [config for place, config in found if place == "out"]
    assert len(short) == 2 * 2 * 3 and len(whole) == 2 * 2 * 2
    assert {(c["seed"], c["epochs"], c["steps_per_epoch"]) for c in short} == {(3, 1, 7)}
    assert {(*c["methods"], set_rate(c)) for c in whole} == {("full", 0.005), ("unigram", 0.02)}
    assert {(c["seed"], c["epochs"]) for c in whole} == {(3, 5), (4, 5)}

    made = records.read_all(tmp_path / "out")
    grid = next(r["rates"] for r in made if "unigram" in r["config"]["methods"])
    assert grid["measure"] == "perplexity" and grid["chosen"] == 0.02
    assert [row["value"] for row in grid["grid"]] == [9.0, 5.0, None]
    assert [row["status"] for row in grid["grid"]] == ["ok", "ok", "nan"]
    for row in grid["grid"]:
        assert (tmp_path / "out" / "rates" / "runs" / f"{row['cell']}.json").is_file()
    found = frame.read(tmp_path / "out")
    assert (
        "Best at the edge of its grid of rates: `full`."
        in pages.Page({"out": found}, "out").footer()
    )
    rates = found.runs[found.runs["method"] == "unigram"]
    assert set(rates["rate"]) == {0.02} and not rates["at_edge"].any()
    assert rates["rates"].iloc[0].endswith(":9.0 0.02:5.0 " + rates["rates"].iloc[0].split()[-1])

    count = len(found)
    assert command.main(line) == 0 and len(found) == count  # all of it is kept


def test_a_method_without_any_result_is_named_and_left_out(ran, tmp_path, capsys):
    found, run_cells = ran
    run_cells.perplexity = lambda method, rate: None if method == "full" else 5.0
    assert command.main([*LINE, f"--workdir={tmp_path / 'out'}"]) == 1
    assert {name for place, c in found if place == "out" for name in c["methods"]} == {"unigram"}
    assert "no rate of full has a result" in capsys.readouterr().out


def test_the_rows_of_a_head_keep_their_ratio():
    rows = {"name": "adagrad", "learning_rate": 0.1}
    method = {"head": "FullSoftmax", "kwargs": {"row_optimizer": rows}}
    config = {"optimizer": {"name": "adam", "learning_rate": 0.002}, "methods": {"a": method}}
    found = rates._with_rate(config, 0.008)["methods"]["a"]
    assert found["optimizer"]["learning_rate"] == 0.008
    assert found["kwargs"]["row_optimizer"]["learning_rate"] == pytest.approx(0.4)
    assert rows["learning_rate"] == 0.1
    with pytest.raises(ConfigError, match="learning_rate"):
        rates._with_rate(config | {"optimizer": {"name": "sgd", "schedule": "zaremba"}}, 0.1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--config.rates=(0.1,0.01)"], "each larger than the last"),
        (["--config.rates=(0.0,0.1)"], "positive"),
        (["--config.rate_budget.epochs=0"], "one epoch or more"),
        (["--shard=1/2"], "--shard"),
    ],
)
def test_what_cannot_be_meant_is_an_error(options, error, tmp_path):
    with pytest.raises(ConfigError, match=error):
        command.main([*LINE, *options, f"--workdir={tmp_path}"])
    assert not list(tmp_path.rglob("*.json"))


def test_without_rates_cells_are_what_they_were():
    config = config_lib.plain(get_config(config_path("quickstart")))
    for own in matrix.cells(config):
        assert not {"rates", "rate_budget"} & set(own.config) and own.grid is None
    assert rates.FOLDER not in {path.name for path in app.shipped().values()}
