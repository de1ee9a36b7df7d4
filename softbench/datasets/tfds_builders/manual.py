"""What the builders share: names of splits, and files that a person has put into a folder."""

from pathlib import Path

from softbench.datasets import catalog

SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # TFDS' names, softbench's


def instructions(*names: str) -> str:
    """Returns the manual-download instructions of data sets of the catalog."""
    lines = ["Put the files into the manual folder under these names (or with .gz, .xz, .bz2):"]
    for name in names:
        entry = catalog.ENTRIES[name]
        paths = ", ".join(choices[0] for choices in entry.files.values())
        lines.append(f"* {name}: {paths}; from {entry.about}")
    return "\n".join(lines)


def manual_files(name: str, folder: object) -> dict[str, Path]:
    """Returns {role: path} of a data set's files in the manual folder."""
    return catalog.find_files(name, Path(str(folder)))
