"""Prices in steps of a reference, and budgets that are counted in them."""

import json
import math

import numpy as np
import pytest
from report_records import PLAN, make_record, write_results
from small_runs import arguments, run_cells_here

from softbench import __main__ as command
from softbench.bench import app, budget, claims, matrix, price, records, worker
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.training import build
from softbench.bench.training import run as train
from softbench.report import frame, pages

METHODS = "full,uniform"
DEVICE = {"kind": "cpu", "name": "a processor", "count": 2}


def config_of(line):
    return app.read_config(app.parse(app.resolved(line)))


class Clock:
    """Processes whose steps take 100 ms times their `costs`, by `growth` longer in each turn."""

    def __init__(self):
        self.costs = {"full": 1.0, "uniform": 0.4, "broken": None}
        self.device, self.before, self.turns = DEVICE, 0.0, []
        self.load = self.growth = 1.0

    def process(self, config, data_dir, timeout_s):
        clock, (name,) = self, config["methods"]

        class Process:
            before_seconds = 0.0

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def turn(self):
                if clock.costs[name] is None:
                    raise worker.Failed(self, "ValueError: no")
                clock.turns.append(name)
                clock.load *= clock.growth
                self.device, self.before_seconds = clock.device, clock.before
                return 100 * clock.load * clock.costs[name]

        return Process()


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(price, "Worker", made.process)
    return made


def record_of(config, workdir, **options):
    """The record of a config with one data set and model."""
    (record,) = price.prices(config, workdir, **options)
    return record


def test_a_price_is_the_median_ratio_of_turns_next_to_each_other(clock, tmp_path, capsys):
    """The machine slows by a tenth in every turn; the rounds begin with the one and the other."""
    clock.growth = 1.1
    config = config_of(arguments(tmp_path, "uniform,broken"))
    record = record_of(config, tmp_path, rounds=3)
    assert record["reference"] == "full" and next(iter(record["methods"])) == "full"
    row, reference = record["methods"]["uniform"], record["methods"]["full"]
    ratios = [0.4 * 1.1, 0.4 / 1.1, 0.4 * 1.1]
    assert [turn["ratio"] for turn in row["rounds"]] == pytest.approx(ratios)
    assert (row["ratio"], row["low"], row["high"]) == pytest.approx((0.44, 0.4 / 1.1, 0.44))
    assert row["step_ms"] == pytest.approx(100 * 0.4 * 1.1 ** (3 + 3))  # of the second round
    assert (reference["ratio"], reference["low"], reference["high"]) == (1, 1, 1)
    pairs = ["full", "uniform", "uniform", "full", "full", "uniform"]
    assert clock.turns == ["full"] * 3 + pairs + ["full"]  # the last one next to `broken`
    assert record["methods"]["broken"]["error"] == "ValueError: no"
    assert record["device"] == DEVICE
    (path,) = (tmp_path / "price").glob("*.json")
    assert json.loads(path.read_text()) == record
    out = capsys.readouterr().out
    assert "uniform   0.440     0.364 to 0.440" in out and "failed: ValueError: no" in out


def test_of_nine_rounds_the_outermost_are_not_in_the_interval():
    ratios = [9.0, 1.0, 5.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0]
    rounds = [{"ratio": x, "step_ms": x, "reference_ms": 1.0} for x in ratios]
    made = price._summary(rounds)
    assert (made["ratio"], made["low"], made["high"]) == (5, 2, 8)
    # by the binomial distribution: at least 2 of 9 on either side of the median
    inside = sum(math.comb(9, k) for k in range(2, 8)) / 2**9
    assert inside == pytest.approx(0.961, abs=1e-3)


