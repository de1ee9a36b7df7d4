"""The version of the suite that `softbench/suite.toml` fixes: its runs and problems. No Keras."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

import softbench
from softbench import datasets
from softbench.bench import matrix
from softbench.bench.config import ConfigError
from softbench.datasets import catalog, lines, prepared, ptb


class Run(NamedTuple):
    """A config and what is set in it; see `suite.toml`."""

    config: str
    methods: str
    budget: str
    sha256: str


class Problem(NamedTuple):
    """A data set of a run, and the quality that is to be reached; see `suite.toml`."""

    run: str
    measure: str
    target: float
    records: list[str]
    data: dict[str, str]


_FIXED = tomllib.loads((Path(softbench.__file__).parent / "suite.toml").read_text())
NAME: str = _FIXED["version"]
EXPERIMENT = f"suite-{NAME}"  # of the configs of its cells: those of another version are others
RUNS = {name: Run(**fields) for name, fields in _FIXED["runs"].items()}
PROBLEMS = {name: Problem(**fields) for name, fields in _FIXED["problems"].items()}
_METHODS = "--config.methods="
_OPEN = ("--config.seeds=", _METHODS)  # what a command line may choose itself


def lines_of_runs() -> dict[str, str]:
    """Returns {run: its flags}."""
    fixed = f"--config.experiment={EXPERIMENT} --config.epochs={_FIXED['epochs']}"
    return {
        name: f"--config={run.config} {fixed} --config.budget={run.budget} "
        f"--config.methods={run.methods}"
        for name, run in RUNS.items()
    }


def chosen(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the flags that go to every run, and {run: its methods}.

    Of `--config.methods`, which may name methods of several runs, a run has those that are its own.

    Raises:
        ConfigError: for flags that would change what the version fixes, or an unknown method.
    """
    others = [a for a in arguments if a.startswith("--config") and not a.startswith(_OPEN)]
    if others:
        raise ConfigError(
            f"--suite={NAME} fixes its configs but for --config.seeds and --config.methods. "
            f"Received: {' '.join(others)}"
        )
    texts = [a for a in arguments if a.startswith(_METHODS)]
    names = texts[-1].removeprefix(_METHODS).split(",") if texts else []
    methods = {name: run.methods.split(",") for name, run in RUNS.items()}
    unknown = sorted(set(names).difference(*methods.values()))
    if unknown:
        every = ", ".join(dict.fromkeys(name for own in methods.values() for name in own))
        raise ConfigError(f"--config.methods must name methods of {every}. Received: {unknown}")
    passed = [argument for argument in arguments if argument not in texts]
    wanted = {run: [m for m in own if m in names or not names] for run, own in methods.items()}
    return passed, {run: ",".join(own) for run, own in wanted.items()}


def cells(run: str, config: Mapping) -> list[matrix.Cell]:
    """Returns the cells of a run without a budget's steps: all its methods, of seed 0.

    Args:
        run: of `RUNS`.
        config: plain and checked, of the run's flags.

    Raises:
        ConfigError: if the config is not as it was when the version was made.
    """
    made = matrix.cells({**config, "methods": RUNS[run].methods, "seeds": [0]})
    digest = sha256_of(made)
    if digest != RUNS[run].sha256:
        raise ConfigError(
            f"--suite={NAME} needs the config {RUNS[run].config} that it was made with, of sha256 "
            f"{RUNS[run].sha256}. Received: {digest}"
        )
    return made


def sha256_of(made: list[matrix.Cell]) -> str:
    """Returns a digest of the configs of cells, the same on every backend."""
    plain = [{key: v for key, v in cell.config.items() if key != "backend"} for cell in made]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def lacking(made: list[matrix.Cell], data_dir: str | None) -> str:
    """Returns why the data at hand do not allow cells; "" if they do."""
    chosen = {matrix.name(cell.config["dataset"]): cell.config["dataset"] for cell in made}
    for name, dataset in chosen.items():
        try:
            digests = data_sha256(datasets.arguments(dataset), data_dir)
        except (ValueError, OSError) as error:
            return f"{name}: {error}"
        for part, digest in PROBLEMS[name].data.items():
            if digests.get(part) != digest:
                rule = f"{name}, {part}: the data must have sha256 {digest}"
                return f"{rule}. Received: {digests.get(part)}"
    return ""


def data_sha256(options: dict, data_dir: str | None) -> dict[str, str]:
    """Returns {part: sha256 of what is read} of a data set.

    Args:
        options: of `softbench.datasets.load`.
        data_dir: as there.

    Raises:
        ValueError, OSError: as there, if it is not there.
    """
    name, folder = options["name"], datasets.check(**options, data_dir=data_dir)
    if name in datasets.GENERATED:
        return {"generated": _of_arrays(datasets.load(**options))}
    if folder is not None:
        sources = prepared.read_manifest(folder)["sources"]
        return {part: file["sha256"] for part, files in sources.items() for file in files.values()}
    digests = {}
    for part, path in catalog.find_files(name, Path(data_dir or ptb.cached())).items():
        with lines.open_bytes(path) as file:
            digests[part] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _of_arrays(data: tuple) -> str:
    """Of the whole numbers of a generated set: processors may round its weights differently."""
    digest = hashlib.sha256()
    for value in data:
        for array in (value.indices, value.indptr) if sp.issparse(value) else (value,):
            if isinstance(array, np.ndarray):
                digest.update(array.astype("<i8").tobytes())
    return digest.hexdigest()
