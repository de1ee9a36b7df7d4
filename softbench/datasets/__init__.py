"""Data sets by name. Nothing here imports Keras, a backend or TensorFlow."""

import inspect
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softbench.datasets import catalog, prepared, ptb
from softbench.datasets.bags import BagBatches, padded_labels
from softbench.datasets.base import (
    SPLITS,
    InteractionData,
    ItemLists,
    LanguageData,
    MultiLabelData,
    TripleData,
)
from softbench.datasets.catalog import find_files
from softbench.datasets.histories import (
    InteractionBatches,
    PackedHistories,
    Queries,
    history_inputs,
)
from softbench.datasets.prepared import fingerprint, prepare
from softbench.datasets.sequences import (
    CarriedBatches,
    EvaluationBatches,
)
from softbench.datasets.shards import BagShards, InteractionShards, row_groups
from softbench.datasets.shuffled import Numbered, Prefetched
from softbench.datasets.store import MemoryStore
from softbench.datasets.synthetic_interactions import synthetic_interactions
from softbench.datasets.synthetic_language import synthetic_language
from softbench.datasets.synthetic_triples import synthetic_triples
from softbench.datasets.synthetic_xmc import synthetic_xmc
from softbench.datasets.triples import TripleBatches

__all__ = [
    "SPLITS",
    "BagBatches",
    "BagShards",
    "CarriedBatches",
    "EvaluationBatches",
    "InteractionBatches",
    "InteractionData",
    "InteractionShards",
    "ItemLists",
    "LanguageData",
    "MultiLabelData",
    "Numbered",
    "PackedHistories",
    "Prefetched",
    "Queries",
    "TripleBatches",
    "TripleData",
    "arguments",
    "check",
    "fingerprint",
    "history_inputs",
    "load",
    "padded_labels",
    "prepare",
    "row_groups",
    "synthetic_interactions",
    "synthetic_language",
    "synthetic_triples",
    "synthetic_xmc",
]

GENERATED = {
    "synthetic_interactions": synthetic_interactions,
    "synthetic_language": synthetic_language,
    "synthetic_triples": synthetic_triples,
    "synthetic_xmc": synthetic_xmc,
}
_OF_RECORDS = ("label", "digest", "features")
# Counted, but nothing of the data was changed by them.
_HARMLESS = ("rows_without_label", "rows_without_feature", "crlf_lines")


def arguments(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Of a config's data set: what `load` and `check` take of it, without what is for records."""
    return {key: value for key, value in dataset.items() if key not in _OF_RECORDS}


def load(
    name: str, *, data_dir: str | Path | None = None, seed: int = 0, **options: Any
) -> LanguageData | MultiLabelData | TripleData | InteractionData:
    """Loads a data set by its registry name.

    Args:
        name: of `GENERATED`: "synthetic_language", "synthetic_interactions", ...; or of
            `catalog.ENTRIES`: "ptb", "eltec-hun", "wd50k", "xmc/delicious", "beauty", ...;
            or "states/<name>", see `datasets.states`.
        data_dir: folder of a data set that is read from files, or a root of prepared folders (see
            `prepare`); of "text", "xmc", "triples" and "interactions" your file or folder;
            generated ones ignore it. Without it "ptb" is in a cache, see `ptb.cached`.
        seed: of a generated data set; real ones ignore it.
        **options: sizes of a generated set, such as `num_classes` or `num_train`; for the others
            the options of their reader, such as `valid_fraction` or `first_label`.

    Raises:
        ValueError: for an unknown name, or options that the data set does not take.
        FileNotFoundError: if `data_dir` does not hold the data set.
    """
    folder = check(name, data_dir=data_dir, **options)
    if name in GENERATED:
        return GENERATED[name](seed=seed, **options)
    if folder is not None:
        return prepared.load_prepared(name, folder, options)
    if data_dir is None:  # of Penn Treebank alone
        data_dir = ptb.cached(options.get("verify", True))
    write, chosen = catalog.split_options(name, options)
    kind = catalog.KINDS[catalog.find(name).kind]
    store = MemoryStore()
    facts = kind.write(store, find_files(name, Path(data_dir)), **write)
    changed = {key: n for key, n in facts["repairs"].items() if key not in _HARMLESS}
    if changed:
        warnings.warn(f"{name}: repaired while reading: {changed}", stacklevel=2)
    return kind.load(store, facts, name, **chosen)


def check(name: str, *, data_dir: str | Path | None = None, **options: Any) -> Path | None:
    """Checks that `load` can begin: the name, its options, and that the files are there.

    Returns:
        The folder of a prepared data set, or None.

    Raises:
        As `load`.
    """
    if name in GENERATED:
        allowed = [k for k in inspect.signature(GENERATED[name]).parameters if k != "seed"]
        unknown = sorted(set(options) - set(allowed))
        if unknown:
            raise ValueError(
                f"`sizes` of {name!r} must be among: {', '.join(allowed)}. Received: {unknown}"
            )
        return None
    entry = catalog.find(name)
    if entry is None:
        names = ", ".join(sorted([*GENERATED, *catalog.ENTRIES]))
        raise ValueError(f"`name` must be one of: {names}. Received: {name!r}")
    catalog.split_options(name, options)
    if data_dir is None:
        if name != "ptb":  # which can be downloaded
            raise FileNotFoundError(
                f"`data_dir` must be given for {name!r}: {entry.about}. Received: None"
            )
        return None
    folder = prepared.find_prepared(name, Path(data_dir))
    if folder is None:
        find_files(name, Path(data_dir))
    return folder
