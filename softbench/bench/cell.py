"""One cell in one process: `python -m softbench.bench.cell <cell.json>`.

The file holds {"cell": {id, config, timeout_s}, "workdir", "data_dir", "command",
"checkpoint_minutes", "check": configs of all cells that are to run} and, where drafts lie elsewhere
than in the work directory, "partial", their folder. The process chooses the Keras
backend before it imports Keras, runs the task and writes the record. It ends with the driver that
started it, however that one ends, and enforces its timeout.
"""

import functools
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path

from softbench.bench import checkpoints, environment, provenance, records, tasks
from softbench.bench.job import Job, NotFinite

MISTAKEN = 142  # exit status when there are mistakes in `check`: in `<id>.mistakes`, no record
CLOSED = 141  # exit status when nobody reads the output any more: no fault of the cell's, no record
_GRACE = 2.0  # seconds after its timeout in which the driver should have ended the cell


def main(argv: list[str] | None = None) -> int:
    """Runs the cell of a job file and writes its record; 0 when the record says "ok"."""
    job_path = Path((argv or sys.argv[1:])[0])
    job = json.loads(job_path.read_text())
    cell, workdir = job["cell"], Path(job["workdir"])
    partial = Path(job.get("partial") or workdir / "partial")
    if os.getsid(0) == os.getpid():  # not started by hand
        threading.Thread(target=_end_with_driver, daemon=True).start()
    # The signal ends the process without any help of Python's.
    signal.setitimer(signal.ITIMER_REAL, min(cell["timeout_s"] + _GRACE, 1e9))
    curve_path = partial / f"{cell['id']}.jsonl"
    curve_path.unlink(missing_ok=True)
    os.environ["KERAS_BACKEND"] = cell["config"]["backend"]
    record = new_record(job)
    processors = environment.Processors()
    result: dict = {}
    if mistakes := _mistakes(job.get("check", ())):
        (partial / f"{cell['id']}.mistakes").write_text("\n".join(mistakes))
        return MISTAKEN
    checkpoint = partial / f"{cell['id']}.checkpoint"
    try:
        progress = functools.partial(records.append_line, curve_path)
        drafts = (partial, checkpoint, job["checkpoint_minutes"], cell.get("price"))
        _run_task(Job(cell["config"], job["data_dir"], result, progress, *drafts))
        record["status"] = "ok"
    except NotFinite as error:
        record |= {"status": "nan", "error": str(error)}
    except BrokenPipeError:
        os._exit(CLOSED)
    except Exception:
        record |= {"status": "crashed", "error": records.scrub(traceback.format_exc())}
    record |= result
    record["device"] = environment.device(cell["config"]["backend"])
    record["peak_memory_mb"] = environment.peak_memory_mb()
    record["processors"] = processors.used()
    record["machine"] = environment.machine()
    records.write(workdir / "runs" / f"{cell['id']}.json", record)
    if record["status"] != "crashed":  # tried again, a crashed cell goes on
        checkpoints.remove(checkpoint)
    return 0 if record["status"] == "ok" else 1


def _end_with_driver() -> None:
    """Ends this process and its children when the driver is gone.

    Standard input is a pipe that the driver holds open: its end is the end of the driver.
    """
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def new_record(job: dict) -> dict:
    """Returns the fields of a record that do not depend on how the cell of a job file runs."""
    cell, config = job["cell"], job["cell"]["config"]
    encoder = provenance.encoder(config, job["data_dir"])
    return {
        "schema_version": records.SCHEMA_VERSION,
        "cell": cell["id"],
        "experiment": config["experiment"],
        "command": job["command"],
        "config": config,
        "timeout_s": cell["timeout_s"],
        **({"search": cell["search"]} if cell.get("search") else {}),
        **({"price": cell["price"]} if cell.get("price") else {}),
        "seed": config["seed"],
        "versions": environment.versions(config["backend"]),
        "git": environment.git_state(),
        "code": environment.code(),
        "data": provenance.data(config, job["data_dir"]),
        **({"encoder": encoder} if encoder else {}),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "crashed",
        "error": None,
    }


def _mistakes(configs: list[dict]) -> list[str]:
    """What cannot be meant in the configs of cells that train; nothing if Keras cannot say."""
    trained = [config for config in configs if config["task"] == "train"]
    if not trained:
        return []
    try:
        from softbench.bench.training import checks
    except Exception:  # the cell fails with it, and says why
        return []
    return checks.mistakes(trained)


def _run_task(job: Job) -> None:
    # Imported here: these import Keras, and the backend had to be chosen first.
    for name in job.config.get("imports", ()):
        importlib.import_module(name)
    module = tasks.run_module(job.config["task"])
    import keras

    keras.utils.set_random_seed(job.config["seed"])
    module.run(job)


if __name__ == "__main__":
    sys.exit(main())
