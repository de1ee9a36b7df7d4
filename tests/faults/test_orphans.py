"""A cell ends with its driver, and at its timeout whatever the driver does."""

import signal
from pathlib import Path

import pytest
from small_runs import ENDLESS, arguments, cells_of, driver, records, wait_for

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc"),
]


def is_ended(child):
    """Whether a child that its parent has not asked for has ended."""
    return Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGHUP", "SIGQUIT"])
def test_a_cell_ends_with_its_driver(tmp_path, name):
    out = tmp_path / "out"
    process = driver(arguments(tmp_path, "full", ENDLESS))
    assert wait_for(lambda: list(out.glob("partial/*.jsonl")))  # it trains
    assert len(cells_of(out)) == 1
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=10)
    assert process.returncode == -getattr(signal, name)
    assert wait_for(lambda: not cells_of(out), 5)
    assert not list(out.glob("runs/*"))


def test_a_cell_holds_its_timeout_itself(tmp_path):
    out = tmp_path / "out"
    process = driver(arguments(tmp_path, "full", ENDLESS, "--config.cell_timeout_s=1.5"))
    assert wait_for(lambda: cells_of(out))
    process.send_signal(signal.SIGSTOP)
    try:
        (cell,) = cells_of(out)
        assert wait_for(lambda: is_ended(cell), 15)
    finally:
        process.send_signal(signal.SIGCONT)
    process.communicate(timeout=30)
    record = records(out)["full"]
    assert (record["status"], record["error"]) == ("timed_out", "Stopped after 1.5 s.")
