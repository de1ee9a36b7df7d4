"""Cells side by side on the nodes of a Ray cluster, each a task that runs the cell's process.

The driver alone holds the claims and writes the records. Where a node sees the work directory under
the driver's path, a cell's checkpoints lie there, and one whose worker was lost goes on from the
last of them; elsewhere it begins anew, and what it leaves is sent to the driver at its end.
"""

import os
import secrets
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import ray

from softbench.bench import checkpoints, environment, records
from softbench.bench.cell import MISTAKEN
from softbench.bench.launchers import Deadline, Ended
from softbench.bench.launchers.local import run_here
from softbench.bench.matrix import Cell

_MOST = 256  # cells that are with Ray at a time; the others wait here
_LOOK = 1.0  # seconds between two looks at a task
_SENT = ("stderr", "jsonl", "mistakes", "checkpoint")  # what a cell may leave next to its record


class Launcher:
    """See `softbench.bench.launchers`.

    Args:
        cluster: `num_cpus` and `num_gpus` of a cell, and `max_retries` after a lost worker.
    """

    is_parallel, deadline = True, Deadline()

    def __init__(self, cluster: Mapping[str, Any]) -> None:
        self._options, self._stopped = dict(cluster), threading.Event()

    def __enter__(self) -> "Launcher":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        before = signal.getsignal(signal.SIGTERM)
        # The cluster of RAY_ADDRESS, or that of this machine; one that ends with us without both.
        ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
        signal.signal(signal.SIGTERM, before)  # Ray takes it
        self._task = ray.remote(_run).options(**self._options)
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

    def each(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        """Side by side, as far as the cluster has room; the first exception ends all."""
        with ThreadPoolExecutor(_MOST) as pool:
            try:
                for future in as_completed([pool.submit(function, item) for item in items]):
                    future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def run(self, cell: Cell, job: dict) -> Ended:
        """Runs a cell's process on some node, and fetches what it leaves."""
        partial = Path(job["workdir"]) / "partial"
        kept, token = partial / f"{cell.id}.checkpoint", secrets.token_hex()
        (partial / f"{cell.id}.claim").write_text(token)
        inputs = _Inputs(job, token, environment.code(), os.getcwd())
        checkpoint = kept.read_bytes() if kept.exists() else None
        task = self._task.remote(inputs, checkpoint)
        while not ray.wait([task], timeout=_LOOK)[0]:
            if self._stopped.is_set():
                ray.cancel(task, force=True)
                raise CancelledError
        try:
            left = ray.get(task)
        except ray.exceptions.RayError as error:  # lost again and again, or no softbench there
            (partial / f"{cell.id}.stderr").write_text(f"{type(error).__name__}: {error}")
            return Ended(-signal.SIGKILL, 0.0, " with Ray")
        for kind, content in left.files.items():
            (partial / f"{cell.id}.{kind}").write_bytes(content)
        if left.record:
            path = Path(job["workdir"]) / "runs" / f"{cell.id}.json"
            records.write_json(path, left.record)
            if left.record["status"] != "crashed":  # as the cell does where it runs
                checkpoints.remove(kept)
        return left.ended


class _Inputs(NamedTuple):
    """What a task gets: the job, and what tells whether its node is as the driver's.

    Attributes:
        claim: what the driver has written into the claim: a node that reads it sees its folder.
    """

    job: dict
    claim: str
    code: str
    folder: str


class _Left(NamedTuple):
    """What a task returns: the record, and files by their kinds."""

    ended: Ended
    record: dict | None = None
    files: Mapping[str, bytes] = {}


def _run(inputs: _Inputs, checkpoint: bytes | None) -> _Left:
    """Runs a cell's process on this node, in a temporary folder; the task."""
    job, node = inputs.job, ray.util.get_node_ip_address()
    if why := _unlike(inputs):
        return _Left(Ended(MISTAKEN, 0.0), files={"mistakes": f"node {node}: {why}".encode()})
    cell, shared = Cell(**job["cell"]), Path(job["workdir"]) / "partial"
    claim = shared / f"{cell.id}.claim"
    with tempfile.TemporaryDirectory(prefix="softbench-") as folder:
        scratch = Path(folder)
        is_shared = claim.is_file() and claim.read_text() == inputs.claim
        partial = shared if is_shared else scratch / "partial"
        kept = partial / f"{cell.id}.checkpoint"
        if not is_shared:
            partial.mkdir()
            if checkpoint is not None:
                kept.write_bytes(checkpoint)
        begins = "from its checkpoint" if kept.exists() else "from the start"
        job = {**job, "workdir": folder, "partial": str(partial)}
        options = {"stdout": subprocess.DEVNULL}
        if Path(inputs.folder).is_dir():
            options["cwd"] = inputs.folder  # from which the user's modules are imported
        ended = run_here(cell, job, partial, **options)
        files = {} if is_shared else {k: partial / f"{cell.id}.{k}" for k in _SENT}
        files = {kind: path.read_bytes() for kind, path in files.items() if path.exists()}
        record = scratch / "runs" / f"{cell.id}.json"
        content = records.read(record) if record.exists() else None
    return _Left(ended._replace(note=f" on {node}{_again(begins)}"), content, files)


def _unlike(inputs: _Inputs) -> str:
    """What keeps this node from running a cell as the driver would; "" if nothing does."""
    if environment.code() != inputs.code:
        return "every node must run the same softbench. Received: other code"
    data = inputs.job["data_dir"]
    if data and not Path(data).is_dir():
        return f"the folder of the data must be there on every node. Received: no {data}"
    return ""


def _again(begins: str) -> str:
    """That the task's worker was lost before, and where the cell then began."""
    lost = ray._private.worker.global_worker.core_worker.get_current_task_attempt_number()
    return f"; its worker was lost ({lost} x), it began again {begins}" if lost else ""
