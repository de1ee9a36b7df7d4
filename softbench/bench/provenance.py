"""Whether the rows of a folder are of one version of the code and of the data. Needs no Keras."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from softbench import datasets
from softbench.bench import environment, records
from softbench.bench.matrix import Cell
from softbench.bench.tasks import TASKS
from softbench.datasets import prepared


def data(config: Mapping, data_dir: str | None) -> str | None:
    """Returns a digest of the prepared data set of a cell's config; None if there is none."""
    if "digest" in config["dataset"]:
        return config["dataset"]["digest"]
    folder = _folder(config, data_dir)
    return None if folder is None else datasets.fingerprint(folder)


def encoder(config: Mapping, data_dir: str | None) -> dict | None:
    """Returns of which encoder the data set of a cell's config holds the states, if it does."""
    folder = _folder(config, data_dir)
    return None if folder is None else prepared.read_manifest(folder)["facts"].get("encoder")


def _folder(config: Mapping, data_dir: str | None) -> Path | None:
    """The prepared folder of a cell's data set; None if there is none."""
    if data_dir is None or not TASKS[config["task"]].reads_data:
        return None
    try:
        return datasets.check(**datasets.arguments(config["dataset"]), data_dir=data_dir)
    except (ValueError, OSError):  # the task says what is wrong
        return None


def mixture(workdir: Path, cells: list[Cell], data_dir: str | None) -> str | None:
    """What is other in the records of `workdir` than in those that `cells` will have.

    Returns:
        One line, such as "2 of 8 records are of other versions: keras 3.14.0 (here 3.15.1)"; None
        if nothing is other.
    """
    if not cells:
        return None
    here = {
        "code": environment.code(),
        "versions": {
            backend: environment.versions(backend)
            for backend in {cell.config["backend"] for cell in cells}
        },
        "data": {_name(cell.config): data(cell.config, data_dir) for cell in cells},
    }
    changes = [list(_others(record, here)) for record in records.read_all(workdir)]
    others = ", ".join(sorted({other for every in changes for other in every}))
    if not others:
        return None
    return f"{sum(map(bool, changes))} of {len(changes)} records are of other versions: {others}"


def _others(record: Mapping, here: Mapping) -> Iterator[str]:
    """What is other in a record, as far as it says."""
    if record.get("code", here["code"]) != here["code"]:
        yield "code"
    versions = here["versions"].get(record["config"].get("backend"), {})
    for name, version in record.get("versions", {}).items():
        if name in versions and version != versions[name]:
            yield f"{name} {version} (here {versions[name]})"
    name = _name(record["config"])
    digests = {record.get("data"), here["data"].get(name)} - {None}
    if len(digests) > 1:
        yield f"data of {name}"


def _name(config: Mapping) -> str | None:
    """The name of a cell's data set; of a user's data, the name of the file."""
    dataset = config["dataset"]
    return dataset["label"] if "digest" in dataset else dataset.get("name")
