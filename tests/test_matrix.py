"""Ids of cells: the name of a record is the hash of what made it, for ever."""

import json
from pathlib import Path

import pytest
from shipped import ROOT, config_path, get_config

from softbench.bench import config as config_lib
from softbench.bench import matrix

RECORDS = sorted((ROOT / "results").glob("*/runs/*.json"))


def test_ids_of_all_committed_records_are_those_that_their_configs_have_now():
    assert len(RECORDS) > 200
    for path in RECORDS:
        record = json.loads(path.read_text())
        assert matrix.cell_id(record["config"]) == record["cell"] == path.stem


@pytest.mark.parametrize("task", ["kernel_mse", "signal_to_noise", "nce_efficiency", "wall_time"])
def test_committed_records_are_cells_of_todays_configs(task):
    """So that running a config again keeps what there is; options stood under `timing` once."""
    config = config_lib.plain(get_config(config_path(task)))
    ids = {
        cell.id
        for backend in ("tensorflow", "jax")
        for cell in matrix.cells(config | {"backend": backend})
    }
    assert ids & {path.stem for path in RECORDS}


def test_a_display_name_is_no_part_of_an_id():
    """Reports may call things as they like: the module that makes ids imports none of them."""
    source = Path(matrix.__file__).read_text()
    assert "report" not in source
