"""The command `softbench submit`: records of the suite's version, checked and packed. No Keras.

    softbench submit suite_results/2026.1

A pack is one file, `softbench-<version>-<machine>.tar.gz` in that folder. In it every run has a
folder `<version>-<run>-<machine>` with its plan and records, so that it can be unpacked into
`results/` beside those of other machines. `machine` is a hash of device, processors and
memory.
"""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

import softbench
from softbench import commands
from softbench.bench import app, budget, matrix, records, suite_version, suites
from softbench.commands import ConfigError
from softbench.report import extra

_USAGE = """softbench submit suite_results/2026.1

Checks the records of a run of `softbench --suite` and packs them into one file for others."""
_MOST = 10  # records that an error names
_SCHEMA = Path(softbench.__file__).parent / "record.schema.json"


class Submission(NamedTuple):
    """The records of one machine.

    Attributes:
        machine: its id.
        records: {path in the folder or pack: record}.
    """

    machine: str
    records: dict[str, dict]


def main(argv: list[str]) -> int:
    """Runs the command line `softbench submit FOLDER`; returns the exit status."""
    line, folders = commands.divided(argv[1:])
    commands.parse(flags.FlagValues(), line, _USAGE)
    if len(folders) != 1:
        raise ConfigError(f"`softbench submit` takes one folder. Received: {folders}")
    path = pack(Path(folders[0]))
    print(f"Wrote {path}, {path.stat().st_size:,} bytes")
    return 0


def pack(folder: Path) -> Path:
    """Checks the records of a folder that `softbench --suite` wrote; returns their pack.

    Raises:
        ConfigError: with a line for each record that cannot be taken.
    """
    paths = sorted(folder.glob("*/runs/*.json"))
    if not paths:
        raise ConfigError(f"The folder must be one that --suite wrote. Received: {folder}")
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    made = _checked(contents, str(folder))
    packed = {_path(r, made.machine): contents[name] for name, r in made.records.items()}
    for run in sorted({suite_version.PROBLEMS[run_of(r)[0]].run for r in made.records.values()}):
        plan = records.plan(_suite_cells(run, "jax")[0])
        packed[f"{_folder(run, made.machine)}/{records.PLAN}"] = json.dumps(plan, indent=1).encode()
    path = folder / f"softbench-{suite_version.NAME}-{made.machine}.tar.gz"
    suites.write_pack(packed, path)
    return path


def read(path: Path) -> Submission:
    """Returns the records of a pack, checked as those of a folder are.

    Raises:
        ConfigError: for a file that is no pack, or is not as `softbench submit` wrote it.
    """
    contents = suites.read_pack(path, "A file of --merge must be one of `softbench submit`")
    plans = {name for name in contents if name.endswith(f"/{records.PLAN}")}
    made = _checked({name: contents[name] for name in contents if name not in plans}, str(path))
    expected = {_path(record, made.machine) for record in made.records.values()}
    expected |= {f"{name.partition('/')[0]}/{records.PLAN}" for name in expected}
    if other := sorted(expected ^ contents.keys()):
        rule = f"{path}: it must hold the records of machine {made.machine}, a plan for each run"
        raise ConfigError(f"{rule}, and no more. Received: {', '.join(other)}")
    return made


def _folder(run: str, machine: str) -> str:
    return f"{suite_version.NAME}-{run}-{machine}"


def _path(record: Mapping, machine: str) -> str:
    run = suite_version.PROBLEMS[run_of(record)[0]].run
    return f"{_folder(run, machine)}/runs/{record['cell']}.json"


def run_of(record: Mapping) -> tuple[str, str, str, int]:
    """Returns data set, method, backend and seed: what a machine runs once."""
    config = record["config"]
    return matrix.name(config["dataset"]), *config["methods"], config["backend"], config["seed"]