def test_a_killed_run_keeps_its_rounds(clock, tmp_path, monkeypatch):
    config = config_of(arguments(tmp_path, METHODS))
    write, left = records.write_json, [7]

    def writing(path, value):
        write(path, value)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(records, "write_json", writing)
    with pytest.raises(KeyboardInterrupt):
        record_of(config, tmp_path, rounds=5)
    record = record_of(config, tmp_path, rounds=5)
    assert [len(row["rounds"]) for row in record["methods"].values()] == [5, 5]
    assert len(clock.turns) == 5 + 2 * 5
    assert record_of(config, tmp_path, rounds=5) == record and len(clock.turns) == 15
    # another method of the same name is measured anew, and what is not asked for stays
    config["method_table"]["uniform"]["kwargs"]["num_sampled"] = 5
    again = record_of({**config, "methods": "uniform"}, tmp_path, rounds=1)
    assert len(again["methods"]["uniform"]["rounds"]) == 1
    assert len(again["methods"]["full"]["rounds"]) == 5


def test_rounds_of_other_code_or_another_device_are_not_mixed(clock, tmp_path, monkeypatch, capsys):
    config = config_of(arguments(tmp_path, METHODS))
    record_of(config, tmp_path, rounds=1)
    clock.device = {**DEVICE, "name": "another"}
    with pytest.raises(ConfigError, match=r"on the device where it began.*a processor.*another"):
        record_of(config, tmp_path, rounds=2)
    monkeypatch.setattr(price.environment, "code", lambda: "other")
    record = record_of(config, tmp_path, rounds=2)
    assert "is of other code; it is measured anew" in capsys.readouterr().out
    assert record["device"]["name"] == "another" and record["code"] == "other"
    (path,) = (tmp_path / "price").glob("*.json")
    claim, error = tmp_path / "partial" / f"{path.stem}.price.claim", "another run measures"
    with claims.claim(claim), pytest.raises(ConfigError, match=error):
        record_of(config, tmp_path, rounds=2)
    path.write_text(path.read_text()[:50])
    with pytest.raises(ConfigError, match="must be whole; remove it"):
        record_of(config, tmp_path, rounds=2)


def test_without_its_reference_there_is_no_price(clock, tmp_path):
    line = arguments(tmp_path, METHODS, "--config.reference=broken")
    with pytest.raises(ConfigError, match=r"reference must be.*'broken' \(ValueError: no\)"):
        record_of(config_of(line), tmp_path)
    with pytest.raises(ConfigError, match=r"--config.reference must name a method.*'none'"):
        command.main([*arguments(tmp_path, METHODS, "--config.reference=none"), "--price"])
    with pytest.raises(ConfigError, match="--price does not go with --shard"):
        command.main([*arguments(tmp_path, METHODS), "--price", "--shard=1/2"])


@pytest.mark.thorough
def test_a_method_that_cannot_be_made_says_so_in_its_process(tmp_path):
    """The suite's own run, of test_submissions, measures those that can."""
    line = [*arguments(tmp_path, "broken", "--config.reference=broken"), "--price"]
    with pytest.raises(ConfigError, match=r"'broken' \(ValueError: `num_sampled` must be"):
        command.main(line)


def priced(clock, tmp_path, **options):
    """The cells of the small experiment with a budget, and the config."""
    config = config_of(arguments(tmp_path, METHODS, "--config.budget=full:100"))
    config |= {"epochs": 4} | options
    config_lib.check(config)
    record_of(config, tmp_path / "out")
    return budget.budgeted(matrix.cells(config), config, tmp_path / "out", ["softbench"]), config


