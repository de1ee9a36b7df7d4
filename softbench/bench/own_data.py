"""Data of the user: a config's `dataset.path`, named by its content and read once.

A cell's config holds `label`, the name of the file, and `digest`, of what is in it; never the path.
What the reader makes of it is kept under `<workdir>/data`, for all cells and later runs. A path
`tfds:<name>` is a set of TensorFlow Datasets.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from softbench import commands, datasets
from softbench.bench.config import ConfigError
from softbench.bench.matrix import Cell
from softbench.datasets import catalog, own_files, prepared, tfds_files

KEY = "--config.dataset.path"


def named(config: Mapping) -> dict:
    """Returns a plain config whose data sets that have a path also have label and digest.

    Raises:
        ConfigError: for a path that is missing, of no file, or not of a data set that takes one.
    """
    config = {**config, "problems": {k: dict(v) for k, v in config["problems"].items()}}
    for section in (config, *config["problems"].values()):
        if section.get("dataset", {}).get("name", "").startswith(tfds_files.PREFIX):
            section["dataset"] = _of_tfds(section["dataset"], config["experiment"])
    sections = [problem for problem in config["problems"].values() if "dataset" in problem]
    if not sections or len(sections) < len(config["problems"]):  # the config's is read too
        sections.append(config)
    for section in sections:
        if "path" in section["dataset"]:
            section["dataset"] = _named(section["dataset"])
    return config


def _of_tfds(dataset: Mapping, experiment: str) -> dict:
    """`--config.dataset.name=tfds:...` as a path of the data set that the config is for."""
    name = experiment.removeprefix("own_")
    if name not in own_files.ABOUT:
        raise ConfigError(
            f"--config.dataset.name=tfds:... is for the configs {own_files.KNOWN}. "
            f"Received: {experiment!r}"
        )
    return {**dataset, "name": name, "path": dataset["name"]}


def _named(dataset: Mapping) -> dict:
    name, path = dataset.get("name"), dataset["path"]
    if name not in own_files.ABOUT:
        raise ConfigError(
            f"{KEY} is for the data sets {own_files.KNOWN}. Received: {name!r}, {path!r}"
        )
    if not path:
        raise ConfigError(f"{KEY} must be given: {own_files.ABOUT[name]}. Received: {path!r}")
    features = dataset.get("features", "")
    if path.startswith(tfds_files.PREFIX):
        try:
            digest = tfds_files.digest(path, name, features)
        except ValueError as error:
            raise ConfigError(f"config.dataset: {error}") from None
        label = dataset.get("label") or path.removeprefix(tfds_files.PREFIX).split(":")[0]
        return {**dataset, "label": label, "digest": digest}
    if features:
        raise ConfigError(f"config.dataset.features is for sets of TFDS. Received: {features!r}")
    source = Path(path).expanduser().resolve()
    try:
        folder = prepared.find_prepared(name, source)
        files = {} if folder else catalog.find_files(name, source)
        digest = prepared.fingerprint(folder) if folder else own_files.digest(files)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{KEY}: {error}") from None
    file = source.parent if "*" in source.name else source
    label = dataset.get("label") or file.name.lstrip(".").split(".")[0] or name
    return {**dataset, "path": str(source), "label": label, "digest": digest}


def read(cells: list[Cell], workdir: Path) -> list[Cell]:
    """Prepares the user data of the cells, if no run has; returns the cells with its folder.

    Raises:
        ConfigError: for a file that breaks its format (naming its line), or holds too little.
    """
    folders: dict[tuple, str] = {}
    result = []
    for cell in cells:
        if cell.data_dir is not None:
            dataset = cell.config["dataset"]
            key = cell.data_dir, json.dumps(dataset, sort_keys=True)
            if key not in folders:
                folders[key] = str(_read(dataset, cell.data_dir, workdir, key[1]))
            _check_length(cell, folders[key])
            cell = cell._replace(data_dir=folders[key])
        result.append(cell)
    return result


def _read(dataset: Mapping, path: str, workdir: Path, key: str) -> Path:
    """The folder that `datasets.load` takes; prints what is in it and how it was read."""
    name, source = dataset["name"], Path(path)
    options = {k: v for k, v in datasets.arguments(dataset).items() if k != "name"}
    try:
        load = catalog.split_options(name, options)[1]
        options = {k: v for k, v in options.items() if k not in load}
        if folder := prepared.find_prepared(name, source):
            prepared.check_prepared(folder, options)
            return _shown(folder, source)
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        target = workdir.resolve() / "data" / f"{dataset['label'].replace('/', '_')}-{digest}"
        if not prepared.find_prepared(name, target):
            with tempfile.TemporaryDirectory() as folder:
                if path.startswith(tfds_files.PREFIX):
                    source = tfds_files.export(path, name, dataset["features"], Path(folder))
                _prepare(name, source, target, options)
    except (ValueError, OSError, ImportError) as error:
        text = commands.with_flags(error, "--config.dataset.")
        raise ConfigError(f"{KEY}: {text}") from None
    return _shown(prepared.find_prepared(name, target), target)


def _shown(folder: Path, result: Path) -> Path:
    """The result, after a print of what a prepared folder holds."""
    print("\n".join(prepared.summary(prepared.read_manifest(folder))), flush=True)
    return result


def _prepare(name: str, source: Path, target: Path, options: Mapping) -> None:
    try:
        datasets.prepare(name, source, target, **options)
    except OSError:
        if not prepared.find_prepared(name, target):  # by another run, at the same time
            raise


def _check_length(cell: Cell, folder: str) -> None:
    """Raises a ConfigError if a text does not fill one batch of the model."""
    dataset, model = cell.config["dataset"], cell.config["model"]
    if dataset["name"] != "text" or not {"batch_size", "num_steps"} <= set(model):
        return
    facts = prepared.read_manifest(prepared.find_prepared("text", Path(folder)))["facts"]
    least = model["batch_size"] * (model["num_steps"] + 1)
    if facts["rows"]["train"] < least:
        raise ConfigError(
            f"{KEY}: the training split must hold batch_size * (num_steps + 1) = {least} words or "
            "more; a smaller --config.model.batch_size or --config.model.num_steps makes that "
            f"less. Received: {facts['rows']['train']} words in {dataset['label']}"
        )