def machine_id(record: Mapping) -> str:
    """Returns the hash of device, processors and memory of a record."""
    key = json.dumps([record["device"], record["machine"]], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def described(record: Mapping) -> str:
    """Returns the device, the processors and the memory of a record, in words."""
    device, machine = record["device"], record["machine"]
    name = f"{device['name']} ({device['kind']} x {device['count']})"
    return f"{name}, {machine['cores']} processors, {machine['memory_gib']} GiB"


def _checked(contents: Mapping[str, bytes], where: str) -> Submission:
    """The records of files, if all of them can be taken."""
    made, wrong = {}, []
    for name, content in contents.items():
        try:
            made[name] = _record(content, Path(name).stem)
        except ConfigError:  # of the suite here, not of the record
            raise
        except ValueError as error:
            wrong.append(f"{where}: {name}: {error}")
    if wrong:
        more = [f"{where}: and {len(wrong) - _MOST} more"] if len(wrong) > _MOST else []
        raise ConfigError("\n".join([*wrong[:_MOST], *more]))
    machines = {machine_id(record): record for record in made.values() if "machine" in record}
    if len(machines) != 1:
        names = "; ".join(map(described, machines.values())) or "none that names it"
        raise ConfigError(f"{where}: its records must be of one machine. Received: {names}")
    for key, count in Counter(map(run_of, made.values())).items():
        if count > 1:
            rule = f"{where}: each run must be there once; move the older records away"
            raise ConfigError(f"{rule}. Received: {count} of {', '.join(map(str, key))}")
    return Submission(*machines, made)


def _record(content: bytes, cell: str) -> dict:
    """The record of a file, or a ValueError that says why it cannot be taken."""
    try:
        value = json.loads(content)
    except ValueError:
        raise ValueError("is empty, cut or no JSON") from None
    record = records.checked(value, cell)
    version = suite_version.EXPERIMENT
    if record["config"].get("experiment") != version:
        raise ValueError(f"must be of {version}. Received: {record['config'].get('experiment')!r}")
    for error in _validator().iter_errors(record):
        raise ValueError(f"must follow the schema of records: {error.json_path} {error.message}")
    _check_config(record)
    return record


@functools.cache
def _validator() -> Any:
    with extra("`softbench submit`"):
        import jsonschema
    return jsonschema.Draft202012Validator(json.loads(_SCHEMA.read_text()))


def _check_config(record: Mapping) -> None:
    """Raises a ValueError unless a record's config and price are those of a cell of the suite."""
    config, price = record["config"], record["price"]
    (method,), data = config["methods"], matrix.name(config["dataset"])
    problem = suite_version.PROBLEMS.get(data)
    whole, cells = _suite_cells(problem.run, config["backend"]) if problem else ({}, {})
    if (data, method) not in cells:
        rule = "must be of a data set and a method of the suite"
        raise ValueError(f"{rule}. Received: {data}, {method}")
    cell = cells[data, method]
    seeded = cell._replace(config={**cell.config, "seed": record["seed"]})
    wanted = budget.priced(seeded, whole, price)
    fields = sorted({*wanted.config, *config})
    differs = [field for field in fields if wanted.config.get(field) != config.get(field)]
    differs += ["reference of its price"] * (wanted.price != price)
    if differs:
        raise ValueError(f"must have the config of the suite. Received: other {', '.join(differs)}")
    if record["cell"] != wanted.id:
        raise ValueError(f"must have the name that follows from its config. Received: {wanted.id}")
    if price["device"] != record.get("device", price["device"]):
        raise ValueError(f"must have a price of its device. Received: {price['device']}")


@functools.cache
def _suite_cells(run: str, backend: str) -> tuple[dict, dict[tuple[str, str], matrix.Cell]]:
    """The config of a run, and {(data set, method): its cell of seed 0}."""
    line = ["softbench", *suite_version.lines_of_runs()[run].split(), f"--backend={backend}"]
    config = app.configured(line)
    made = {}
    for cell in suite_version.cells(run, config):
        (method,) = cell.config["methods"]
        made[matrix.name(cell.config["dataset"]), method] = cell
    return config, made