def test_a_budget_is_the_steps_that_it_pays_for(clock, tmp_path):
    cells, config = priced(clock, tmp_path)
    assert [cell.config["steps"] for cell in cells] == [100, 250]
    assert [cell.price["ratio"] for cell in cells] == [1, pytest.approx(0.4)]
    assert {cell.config["budget"] for cell in cells} == {"full:100"}
    assert all(cell.id == matrix.cell_id(cell.config) for cell in cells)
    without = matrix.cells({**config, "budget": ""})
    assert not {"budget", "steps", "reference"} & set(without[0].config)
    assert not {cell.id for cell in cells} & {cell.id for cell in without}
    later = {**config, "seeds": (7, 8)}  # added when the others have run
    made = budget.budgeted(matrix.cells(later), later, tmp_path / "out", ["softbench"])
    assert sorted((c.config["seed"], c.config["steps"]) for c in made) == [
        (seed, steps) for seed in (7, 8) for steps in (100, 250)
    ]
    # A tree that takes as long as 10 of the reference's steps leaves 90 of them.
    path = price.path_of(cells[0].config, config, tmp_path / "out")
    record = json.loads(path.read_text())
    unit = record["methods"]["full"]["step_ms"]
    record["methods"]["uniform"]["before_seconds"] = 10 * unit / 1000
    records.write_json(path, record)
    late = budget.budgeted(matrix.cells(config), config, tmp_path / "out", ["softbench"])[1]
    assert late.config["steps"] == 225
    cost = budget.of_steps(late.price, 225)
    assert cost["reference_steps"] == pytest.approx(100)
    assert cost["price_seconds"] == pytest.approx(100 * unit / 1000, rel=1e-3)
    tiny = {**config, "budget": "full:1"}
    record["methods"]["uniform"] |= {"before_seconds": 0.0, "ratio": 3.0}
    records.write_json(path, record)
    made = budget.budgeted(matrix.cells(tiny), tiny, tmp_path / "out", ["softbench"])
    assert [cell.config["steps"] for cell in made] == [1, 1]


def test_a_rate_that_ends_does_so_with_the_budget(clock, tmp_path):
    rate = {"class_name": "CosineDecay", "config": {"initial_learning_rate": 1, "decay_steps": 7}}
    optimizer = {"name": "adam", "learning_rate": rate}
    cells, _ = priced(clock, tmp_path, optimizer=optimizer)
    for cell in cells:
        (method,) = cell.config["methods"].values()
        assert cell.config["optimizer"] == optimizer
        made = method["optimizer"]["learning_rate"]
        assert made == {**rate, "config": {**rate["config"], "decay_steps": cell.config["steps"]}}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--config.budget=full"], r"must be method:steps, as in full:4000. Received: 'full'"),
        (["--config.budget=full:0"], "must be method:steps"),
        (["--config.budget=none:5"], "--config.budget must name a method of this config: full"),
        (["--config.budget=full:5", "--config.max_train_seconds=3"], "max_train_seconds with it"),
        (["--config.budget=full:5", "--config.steps_per_epoch=3"], "steps_per_epoch with it"),
        (["--config.budget=full:5", "--config.epochs=0"], "epochs must be 1 or more"),
        (
            ["--config.budget=full:5"],
            r"run softbench .*budget=full:5.* --price\. .*full on",
        ),
    ],
)
def test_what_cannot_be_meant_is_an_error(options, error, tmp_path):
    with pytest.raises(ConfigError, match=error):
        command.main(arguments(tmp_path, METHODS, *options))
    assert not list((tmp_path / "out").rglob("*.json"))


def test_a_schedule_of_epochs_has_no_budget(tmp_path):
    config = config_of(arguments(tmp_path, METHODS, "--config.budget=full:5"))
    config["optimizer"] = {"name": "sgd", "schedule": "zaremba"}
    with pytest.raises(ConfigError, match="schedule that counts epochs"):
        config_lib.check(config)


def test_points_are_at_equal_shares_whatever_an_epoch_is():
    """11 steps in 4 shares, in epochs of 3 steps: the last share crosses two of their ends."""
    config = {"epochs": 4, "budget": "full:20", "steps": 11}
    made = list(train._epochs(config, None, 0))
    assert [epoch.steps for epoch in made] == [2, 3, 3, 3]
    assert [epoch.index for epoch in train._epochs(config, None, 2)] == [2, 3]
    few = list(train._epochs({**config, "steps": 2}, None, 0))
    assert [(epoch.index, epoch.steps) for epoch in few] == [(1, 1), (3, 1)]
    batches = build.Batches([(np.array(i),) for i in range(3)])
    seen, step = [], 0
    for epoch in made:
        batches.go_to(step, 0, epoch.steps)
        seen += [int(batches[i][0]) for i in range(len(batches))]
        step += epoch.steps
    assert seen == [i % 3 for i in range(11)]


