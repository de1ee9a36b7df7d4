"""A suite in calls of a few minutes, on one machine after the other."""

import shutil
import time

import keras
import pytest
from small_runs import driver, untimed

from softbench.bench import records, suites


@pytest.mark.slow
def test_a_suite_in_two_calls_is_one_without_a_break(tmp_path):
    """The second call is on another machine: it has the pack of the first alone."""
    whole, first, second = (tmp_path / name for name in ("whole", "1", "2"))

    def called(workdir, minutes):
        line = ["softbench", "--suite=accelerator", "--config.preset=smoke"]
        line += [f"--backend={keras.backend.backend()}", f"--minutes={minutes}"]
        process = driver([*line, f"--workdir={workdir}"])
        text, errors = process.communicate(timeout=1800)
        return process.returncode, text + errors

    start = time.monotonic()
    code, text = called(whole, 60)
    assert code == 0, text
    code, text = called(first, (time.monotonic() - start) / 120)
    assert code == suites.OUT_OF_TIME and "next: softbench --suite=accelerator" in text, text
    second.mkdir()
    shutil.copy(first / "accelerator.tar.gz", second)
    code, text = called(second, 60)
    assert code == 0 and "files taken up" in text and "(kept)" in text, text
    made = sorted(path.relative_to(whole) for path in whole.glob("*/runs/*.json"))
    assert made == sorted(path.relative_to(second) for path in second.glob("*/runs/*.json"))
    assert {path.parts[0] for path in made} == set(suites.SUITES["accelerator"])
    for path in made:
        # `steps` are times, and this memory is that of the moment.
        one, other = (untimed(records.read(folder / path)) for folder in (whole, second))
        if "max_train_seconds" not in one["config"]:
            assert {**one, "steps": 0, "resident_mb": 0} == {**other, "steps": 0, "resident_mb": 0}
