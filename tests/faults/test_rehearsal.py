"""Presets in calls of a few minutes, on one machine after the other."""

import time

import keras
import pytest
from faults import driver, untimed

from softbench.bench import accelerator, app, records


@pytest.mark.slow
def test_rehearsal_in_two_calls_is_one_without_a_break(tmp_path):
    """The second call is on another machine: it has the pack of the first alone."""
    whole, first, second, out = (tmp_path / name for name in ("whole", "1", "2", "out"))

    def rehearsed(*options):
        line = ["softbench.bench.accelerator", "--rehearse", f"--experiments={names}"]
        process = driver([*line, f"--backend={keras.backend.backend()}", *options])
        text, errors = process.communicate(timeout=600)
        return process.returncode, text + errors

    names = "scaling,xmc_scale"
    start = time.monotonic()
    code, text = rehearsed(f"--workdir={whole}", "--minutes=60")
    assert code == 0, text
    half = (time.monotonic() - start) / 120
    code, text = rehearsed(f"--workdir={first}", f"--out={out}", f"--minutes={half}")
    assert code == app.OUT_OF_TIME, text
    more = [f"--workdir={second}", f"--resume_from={out / accelerator.PACK}", f"--out={out}"]
    code, text = rehearsed(*more, "--minutes=60")
    assert code == 0 and "files taken up" in text and "(kept)" in text, text
    made = sorted(path.relative_to(whole) for path in whole.glob("*/runs/*.json"))
    assert made == sorted(path.relative_to(second) for path in second.glob("*/runs/*.json"))
    assert {path.parts[0].removesuffix("_accelerator") for path in made} == set(names.split(","))
    for path in made:
        # `steps` are times, and this memory is that of the moment.
        one, other = (untimed(records.read(folder / path)) for folder in (whole, second))
        assert {**one, "steps": 0, "resident_mb": 0} == {**other, "steps": 0, "resident_mb": 0}
