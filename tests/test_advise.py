"""`softbench-advise`: what it times, how it ranks, what it prints, and its mistakes."""

import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from conftest import BACKEND

import softbench
from softbench.advise import app, choices, quality, ranking
from softbench.advise.choices import Problem
from softbench.advise.measure import Measured
from softbench.advise.quality import Quality
from softbench.bench import timing
from softbench.bench.training import build
from softbench.commands import ConfigError
from softbench.report import evidence, front

ROOT = Path(__file__).parents[1]
QUESTIONS = {
    "an LSTM over 30,000 words": Problem(30_000, 128, 400, inputs="words"),
    "a recommender of a million items": Problem(1_000_000, 128, 512, inputs="items"),
    "300,000 labels, 20 positives": Problem(300_000, 128, 64, 20, "ranking", "labels"),
    "n = 5,000": Problem(5_000, 128, 512),
}


def advise(capsys, *arguments):
    code = app.main(["softbench-advise", f"--backend={BACKEND}", *arguments])
    assert code == 0
    return capsys.readouterr().out


def test_the_command_times_ranks_and_prints_lines_that_run(capsys, tmp_path):
    np.save(tmp_path / "counts.npy", np.arange(1, 301))
    text = advise(
        capsys,
        "--classes=300",
        "--dim=8",
        "--batch=16",
        "--minutes=1",
        "--methods=full,unigram",
        f"--counts={tmp_path / 'counts.npy'}",
    )
    table = text.split("\n\n")[1].splitlines()
    assert {line.split()[0] for line in table[1:]} == {"full", "unigram"}
    assert all(float(line.split()[1]) > 0 for line in table[1:])
    assert text.startswith("n = 300, d = 8, batch 16, need calibrated")
    assert "--counts=counts.npy" not in text and "Your encoder" in text


@pytest.mark.parametrize("need", ["calibrated", "ranking"])
def test_lines_to_paste_make_the_head_that_was_timed(need):
    problem = Problem(300, 8, 16, need=need)
    for choice in choices.choices(problem).values():
        names = {"softbench": softbench, "counts": np.arange(1, 301)}
        exec(choices.lines(problem, choice.method)[0], names)
        timed = build.head(choice.method, 300, names["counts"], None)
        config, other = timed.get_config(), names["head"].get_config()
        assert type(names["head"]) is type(timed)
        for each in (config, other):
            each.pop("name")
            each.pop("seed", None)
        assert json.dumps(_unnamed(config), default=str) == json.dumps(_unnamed(other), default=str)


def _unnamed(value):
    if isinstance(value, dict):
        return {k: _unnamed(v) for k, v in value.items() if k not in ("name", "seed")}
    return [_unnamed(v) for v in value] if isinstance(value, list) else value


def measured(milliseconds, megabytes=1.0):
    return Measured(timing.summary([milliseconds / 1000]), megabytes)


def test_the_order():
    """Exact if that costs little; else close rows by time, unknown, poor, and untimed ones.

    At 10,000 classes or fewer, whose probabilities are needed, exact whatever it costs.
    """
    problem = Problem(50_000, 8, 16)
    tried = choices.choices(problem)
    known = dict.fromkeys(tried, Quality())
    known["unigram"] = known["codebook"] = Quality(0.0, 0.1, 0.5, ("page",))
    known["uniform"] = Quality(0.4, 0.5, 0.6, ("page",))
    times = {"unigram": 3.0, "in_batch": 1.0, "codebook": 2.0, "top_and_tail": 9.0}
    found = {name: measured(times.get(name, 4.0)) for name in tried}
    found["nce_binary"] = Measured(note="no time was left")
    found["full"] = measured(2.5)

    def order(memory=None):
        return [row.name for row in ranking.ranked(problem, tried, found, known, memory)]

    best = ["full", "codebook", "unigram", "in_batch", "top_and_tail", "uniform", "nce_binary"]
    assert order() == best
    found["full"] = measured(30.0)
    assert order() == [*best[1:5], "full", *best[5:]]
    few = ranking.ranked(Problem(10_000, 8, 16), tried, found, known, None)
    assert [row.name for row in few] == best
    found["codebook"] = measured(2.0, megabytes=500.0)
    assert order(memory=100.0)[-1] == "codebook"
    known["uniform"] = Quality(0.0, 0.0, 0.0, ("page",))
    assert order().index("top_and_tail") < order().index("uniform") < order().index("nce_binary")
    text = ranking.text(problem, ranking.ranked(problem, tried, found, known, None), "here", 3)
    assert "no time was left" in text and "0.000 to 0.500" in text and "unknown" in text


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_questions_have_answers(question):
    """With times that grow with the rows that a method touches: names, reasons and lines."""
    problem = QUESTIONS[question]
    tried, entries = choices.choices(problem), quality.evidence()
    known = {
        n: quality.quality(problem, evidence.kind(c.method), entries) for n, c in tried.items()
    }
    found = {name: measured(10.0) for name in tried}
    found["full"] = measured(problem.classes / 500)
    rows = ranking.ranked(problem, tried, found, known, None)
    text = ranking.text(problem, rows, "here", 1.0)
    assert (rows[0].name == "full") == (problem.classes <= 5_000)
    assert f"softbench.{rows[0].choice.method['head']}({problem.classes}" in text
    assert ("20" in text.split("What this cannot know")[1]) == (problem.positives > 1)
    assert not rows[0].choice.baseline
    assert ("multi_label='mean'" in text) == (problem.positives > 1)


