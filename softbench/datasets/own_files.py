"""A user's files as a data set: which of them is what, and their digest."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

# Names of splits, and of files without what follows the first dot, and the split that they are.
ROLES = {"train": "train", "test": "test"}
ROLES |= dict.fromkeys(("valid", "validation", "val", "dev"), "valid")
ABOUT = {
    "text": "your own text: a file, a folder of files, or a folder with train.txt and test.txt "
    "(and valid.txt, if there is one)",
    "interactions": "your own interactions: a file with user, item and, maybe, time in a row "
    "(CSV, JSON lines, Parquet), or with a user and all of the user's items in a line",
    "interaction_shards": "a pattern of your own Parquet files, 'folder/*.parquet', with "
    "columns of the numbers of users and of items",
    "xmc_shards": "a pattern of your own Parquet files, 'folder/*.parquet', with columns of lists: "
    "of features' ids, of their values, and of labels",
    "xmc": "your own rows in the format of the XMC repository: a file, or a folder with train.txt "
    "and test.txt (and valid.txt, if there is one)",
    "triples": "your own triples, head, relation and tail in a row: a file, or a folder with "
    "train.txt and test.txt (and valid.txt, if there is one)",
}
_SHARDS = ("interaction_shards", "xmc_shards")  # `interactions` and `xmc` with a pattern
_ONE_FILE = ("interactions", *_SHARDS)
KNOWN = ", ".join(sorted(set(ABOUT) - set(_SHARDS)))


def own_files(name: str, path: Path) -> dict[str, Path]:
    """Returns {role: path}: of a file {"all"}, of a folder {"train", "valid", "test"}.

    Of shards the roles are their numbers in the order of their names.

    A folder without train and test is, as a text, one corpus of all its files.

    Args:
        name: of `ABOUT`.
        path: the user's file or folder.

    Raises:
        FileNotFoundError: naming what the path must be.
    """
    if name in _SHARDS and (paths := sorted(path.parent.glob(path.name))):
        return {f"{number:06}": file for number, file in enumerate(paths)}
    if path.is_file():
        return {"all": path}
    if path.is_dir() and name not in _ONE_FILE:
        files = {}
        for file in sorted(path.iterdir()):
            role = ROLES.get(file.name.split(".")[0].lower())
            if role:
                files.setdefault(role, file)
        if "train" in files and "test" in files:
            return {role: files[role] for role in ("train", "valid", "test") if role in files}
        if name == "text":
            return {"all": path}
    raise FileNotFoundError(f"`path` must be {ABOUT[name]}. Received: {str(path)!r}")


def digest(files: Mapping[str, Path]) -> str:
    """Returns 12 digits that depend on what the files hold and what they are for."""
    combined = hashlib.sha256()
    for role, path in files.items():
        members = sorted(path.iterdir()) if path.is_dir() else [path]
        for member in members:
            if member.is_file() and not member.name.startswith("."):
                with member.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                combined.update(f"{role} {content}\n".encode())
    return combined.hexdigest()[:12]
