"""`softbench-advise --data`: the kind of a file, what is trained, and the order; agreement."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import BACKEND

from softbench.advise import agreement, app, choices, kinds, ranking, trials
from softbench.advise.choices import Choice, Problem
from softbench.advise.measure import Measured
from softbench.advise.quality import Quality
from softbench.bench import records
from softbench.commands import ConfigError

SCALING = sorted((Path(__file__).parents[1] / "results/scaling/runs").glob("*.json"))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("xmc", "3 9 4\n0,2 1:0.5 3:1\n1 2:1\n3 0:1\n"),
        ("interactions", "user,item,time\n1,5,100\n1,6,101\n2,5,99\n"),
        ("interactions", "a::12::5::978300760\nb::13::3::978302109\n"),
        ("interactions", "1 5 6 7\n2 8 9\n"),
        ("interactions", "u1\ti1\nu2\ti2\n"),
        ("triples", "h,r,t\nberlin,in,germany\nparis,in,france\n"),
        ("text", "It was, as it were, a text.\nAnd so on.\n"),
        ("text", "one word\ntwo more words\n"),
    ],
)
def test_the_kind_of_a_file(tmp_path, kind, content):
    path = tmp_path / "data"
    path.write_text(content)
    assert kinds.of_data(str(path)) == (kind, True)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("train.txt", "test.txt"):
        (folder / name).write_text(content)
    assert kinds.of_data(str(folder)) == (kind, True)
    assert kinds.of_data("gowalla") == ("gowalla", False)


def write_text(path):
    words = [f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(300)]
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 301)
    drawn = rng.choice(words, 9_000, p=shares / shares.sum())
    path.write_text("\n".join(" ".join(line) for line in drawn.reshape(-1, 10)))
    return path


POINT = {"step": 400, "valid_nll": 2.0, "valid_ece": 0.05, "valid_precision_at_1": 0.4}
FOUND = {
    "full": {"curve": [{**POINT, "valid_nll": 1.5}, {**POINT, "valid_nll": 1.9}]},
    "unigram": {"curve": [{**POINT, "valid_ece": 0.25, "valid_precision_at_1": 0.6}]},
    "codebook": {"curve": [], "status": "crashed", "error": "Traceback\nOut of memory"},
}


@pytest.mark.parametrize("need", ["calibrated", "ranking"])
def test_what_is_trained_and_its_order(need, tmp_path, monkeypatch, capsys):
    """The methods that the lines to paste make, for equal times; the best first, failures last."""
    seen = {}

    def run_cells(cells, workdir, *_):
        for cell in cells:
            (name,) = cell.config["methods"]
            seen[name] = cell.config
            record = {"status": "ok", "error": None, "step_ms": {"median": 7.0}, **FOUND[name]}
            (workdir / "runs" / f"{cell.id}.json").write_text(json.dumps(record))

    monkeypatch.setattr(trials.runner, "run_cells", run_cells)
    monkeypatch.setattr(trials.records, "read", lambda path: json.loads(path.read_text()))
    path = write_text(tmp_path / "own.txt")
    options = [f"--data={path}", f"--need={need}", "--methods=full,unigram,codebook"]
    options += ["--minutes=4", f"--backend={BACKEND}"]
    assert app.main(["softbench-advise", *options]) == 0
    text = capsys.readouterr().out
    problem = Problem(300, 128, 400, need=need, inputs="words", has_counts=True)
    expected = choices.choices(problem)
    for name, config in seen.items():
        assert config["methods"][name] == expected[name].method
        assert config["max_train_seconds"] == 240 / 3 - trials.START
    rows = text.split("\n\n")[2].splitlines()[1:]
    best = ["full", "unigram"] if need == "calibrated" else ["unigram", "full"]
    assert [row.split()[0] for row in rows] == [*best, "codebook"]
    assert f"{np.exp(1.5):.4g}" in rows[best.index("full")]
    assert "0.250" in rows[best.index("unigram")] and "Failed: Out of memory" in text
    assert "own: n = 300" in text and f"To paste ({best[0]})" in text


@pytest.mark.slow
def test_it_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trials, "LEAST", 2.0)
    path, keep = write_text(tmp_path / "own.txt"), tmp_path / "kept"
    options = [f"--data={path}", "--methods=full,unigram", "--minutes=0.01", f"--workdir={keep}"]
    assert app.main(["softbench-advise", f"--backend={BACKEND}", *options]) == 0
    assert "own: n = 300" in capsys.readouterr().out
    found, damaged = records.read_folder(keep)
    assert len(found) == 2 and not damaged
    assert all(0 <= record["final"]["test_ece"] <= 1 for record in found)


def test_mistakes(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for options, said in {
        ("--data=nothing",): "--data must be an existing path or one of: .*synthetic_language",
        (f"--data={tmp_path / 'empty.txt'}",): "--data must hold lines",
        (f"--data={tmp_path}", "--classes=9"): "--data has sizes and counts of its own.*--classes",
    }.items():
        with pytest.raises(ConfigError, match=said):
            app.main(["softbench-advise", *options])


@pytest.mark.parametrize("path", SCALING, ids=lambda path: path.stem)
def test_the_ranking_by_time_is_that_of_the_records_of_scaling(path):
    """The same rows, at their recorded times: no pair of which a record is sure is turned round."""
    steps = json.loads(path.read_text())["steps"]
    methods = json.loads(path.read_text())["config"]["methods"]
    tried = {n: Choice(m, "") for n, m in methods.items() if n in steps and "head" in m}
    found = {n: Measured(steps[n]["step_ms"], 1.0) for n in tried}
    problem = Problem(1_000_000, 128, 256)
    rows = ranking.ranked(problem, tried, found, dict.fromkeys(tried, Quality()), None)
    places = {row.name: float(place) for place, row in enumerate(rows)}
    assert len(places) >= 9 and agreement.contradictions(places, steps) == []


def test_contradictions():
    """Only of pairs whose times do not overlap."""

    def times(low, high):
        return {"step_ms": {"median": (low + high) / 2, "p20": low, "p80": high}}

    steps = {"a": times(1.0, 2.0), "b": times(1.5, 3.0), "c": times(4.0, 5.0), "d": times(9, 10)}
    assert agreement.contradictions({"a": 3.0, "b": 2.0, "c": 2.5}, steps) == [("a", "c")]
