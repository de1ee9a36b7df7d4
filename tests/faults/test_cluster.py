"""Cells on a Ray cluster: the records of a run here, also where a node dies under them."""

import contextlib
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import small_runs
from small_runs import ENDLESS, arguments, cells_of, driver, untimed, wait_for

from softbench.bench import app, config, matrix, records
from softbench.bench.config import ConfigError

# Two nodes, each with room for one cell; small stores and no dashboard.
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
CELLS = "--config.seeds=(0,1,2,3,4,5,6,7,8,9,10,11)"


def test_a_launcher_that_cannot_run_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "softbench.bench.launchers.ray", raising=False)
    line = [*arguments(tmp_path, "full"), "--list"]
    with pytest.raises(ConfigError, match=r"pip install 'softbench\[ray\]'"):
        app.main([*line, "--launcher=ray"], print)
    with pytest.raises(ConfigError, match=r"must be one of: local, ray\. Received: 'slurm'"):
        app.main([*line, "--launcher=slurm"], print)
    with pytest.raises(ConfigError, match=r"0 or more.*-1"):
        app.main([*line, "--config.cluster.max_retries=-1"], print)
    wrong = config.experiment("x", method_table={"full": {}}, cluster={"cpus": 1})
    with pytest.raises(ConfigError, match=r"cluster may set num_cpus, .*\['cpus'\]"):
        config.check(config.plain(wrong))


@pytest.fixture
def cluster(monkeypatch):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # on a busy machine, cells would starve
    found = Cluster(initialize_head=True, head_node_args=NODE)
    yield found
    found.shutdown()


def started(tmp_path, name, *options):
    (tmp_path / name).mkdir()
    return driver(arguments(tmp_path / name, "full,uniform", CELLS, *options))


def found(tmp_path, name):
    rows = records.read_all(tmp_path / name / "out")
    assert {row["status"] for row in rows} == {"ok"}
    return {row["cell"]: untimed(row) for row in rows}


def parent(process):
    """The id of a process's parent."""
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def cell_on(node, folder):
    """The id of the cell that runs on a node, whose raylet started its worker; None without one."""
    raylet = node.all_processes["raylet"][0].process.pid
    for cell in cells_of(folder):
        with contextlib.suppress(OSError):
            if parent(parent(cell)) == raylet:
                job = Path(f"/proc/{cell}/cmdline").read_text().split("\0")[3]
                return Path(job).name.removesuffix(".job.json")
    return None


@pytest.mark.slow
def test_a_node_dies_under_a_matrix_of_24_cells(cluster, tmp_path, monkeypatch):
    """It has a cell that wrote a checkpoint: that cell goes on from there on another node."""
    node = cluster.add_node(**NODE)
    monkeypatch.setitem(small_runs.ENVIRON, "RAY_ADDRESS", cluster.address)
    longer = "--config.epochs=6", "--checkpoint_minutes=0", "--config.cell_timeout_s=900"
    process = started(tmp_path, "cluster", *longer, "--launcher=ray")
    partial = tmp_path / "cluster" / "out" / "partial"
    runs = partial.parent / "runs"

    def is_due():
        dying = cell_on(node, partial) if len(list(runs.glob("*.json"))) >= 6 else None
        return dying if dying and (partial / f"{dying}.checkpoint").exists() else None

    dying = wait_for(is_due, 600)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**NODE)
    out, errors = process.communicate(timeout=1200)
    print(out, errors)
    lines = [line for line in out.splitlines() if line.startswith("[")]
    assert process.returncode == 0 and len(lines) == 24 and all(": ok (" in x for x in lines)
    (again,) = (line for line in lines if "its worker was lost (1 x)" in line)
    assert dying in again and "began again from its checkpoint" in again
    left = {path.suffix for path in partial.iterdir() if not path.name.startswith(".")}
    assert left == {".stderr", ".jsonl"}
    started(tmp_path, "here", *longer).communicate(timeout=1200)
    here = found(tmp_path, "here")
    assert len(here) == 24 and found(tmp_path, "cluster") == here


@pytest.mark.slow
def test_a_node_that_does_not_see_the_work_directory(cluster, tmp_path, monkeypatch, capfd):
    """What its cell leaves comes back, the checkpoint too, from which a second try goes on."""
    from softbench.bench.launchers import ray as module

    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    inputs = module._Inputs  # a claim that is not the one that lies there: another file system
    monkeypatch.setattr(module, "_Inputs", lambda job, claim, *rest: inputs(job, "other", *rest))
    line = arguments(tmp_path, "full", ENDLESS, "--launcher=ray", "--checkpoint_minutes=0")
    partial = tmp_path / "out" / "partial"
    where = Path(tempfile.gettempdir())
    (cell,) = matrix.cells(app.read_config(app.parse(line)))

    def points():
        found = list(where.glob(f"softbench-*/partial/{cell.id}.jsonl"))
        return len(records.read_curve(found[0])) if found else 0

    def killed(least):
        """Kills the cell when its curve has more points."""
        wait_for(lambda: points() > least, 300)
        os.kill(*cells_of(cell.id), signal.SIGKILL)

    def curve(least):
        with ThreadPoolExecutor(1) as pool:
            kill = pool.submit(killed, least)
            assert app.main([*line, "--retry_failed"], lambda workdir: None) == 1
            kill.result()
        assert "crashed (" in capfd.readouterr().out
        left = {path.suffix for path in partial.iterdir() if not path.name.startswith(".")}
        assert left == {".stderr", ".jsonl", ".checkpoint"}
        (record,) = records.read_all(tmp_path / "out")
        return record["curve"]

    first = curve(3)
    second = curve(len(first) + 3)  # in whose first points are the first run's times
    assert second[: len(first) - 1] == first[:-1]
