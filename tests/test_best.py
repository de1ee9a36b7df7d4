"""Best weights: which are kept and tested, early stopping, and going on after a kill."""

import shutil

import keras
import pytest
import small_runs
from small_runs import BAG, untimed

import softbench
from softbench.bench import checkpoints, matrix, records
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.methods import full, sampled, with_row_updates
from softbench.bench.training import best
from softbench.bench.training import run as train

# From the second epoch of 5 steps on, the rate is so large that the model gets worse.
WORSE = {
    "class_name": "PiecewiseConstantDecay",
    "config": {"boundaries": [4], "values": [0.1, 30.0]},
}
ROWS = with_row_updates(sampled("uniform", 5), {"name": "adam", "learning_rate": 0.01})


def job(method=None, path=None, **fields):
    """A run of 4 epochs of 5 steps that gets worse, with a checkpoint after every step."""
    given = {"epochs": 4, "keep": "best", "keep_by": "nll", "methods": {"x": method or full()}}
    given["optimizer"] = {"name": "sgd", "learning_rate": WORSE}
    return small_runs.job(checkpoint=path, seed=3, **BAG, **{**given, **fields})


def trained(made):
    """The record's fields that no clock decides."""
    keras.utils.set_random_seed(made.config["seed"])
    train.run(made)
    return untimed(records.finite(made.result))


@pytest.fixture
def scored(monkeypatch):
    """Validation scores that follow from the steps done alone: best after the second epoch."""
    scores, load = {5: 0.1, 10: 0.3, 15: 0.3, 20: 0.2}, train.load

    def loaded(config, data_dir):
        problem = load(config, data_dir)

        def evaluate(model, split):
            own = {"mrr": 0.0} if model is None else {}
            if model is not None and split == "valid":
                own = {"mrr": scores[int(model.optimizer.iterations)]}
            return problem.evaluate(model, split) | own

        return problem._replace(evaluate=evaluate)

    monkeypatch.setattr(train, "load", loaded)


def test_a_run_that_gets_worse_keeps_the_weights_of_its_first_epoch():
    """They score what a run of one epoch ends with."""
    found, short = trained(job()), trained(job(epochs=1, keep="last"))
    assert found["curve"][0]["valid_nll"] < found["curve"][-1]["valid_nll"]
    assert found["best"] == {"epoch": 1, "step": 5} | short["final"] and "best" not in short
    assert found["final"]["test_nll"] > found["best"]["test_nll"]


def test_the_point_that_is_kept_can_be_the_only_one_with_diagnostics():
    """They are those of its weights, and no other number is another one for it."""
    timing = {"warmup_steps": 1, "diagnose_last": True}
    every, kept = (trained(job(ROWS, timing=t)) for t in ({"warmup_steps": 1}, timing))
    assert "proposal_kl" in kept["best"] and kept["best"] == every["best"]
    assert [i for i, point in enumerate(kept["curve"]) if "proposal_kl" in point] == [0]
    values = [[point["valid_nll"] for point in run["curve"]] for run in (kept, every)]
    assert values[0] == values[1] and all("proposal_kl" in point for point in every["curve"])


def test_patience_ends_training_and_a_killed_run_goes_on(scored, tmp_path, monkeypatch):
    """After two points that are no better; a tie is none. Killed in the fourth epoch."""
    fields = {"epochs": 9, "patience": 2, "keep_by": "mrr"}
    whole, again, killed = (job(ROWS, tmp_path / name, **fields) for name in ("x", "x", "killed"))
    write = checkpoints.write

    def writing(place, head, arrays):
        write(place, head, arrays)
        if place == whole.checkpoint and head["timer"]["steps"] == 17:
            shutil.copy(place, killed.checkpoint)

    monkeypatch.setattr(checkpoints, "write", writing)
    found = trained(whole)
    assert len(found["curve"]) == 4
    assert (found["best"]["epoch"], found["best"]["valid_mrr"]) == (2, 0.3)
    assert killed.checkpoint.exists() and trained(killed) == found
    assert trained(again) == found  # goes on from the end, as if killed while it was tested


def test_slots_of_rows_are_not_kept():
    head = softbench.SampledSoftmax(5, "uniform", 2, row_optimizer=softbench.RowAdam(0.1))
    head.build((None, 3))
    model = softbench.Classifier(keras.Sequential([keras.Input((3,))]), head)
    kept = best.Best({"keep": "best", "keep_by": "nll"}, model)
    kept.add([{"valid_nll": 1.0}])
    slots = sum(len(part) for part in head.table.row_slots)
    assert slots and len(kept.arrays) == len(model.variables) - slots


def test_an_unknown_measure_is_named():
    with pytest.raises(ValueError, match=r"`keep_by` must be one of: nll, perpl.*Received: 'loss'"):
        best.check({"keep": "best", "keep_by": "loss"}, {"nll": 1.0, "perplexity": 2.7})
    best.check({"keep": "best", "keep_by": "nll"}, {"nll": 1.0})
    best.check({}, {"nll": 1.0})


@pytest.mark.parametrize(("measure", "index"), [("ece", 1), ("nll_tail", 1), ("ndcg_at_10", 0)])
def test_which_way_a_measure_is_better(measure, index):
    kept = best.Best({"patience": 5, "keep_by": measure}, None)
    curve = [{f"valid_{measure}": value} for value in (0.3, 0.2)]
    for end in (1, 2):
        kept.add(curve[:end])
    assert kept.index == index


def cell(**fields):
    columns = ("step_ms", "test_ndcg_at_10", "test_perplexity")
    config = config_lib.plain(
        config_lib.experiment("x", method_table={"a": full()}, columns=columns, **BAG, **fields)
    )
    config_lib.check(config)
    return matrix.cells(config)[0]


def test_fields_of_a_cell_only_where_they_are_used():
    plain = cell()
    assert cell(keep="last", patience=0, keep_by="nll").id == plain.id
    assert not {"keep", "patience", "keep_by"} & set(plain.config)
    kept = cell(keep="best").config
    assert (kept["keep"], kept["keep_by"], "patience" in kept) == ("best", "ndcg_at_10", False)
    own = cell(problems={"p": {"patience": 2, "keep_by": "nll"}}).config
    assert (own["patience"], own["keep_by"], "keep" in own) == (2, "nll", False)
    for wrong in ({"keep": "first"}, {"patience": -1}):
        with pytest.raises(ConfigError, match=rf"--config.{next(iter(wrong))} must be"):
            cell(**wrong)
