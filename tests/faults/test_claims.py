"""Drivers that share a work directory: no cell runs twice, and a dead driver's cells run again."""

import json
import os
import subprocess
import sys
import time

import pytest
from small_runs import ENVIRON, arguments, cli, driver, mistake, records

from softbench.bench import claims


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
    first = claims.claim(path)
    assert claims.claim(path) is None and first.is_held()
    first.release()
    second = claims.claim(path)
    assert second.is_held()


def test_a_claim_of_a_dead_process_is_taken_over(tmp_path):
    path = tmp_path / "x.claim"
    code = "import sys, pathlib; from softbench.bench import claims; "
    code += "claims.claim(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(path)], env=ENVIRON, check=True)
    assert path.is_file()
    if json.loads(path.read_text())["host"] is None:
        pytest.skip("processes cannot be seen here: the beat alone decides")
    assert claims.claim(path).is_held()


@pytest.mark.parametrize("content", ["", '{"host": "elsewhere", "process": [1, "2"]}'])
def test_a_claim_without_a_beat_is_taken_over(tmp_path, content):
    path = tmp_path / "x.claim"
    path.write_text(content)
    os.utime(path, (time.time() - 50,) * 2)
    assert claims.claim(path) is None
    os.utime(path, (time.time() - 70,) * 2)
    assert claims.claim(path).is_held()


def test_who_has_lost_a_claim_knows_and_leaves_the_other_its_own(tmp_path):
    path = tmp_path / "x.claim"
    lost = claims.claim(path)
    os.utime(path, (time.time() - 70,) * 2)
    taken = claims.claim(path)
    assert taken.is_held() and not lost.is_held()
    lost.release()
    assert taken.is_held()


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
