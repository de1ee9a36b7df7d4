"""The same seed, backend and machine give the same record, times aside, whatever runs beside it."""

import keras
import pytest
from shipped import CONFIGS, config_path, get_config

from softbench import __main__ as command
from softbench.bench import records

TIMES = {
    "compile_seconds",
    "evaluation_seconds",
    "examples_per_second",
    "fit_seconds",
    "head_ms",
    "peak_memory_mb",
    "processors",
    "resident_mb",
    "seconds",
    "started_at",
    "step_ms",
}
SMALL = """
from softbench.bench.config import experiment
from softbench.bench.methods import SMALL_LABELS, SMALL_TIMING, full, sampled, with_row_updates

def get_config():
    uniform = sampled("uniform", 8)
    return experiment(
        "determinism",
        dataset={**SMALL_LABELS, "num_train": 300},
        model={"name": "bag", "dim": 4, "batch_size": 100},
        optimizer={"name": "adam", "learning_rate": 0.01},
        method_table={
            "full": full(),
            "rows": with_row_updates(uniform, {"name": "adagrad", "learning_rate": 0.1}),
        },
        timing=SMALL_TIMING,
        epochs=2,
    )
"""


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in TIMES}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def run(path, workdir, *options):
    """{cell: its record without times and command line} of a run that ended well."""
    backend = f"--backend={keras.backend.backend()}"
    line = ["softbench", f"--config={path}", f"--workdir={workdir}", backend, *options]
    assert command.main(line) == 0
    found = {record["cell"]: without_times(record) for record in records.read_all(workdir)}
    return {cell: record | {"command": None} for cell, record in found.items()}


@pytest.mark.thorough
def test_a_cell_is_the_same_again_and_alone(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    both = run(path, tmp_path / "both")
    alone = run(path, tmp_path / "alone", "--config.methods=rows")
    assert len(both) == 2 and len(alone) == 1
    for cell, record in alone.items():
        assert record["curve"][0]["valid_nll"] != record["curve"][1]["valid_nll"]
        assert record == both[cell]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_smoke_presets_are_the_same_again(name, tmp_path):
    """Twice all methods of the preset (of the quickstart: all there are), then the last alone."""
    chosen, every = ["--config.preset=smoke"], []
    if name == "quickstart":
        every = list(get_config(config_path(name)).method_table)
        chosen.append(f"--config.methods={','.join(every)}")
    first = run(config_path(name), tmp_path / "first", *chosen)
    again = run(config_path(name), tmp_path / "again", *chosen)
    assert first and first == again
    if every:
        options = [chosen[0], f"--config.methods={every[-1]}"]
        alone = run(config_path(name), tmp_path / "alone", *options)
        assert alone and alone.items() <= first.items()
