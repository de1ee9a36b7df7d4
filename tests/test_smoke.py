"""`--config.preset=smoke` of every shipped config, as a user starts it, without any data."""

import keras
import pytest
from conftest import slow_but
from shipped import CONFIGS, config_path

from softbench import __main__ as command
from softbench.bench import records


@pytest.mark.parametrize("name", slow_but(CONFIGS, "signal_to_noise"))
def test_smoke_preset_runs(name, tmp_path):
    options = ["--config.preset=smoke", f"--backend={keras.backend.backend()}"]
    line = ["softbench", f"--config={config_path(name)}", f"--workdir={tmp_path}", *options]
    code = command.main(line)
    found = records.read_all(tmp_path)
    assert found
    assert {r["cell"]: (r["status"], r["error"]) for r in found if r["status"] != "ok"} == {}
    assert code == 0
    assert all("--config.preset=smoke" in r["command"] for r in found)
