"""Hidden states of a frozen encoder, dense features with one label each: stored, read as maps.

Arrays of each split: `<split>_features` float32 (N, d) and `<split>_labels` int32 (N,); `counts`.
The task "states" of the harness writes them. Shape letters: N examples, d features, n classes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from softbench.datasets.base import SPLITS, MultiLabelData

PREFIX = "states/"
ABOUT = "written by softbench --config=states, from a data set and an encoder"


def write_states(store: Any, files: Mapping[str, Path]) -> dict:
    """Raises a ValueError: states are made by training, not read from files."""
    raise ValueError(
        f"`data_dir` must hold a prepared folder, {ABOUT}. Received: {sorted(files.values())}"
    )


def load_states(store: Any, facts: Mapping, name: str) -> MultiLabelData:
    """Makes the data set from a store; the features are dense arrays."""
    matrices, n = [], facts["num_classes"]
    for split in SPLITS:
        labels = store.read(f"{split}_labels")
        ends, ones = np.arange(len(labels) + 1), np.ones(len(labels), np.float32)
        matrices.append(store.read(f"{split}_features"))
        matrices.append(sp.csr_matrix((ones, labels, ends), (len(labels), n)))
    counts = store.read("counts")
    return MultiLabelData(
        name, *matrices, num_features=facts["num_features"], num_classes=n, counts=counts
    )
