"""Files among the records that are none: named, left as they are, and the rest is shown."""

import json
import shutil

import pytest
from report_records import make_record
from small_runs import arguments, mistake

from softbench import __main__ as command
from softbench.bench import app, matrix, records
from softbench.report import app as report_app

SEEDS = "--config.seeds=(0,1)"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of two cells."""
    folder = tmp_path_factory.mktemp("finished")
    config = app.read_config(app.parse(arguments(folder, "full", SEEDS)))
    records.write_json(folder / "out" / records.PLAN, records.plan(config))
    for cell in matrix.cells(config):
        made = make_record(cell=cell.id, config=cell.config, seed=cell.config["seed"])
        records.write_json(folder / "out" / "runs" / f"{cell.id}.json", made)
    return folder


def edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


DAMAGE = {
    "empty": (lambda path: path.write_text(""), "is empty, cut or no JSON"),
    "cut": (lambda path: path.write_text(path.read_text()[:900]), "is empty, cut or no JSON"),
    "bytes": (lambda path: path.write_bytes(bytes(range(256))), "is empty, cut or no JSON"),
    "list": (lambda path: path.write_text("[]"), "is no record of a cell"),
    "foreign": (lambda path: path.write_text('{"status": "ok"}'), "is no record of a cell"),
    "newer": (lambda path: edit(path, schema_version=2), "is of schema 2; this version reads 1"),
    "state": (lambda path: edit(path, status=None), "is no record of a cell"),
    "task": (lambda path: edit(path, config={"task": "x"}), "is no record of a cell"),
    "other": (lambda path: edit(path, cell="x"), "is the record of another cell: x"),
    "edited": (
        lambda path: edit(path, checksum="0" * 64),
        "was changed after it was written: its checksum is another",
    ),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read: Is a directory"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_reading_names_it_and_keeps_the_rest(finished, tmp_path, kind):
    shutil.copytree(finished / "out", tmp_path / "out")
    bad, good = sorted((tmp_path / "out" / "runs").iterdir())
    damage, why = DAMAGE[kind]
    damage(bad)
    sound, damaged = records.read_folder(tmp_path / "out")
    assert [record["cell"] for record in sound] == [good.stem]
    assert damaged == {bad.name: why}
    assert records.status(bad) == "damaged"


def test_the_commands_name_it_and_go_on(finished, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    bad, good = sorted((out / "runs").iterdir())
    bad.write_text("")
    shutil.copy(good, out / "runs" / "xx-renamed.json")
    expected = [
        f"{bad} is empty, cut or no JSON; it is left out",
        f"{out}/runs/xx-renamed.json is the record of another cell: {good.stem}; it is left out",
    ]
    assert command.main(arguments(tmp_path, "full", SEEDS, "--retry_failed")) == 1
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"softbench: {line}" for line in expected]
    assert f"{bad.stem}: damaged (kept)" in said.out and "\n| full" in said.out
    assert bad.read_text() == ""

    report = ["softbench-report", f"--results={out}"]
    assert report_app.main(report) == 0
    found = capsys.readouterr().err.splitlines()
    assert found == [f"softbench-report: {line}" for line in expected]
    page = (out / "README.md").read_text()
    assert f"* `runs/{bad.name}` is empty, cut or no JSON." in page
    assert page.count("| full") == 1
    assert report_app.main([*report, "--check"]) == 1


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_damaged_plan_is_one_line(finished, tmp_path, content):
    shutil.copytree(finished / "out", tmp_path / "out")
    (tmp_path / "out" / "experiment.json").write_text(content)
    said = mistake("softbench-report", f"--results={tmp_path / 'out'}", main=report_app.main)
    assert "experiment.json must be one that `softbench` wrote: run it again" in said
