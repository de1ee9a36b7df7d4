"""The same seed, backend and machine give the same record, times aside, whatever runs beside it."""

import pytest
from shipped import CONFIGS, config_path, get_config
from small_runs import BACKEND, arguments, untimed

from softbench import __main__ as command
from softbench.bench import records


def run(path, workdir, *options):
    """{cell: its record without times} of a run that ended well."""
    line = ["softbench", f"--config={path}", f"--workdir={workdir}", f"--backend={BACKEND}"]
    assert command.main([*line, *options]) == 0
    return {record["cell"]: untimed(record) for record in records.read_all(workdir)}


@pytest.mark.slow
def test_a_cell_is_the_same_again_and_alone(tmp_path):
    arguments(tmp_path, "")
    path, epochs = tmp_path / "small.py", "--config.epochs=2"
    both = run(path, tmp_path / "both", "--config.methods=full,rows", epochs)
    alone = run(path, tmp_path / "alone", "--config.methods=rows", epochs)
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