def test_records_of_other_sizes_and_inputs_are_left_out():
    entry = {
        "page": "p",
        "classes": 1_000,
        "inputs": "words",
        "behind": {"FullSoftmax": {"nats": 0.5}},
    }
    entries = [entry, {**entry, "classes": 10_000_000, "behind": {"FullSoftmax": {"nats": 9.0}}}]
    ask = lambda **o: quality.quality(Problem(2_000, 8, 8, **o), "FullSoftmax", entries)  # noqa: E731
    assert ask() == ask(inputs="words") == Quality(0.5, 0.5, 0.5, ("p",))
    assert ask(inputs="labels") == ask(need="ranking") == Quality()


def test_calibration_errors_count_where_probabilities_are_needed():
    """Above 0.1 a row is behind the others, whatever its log-loss; reasons say the correction."""
    entry = {"page": "p", "classes": 100, "inputs": "words", "behind": {}}
    entries = [{**entry, "calibration": {"SampledSoftmax unigram": e}} for e in (0.1, 0.2, 0.4)]
    for need, place in (("calibrated", 3), ("ranking", 2)):
        problem = Problem(2_000, 8, 8, need=need)
        known = quality.quality(problem, "SampledSoftmax unigram", entries)
        assert known == Quality(ece=0.2)
        tried = {"unigram": choices.choices(problem)["unigram"]}
        rows = ranking.ranked(problem, tried, {"unigram": measured(1.0)}, {"unigram": known}, None)
        assert rows[0].tier == place
        text = ranking.text(problem, rows, "here", 1.0)
        assert ("without a correction, calibration error 0.200" in text) == (need == "calibrated")


def test_calibration_in_the_evidence():
    """Of the point of the least log-loss of all records of a kind; records without it add none."""

    def record(method, *points):
        config = {"task": "train", "methods": {"m": method}, "seed": 0, "model": {"name": "lstm"}}
        curve = [dict(zip(("valid_nll", "valid_ece"), point, strict=True)) for point in points]
        return {
            "config": {**config, "dataset": {"name": "d"}},
            "status": "ok",
            "num_classes": 5_000,
            "curve": curve,
        }

    full, hinge = {"head": "FullSoftmax"}, {"head": "SampledHinge"}
    found = [
        record(full, (3.0, 0.3), (2.0, 0.1)),
        record(full, (2.5, 0.2)),
        record(hinge, (9.0, None)),
    ]
    page = type("Page", (), {"name": "p", "records": found})
    (entry,) = json.loads(evidence.text([page]))
    assert entry["calibration"] == {"FullSoftmax": 0.1}


@pytest.mark.parametrize("epochs, steps, found", [(5, 149, 1), (1, 1162, 1), (1, 60, 0), (3, 0, 1)])
def test_evidence_is_of_runs_that_were_not_cut_short(epochs, steps, found):
    """745 and 1,162 steps are a run, 60 measure a cost; 0 is whole epochs."""
    config = {"task": "train", "epochs": epochs, "steps_per_epoch": steps, "seed": 0}
    config |= {"dataset": {"name": "d"}, "model": {"name": "lstm"}}
    own = {"status": "ok", "num_classes": 5_000, "curve": [{"valid_nll": 1.0}]}
    heads = ("FullSoftmax", "SampledHinge")
    made = [{**own, "config": {**config, "methods": {"m": {"head": head}}}} for head in heads]
    page = type("Page", (), {"name": "p", "records": made})
    assert len(json.loads(evidence.text([page]))) == found


@pytest.mark.parametrize("seconds, found", [(0, 1), (60, 0)])
def test_environment_variables_matter_to_equal_times_alone(seconds, found):
    config = {"task": "train", "epochs": 3, "seed": 0, "max_train_seconds": seconds}
    config |= {"dataset": {"name": "d"}, "model": {"name": "lstm"}}
    own = {"status": "ok", "num_classes": 5_000, "curve": [{"valid_nll": 1.0}]}
    rows = {"FullSoftmax": {}, "SampledHinge": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}}
    made = [
        {**own, "config": {**config, "methods": {"m": {"head": head}}, "environment": environment}}
        for head, environment in rows.items()
    ]
    page = type("Page", (), {"name": "p", "records": made})
    assert len(json.loads(evidence.text([page]))) == found


def test_the_evidence_that_ships_is_that_of_the_records():
    pages, _ = front.read_all(ROOT / "results")
    assert evidence.text(pages) == (ROOT / evidence.PATH).read_text()
    for entry in quality.evidence():
        for measure in ("nats", "precision_at_1"):
            assert min(v[measure] for v in entry["behind"].values() if measure in v) == 0.0


def test_mistakes(capsys, tmp_path):
    np.save(tmp_path / "counts.npy", np.ones(7))
    for wrong, said in {
        "--methods=ful": "--methods must be of: full",
        f"--counts={tmp_path / 'none.npy'}": "--counts must be a .npy file",
        f"--counts={tmp_path / 'counts.npy'}": "--counts must hold 300",
        "--need=speed": "--need=speed: value should be one of <calibrated|ranking>",
        "--classes=0": "--classes=0: 0 is not a positive integer",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(said)):
            app.main(["softbench-advise", "--classes=300", wrong])
    other = {"tensorflow": "jax", "jax": "tensorflow"}[keras.backend.backend()]
    if app.importlib.util.find_spec(other) is None:
        with pytest.raises(ConfigError, match=rf"pip install 'softbench\[{other}\]'"):
            app.main(["softbench-advise", f"--backend={other}"])