@pytest.mark.thorough
def test_a_budgeted_run_can_be_repeated(clock, tmp_path, monkeypatch):
    """Two runs by one price."""
    run_cells_here(monkeypatch)
    options = ("--config.budget=full:6", "--config.epochs=2")
    line = arguments(tmp_path, "uniform", *options)
    record_of(config_of(line), tmp_path / "out", rounds=2)
    with pytest.raises(ConfigError, match="needs prices"):  # of fewer rounds than it has
        command.main(line)
    record_of(config_of(line), tmp_path / "out")
    assert command.main(line) == 0
    (first,) = records.read_all(tmp_path / "out")
    assert [point["step"] for point in first["curve"]] == [7, 15]
    assert [p["reference_steps"] for p in first["curve"]] == pytest.approx([2.8, 6.0])
    assert first["price"]["reference"] == "full"
    (tmp_path / "out" / "runs").rename(tmp_path / "first")
    assert command.main(line) == 0
    (second,) = records.read_all(tmp_path / "out")
    assert (second["cell"], second["final"]) == (first["cell"], first["final"])


def test_training_takes_its_steps_by_the_price_of_one(tmp_path):
    """Of records of the price's setting and device, whatever else the machine did meanwhile."""
    elsewhere = make_record(method="exp", cell="c", device={**DEVICE, "name": "another"})
    made = [make_record(cell="a"), make_record(method="exp", cell="b"), elsewhere]
    made += [make_record(method="uniform", cell="d"), make_record(cell="e")]
    made[-1]["config"]["model"] = {"name": "gru"}
    write_results(tmp_path, *made)
    turns = [(100.0, 40.0), (50.0, 20.0), (60.0, 24.0)]
    rounds = [{"ratio": own / one, "step_ms": own, "reference_ms": one} for one, own in turns]
    methods = {"exp": {"rounds": rounds, "ratio": 0.4}, "uniform": {"error": "no"}}
    methods["full"] = {"rounds": [{"ratio": 1.0, "reference_ms": 80.0}], "ratio": 1.0}
    setting = price.setting(made[0]["config"])
    priced = {"setting": setting, "device": made[0]["device"], "methods": methods}
    records.write_json(tmp_path / "price" / "ptb.json", priced)
    found = frame.read(tmp_path).runs.set_index("cell")["wall_s"]
    assert (found["a"], found["b"]) == pytest.approx((14.0, 5.6))  # 200 steps of 70 ms
    assert found[["c", "d", "e"]].isna().all()


def test_a_page_counts_in_steps_of_the_reference():
    def record(method, ratio, cell):
        curve = [
            {"epoch": i, "step": round(i * 50 / ratio), "seconds": 9.0 * i * ratio,
             "valid_perplexity": 100.0 - i, "reference_steps": 50.0 * i, "price_seconds": 2.0 * i}
            for i in (1, 2)
        ]  # fmt: skip
        made = make_record(method=method, curve=curve, cell=cell, price={"ratio": ratio})
        made["config"] |= {"budget": "full:100", "steps": round(100 / ratio)}
        return made

    made = [record("full", 1.0, "a"), record("uniform", 0.5, "b")]
    plan = PLAN | {"methods": ["full", "uniform"], "paper": {}}
    plan |= {"columns": ["valid_perplexity", "steps", "price"]}
    plan["reach"] = {"method": "full", "metric": "valid_perplexity"}
    found = frame.of("demo", plan, made)
    assert found.runs["problem"].nunique() == 1  # they can be compared
    assert list(found.runs["goal_s"]) == [4.0, 4.0]  # seconds of the price
    assert "| full | 100 | 1 | 4 |\n| uniform | 200 | 0.5 | 4 |" in pages.summary(found)
    page = pages.Page({"demo": found}, "demo")
    page.picture()
    ((_, data),) = page.pictures.values()
    assert "steps of the reference" in data["x"]
    assert [point[0] for point in data["lines"]["uniform"]] == [50, 100]
