"""SIGKILL of drivers and of cells at random moments: nothing finished is lost, nothing is repeated.

SOFTBENCH_KILLS=100 python -m pytest -m slow -s tests/faults/test_kills.py
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from faults import arguments, cells_of, driver, untimed

from softbench.bench import records
from softbench.report import frame, pages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc"),
]
KILLS = int(os.environ.get("SOFTBENCH_KILLS", "10"))
OPTIONS = ("--config.seeds=(0,1)", "--config.epochs=12", "--config.columns=('test_perplexity',)")
OPTIONS += ("--checkpoint_minutes=0",)


def command(folder, *options):
    folder.mkdir(exist_ok=True)
    return arguments(folder, "full,uniform", *OPTIONS, *options)


def contents(folder):
    """{cell: content} of the records that say "ok"; none is damaged."""
    sound, damaged = records.read_folder(folder / "out")
    assert damaged == {}
    good = [record["cell"] for record in sound if record["status"] == "ok"]
    return {cell: stamped(folder / "out" / "runs" / f"{cell}.json") for cell in good}


def stamped(path):
    return path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()


def untimed_report(folder):
    found = {record["cell"]: untimed(record) for record in records.read_all(folder / "out")}
    return found, pages.summary(frame.read(folder / "out"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody kills: its folder, and the seconds that one of its four cells takes."""
    folder, start = tmp_path_factory.mktemp("whole"), time.monotonic()
    process = driver(command(folder))
    process.communicate()
    assert process.returncode == 0
    return folder, (time.monotonic() - start) / 4


def kill_a_driver(process, folder, seconds):
    """Ends a driver after so many seconds; returns its output, None if it has ended by itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        assert len(cells_of(folder)) <= 1
        time.sleep(0.1)
    if process.poll() is not None:
        return None
    process.kill()
    return process.communicate()[0]


def kill_cells(process, folder, most, draw):
    """Ends cells of a driver until it ends, at most so many, each `draw()` seconds after its start.

    Returns how many.
    """
    ends, kills = {}, 0
    while process.poll() is None:
        for cell in cells_of(folder):
            ends.setdefault(cell, time.monotonic() + draw())
            if time.monotonic() > ends[cell] and kills < most:
                os.kill(cell, signal.SIGKILL)
                kills, ends[cell] = kills + 1, float("inf")
        time.sleep(0.05)
    return kills


def test_killed_drivers(whole, tmp_path):
    rng, kills, resumed, rounds = random.Random(1), 0, 0, 0
    while kills < KILLS:
        folder, done = tmp_path / str(rounds), {}
        rounds += 1
        while len(done) < 4:
            process = driver(command(folder))
            text = kill_a_driver(process, folder, rng.uniform(0.2, 1.5 * whole[1]))
            kills += text is not None
            if text is None:
                text = process.communicate()[0]
                assert process.returncode == 0
            resumed += text.count("goes on in epoch")
            now = contents(folder)
            assert done.items() <= now.items()
            done = now
        process = driver(command(folder))
        assert process.communicate()[0].count("ok (kept)") == 4 and process.returncode == 0
        assert untimed_report(folder) == untimed_report(whole[0])
    print(f"{kills} kills of drivers, {rounds} matrices, {resumed} cells went on")


def test_killed_cells(whole, tmp_path):
    rng, kills, resumed, rounds = random.Random(2), 0, 0, 0
    while kills < KILLS:
        folder, done = tmp_path / str(rounds), {}
        rounds += 1
        while len(done) < 4:
            process = driver(command(folder, "--retry_failed"))
            own = kill_cells(process, folder, KILLS - kills, lambda: rng.uniform(0, 1.6 * whole[1]))
            kills += own
            text = process.communicate()[0]
            crashed = text.count(": crashed (")  # not one whose record was there already
            assert crashed <= own and process.returncode == (1 if crashed else 0)
            resumed += text.count("goes on in epoch")
            now = contents(folder)
            assert done.items() <= now.items()
            done = now
        assert untimed_report(folder) == untimed_report(whole[0])
    print(f"{kills} kills of cells, {rounds} matrices, {resumed} cells went on")
