"""Drivers that share a work directory: no cell runs twice, and a dead driver's cells run again."""

import subprocess
import sys

import pytest
from small_runs import ENVIRON, arguments, cli, driver, mistake, records

from softbench.bench import claims
from softbench.commands import ConfigError


@pytest.mark.thorough
def test_two_drivers_run_every_cell_once(tmp_path):
    """One of the methods fails: the other driver takes that record too, though it retries."""
    argv = arguments(tmp_path, "full,broken", "--retry_failed")
    outputs = [process.communicate(timeout=100) for process in [driver(argv), driver(argv)]]
    out = "".join(text for text, _ in outputs)
    assert [errors for _, errors in outputs] == ["", ""]
    assert out.count(" s)\n") == 2 and out.count("another run has it") >= 1
    assert {name: found["status"] for name, found in records(tmp_path / "out").items()} == {
        "full": "ok",
        "broken": "crashed",
    }
    (curve,) = (tmp_path / "out").glob("partial/*.jsonl")
    assert len(curve.read_text().splitlines()) == 1
    assert not list((tmp_path / "out").glob("partial/*.claim"))


def test_a_claim_is_one_drivers(tmp_path):
    path = tmp_path / "partial" / "x.claim"
    with claims.claim(path) as first, claims.claim(path) as second:
        assert first and not second
    assert not path.exists()
    with claims.claim(path) as later:
        assert later


def test_a_claim_of_a_dead_process_is_taken_over(tmp_path):
    path = tmp_path / "x.claim"
    code = "import os, sys, pathlib; from softbench.bench import claims\n"
    code += "with claims.claim(pathlib.Path(sys.argv[1])) as ours: os._exit(9 if ours else 1)"
    ended = subprocess.run([sys.executable, "-c", code, str(path)], env=ENVIRON, check=False)
    assert ended.returncode == 9 and path.is_file()
    with claims.claim(path) as ours:
        assert ours


def test_a_claim_that_was_removed_meanwhile_is_nobodys(tmp_path, monkeypatch):
    """The one before gives it free between this one's `open` and its lock."""
    path, lock = tmp_path / "x.claim", claims.fcntl.flock
    monkeypatch.setattr(claims.fcntl, "flock", lambda *args: (lock(*args), path.unlink()))
    with claims.claim(path) as ours:
        assert not ours


def test_a_file_system_without_locks_is_one_line(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(claims.fcntl, "flock", fail)
    error = pytest.raises(ConfigError, match=r"--workdir must be on a file system with locks\. Rec")
    with error, claims.claim(tmp_path / "x.claim"):
        pass


def test_shards_are_every_kth_cell(tmp_path):
    def listed(*options):
        return cli(*arguments(tmp_path, "", "--config.seeds=(0,1,2)", "--list", *options))

    code, every, _ = listed()
    shards = [listed(f"--shard={i}/2")[1].split() for i in (1, 2)]
    assert code == 0 and len(every.split()) == 12
    assert shards == [every.split()[::2], every.split()[1::2]]


@pytest.mark.parametrize("value", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_a_wrong_shard_is_one_line(tmp_path, value):
    said = mistake(*arguments(tmp_path, "full", f"--shard={value}"))
    assert said == f"--shard must be i/k with whole numbers 1 <= i <= k. Received: {value!r}"
