"""Rows of several versions of code, libraries or data are not put together without a word."""

import pathlib
import sys

import keras
import pytest
from faults import arguments

from softbench import datasets
from softbench.bench import app, environment, matrix, provenance, records, runner
from softbench.report import frame, pages

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import data_files
from report_records import PLAN, make_record

BACKEND = keras.backend.backend()
HERE = {"commit": "a" * 40, "dirty": False}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """This checkout is at a commit of its own, its source has a digest of its own."""
    monkeypatch.setattr(environment, "git_state", lambda: HERE)
    monkeypatch.setattr(environment, "code", lambda: "a" * 12)
    monkeypatch.setattr(environment, "versions", lambda backend: {"keras": "3.15.1", "jax": "1"})


def resume(tmp_path, monkeypatch, capsys, *options, **fields):
    """What a command says on standard error where one of its two cells has a record."""
    argv = arguments(tmp_path, "full,uniform", *options)
    cells = matrix.cells(app.read_config(app.parse(app.resolved(argv))))
    record = {"schema_version": 1, "cell": cells[0].id, "config": cells[0].config, "status": "ok"}
    record |= {"versions": {"keras": "3.15.1"}, "git": HERE, "code": "a" * 12, **fields}
    records.write_json(tmp_path / "out" / "runs" / f"{cells[0].id}.json", record)
    monkeypatch.setattr(runner, "run_cells", lambda cells, *others: ["ok"] * len(cells))
    assert app.main(argv, lambda folder: None) == 0
    return capsys.readouterr().err


COMMIT = {"commit": "b" * 40, "dirty": True}
OTHERS = {
    "code": (
        {"code": "b" * 12, "git": COMMIT},
        f"code of {'b' * 12} (changed) (here {'a' * 12})",
    ),
    "code in a wheel": (
        {"code": "b" * 12, "git": {"commit": None, "dirty": None}},
        f"code of no commit (here {'a' * 12})",
    ),
    "library": ({"versions": {"keras": "3.14.0"}}, "keras 3.14.0 (here 3.15.1)"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_resume_names_what_is_other_in_the_records(tmp_path, monkeypatch, capsys, kind):
    fields, what = OTHERS[kind]
    assert resume(tmp_path, monkeypatch, capsys, **fields) == (
        f"softbench: {tmp_path / 'out'}: 1 of 1 records are of other versions: {what}; "
        "their rows stay\n"
    )


def test_a_resume_says_nothing_where_nothing_is_mixed(tmp_path, monkeypatch, capsys):
    """A commit that leaves the source as it was is no other code; nor is what is not known."""
    assert resume(tmp_path, monkeypatch, capsys) == ""
    assert resume(tmp_path, monkeypatch, capsys, git=COMMIT) == ""
    only = ("--config.methods=full",)
    assert resume(tmp_path, monkeypatch, capsys, *only, code="b" * 12) == ""  # nothing runs


def test_records_from_before_the_digest_are_told_by_their_commit(tmp_path):
    records.write_json(tmp_path / "runs" / "a.json", make_record(cell="a", versions={}))
    cells = [matrix.Cell("x", {"backend": BACKEND, "task": "kernel_mse", "dataset": {}}, 1.0)]
    said = provenance.mixture(tmp_path, cells, None)
    assert said.endswith(f"other versions: code of {'f' * 12} (here {'a' * 12})")


def test_prepared_data_have_a_digest(tmp_path):
    """Of what they hold, not of where they are."""
    found = []
    for name, text in {"one": "a b", "same": "a b", "other": "b a"}.items():
        data_files.write_text_folder(tmp_path / name, train=f"{text} b\na c b\n" * 10_000)
        datasets.prepare("text", tmp_path / name, tmp_path / name / "out")
        config = {"task": "train", "dataset": {"name": "text", "label": "x"}}
        found.append(provenance.data(config, str(tmp_path / name / "out")))
        assert provenance.data(config, None) is None
    one, same, other = found
    assert one == same != other and len(one) == 12
    records.write_json(
        tmp_path / "runs" / "a.json",
        make_record(cell="a", code="a" * 12, data=one)
        | {"config": {**make_record()["config"], "dataset": {"name": "text"}}, "versions": {}},
    )
    cells = [matrix.Cell("x", {**config, "backend": BACKEND}, 1.0)]
    for place, said in {
        "same": None,
        "other": "1 of 1 records are of other versions: data of text",
    }.items():
        assert provenance.mixture(tmp_path, cells, str(tmp_path / place / "out")) == said


def test_the_page_says_that_rows_come_from_several_versions():
    def text(*fields):
        made = [make_record(seed=seed, **own) for seed, own in enumerate(fields)]
        found = pages.Page({"demo": frame.of("demo", PLAN, made)}, "demo").footer()
        return " ".join(found.split())

    mixed = text({"code": "a", "data": "c"}, {"code": "b", "data": "d"}, {})
    assert "The rows come from 2 versions of the code." in mixed
    assert "The rows come from 2 versions of ptb." in mixed
    assert "The rows come" not in text({"code": "a", "data": None}, {"code": "a"}, {})
