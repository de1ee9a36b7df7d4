"""Records say what other programs used of the processors; pages say whose clock was shared."""

import os
import time

import pytest
from report_records import make_record, write_results

from softbench.bench import environment
from softbench.report import frame, pages


def stat(path, busy, idle):
    """A file in the format of /proc/stat, in seconds."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = [busy * ticks / 2, 0, busy * ticks / 2, idle * ticks, 0, 0, 0, 0, 5, 5]
    path.write_text(f"cpu  {' '.join(str(int(x)) for x in fields)}\ncpu0 1 2 3\n")
    return path


def used(tmp_path, monkeypatch, busy, own, wall):
    """What is said after `wall` seconds of which processors were busy, and this process was."""
    clock = {"elapsed": 100.0, "user": 3.0}

    class Times:
        elapsed = property(lambda self: clock["elapsed"])
        user = property(lambda self: clock["user"])
        system = children_user = children_system = 0.0

    monkeypatch.setattr(environment.os, "times", Times)
    monkeypatch.setattr(environment.os, "cpu_count", lambda: 2)
    processors = environment.Processors(stat(tmp_path / "stat", 50, 60))
    clock |= {"elapsed": 100.0 + wall, "user": 3.0 + own}
    stat(tmp_path / "stat", 50 + busy, 60 + 2 * wall - busy)
    return processors.used()


def test_what_others_used_is_what_was_busy_less_what_is_ours(tmp_path, monkeypatch):
    found = used(tmp_path, monkeypatch, busy=18, own=12, wall=10)
    assert found == {"count": 2, "own": 1.2, "others": 0.6}
    # ticks are coarse: never below nothing
    assert used(tmp_path, monkeypatch, busy=11, own=12, wall=10)["others"] == 0.0


def test_a_system_that_does_not_count(tmp_path):
    assert environment.Processors(tmp_path / "none").used() is None
    (tmp_path / "odd").write_text("nonsense\n")
    assert environment.Processors(tmp_path / "odd").used() is None


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="a file of Linux")
def test_own_work_is_counted():
    """Whatever else runs: the processor time that the process itself counts, over the time."""
    processors, wall, own = environment.Processors(), time.perf_counter(), time.process_time()
    while time.process_time() < own + 0.5:
        pass
    found = processors.used()
    own, wall = time.process_time() - own, time.perf_counter() - wall
    assert found["own"] == pytest.approx(own / wall, abs=0.1)


@pytest.mark.parametrize(
    ("own", "others", "shared"),
    [(1.9, 0.05, False), (1.0, 0.4, False), (1.0, 0.9, True), (0.3, 1.6, True)],
)
def test_a_page_names_the_rows_of_a_shared_clock(tmp_path, own, others, shared):
    """Others count where less than half a processor was left for them and for the row."""
    processors = {"count": 2, "own": own, "others": others}
    known = make_record(seed=1, processors=processors, cell="ptb-lstm_small-full-s1-jax-0")
    unknown = make_record(seed=0), make_record(seed=2, processors=None, cell="another")
    write_results(tmp_path, known, *unknown)
    found = frame.read(tmp_path)
    text = pages.Page({found.name: found}, found.name).footer()
    assert ("Other programs slowed 1 of 3 runs; times are of the others" in text) == shared
    assert found.runs.set_index("cell")["shared_clock"]["ptb-lstm_small-full-s1-jax-0"] == shared
