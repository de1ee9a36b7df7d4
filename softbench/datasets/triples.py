"""Knowledge-graph triples `head,relation,tail`: predict the tail among all entities.

Arrays: `<split>` int32 (N, 3) of ids (head, relation, tail), `counts`; strings `entities` and
`relations`. Shape letters: N triples, B batch.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from softbench.datasets.base import SPLITS, TripleData
from softbench.datasets.lines import by_frequency
from softbench.datasets.roles import HEAD, RELATION, TAIL, read_columns
from softbench.datasets.shuffled import ShuffledBatches
from softbench.datasets.store import Splits


def write_triples(
    store: Any,
    files: Mapping[str, Path],
    *,
    valid_fraction: float = 0.05,
    test_fraction: float = 0.05,
    split_seed: int = 0,
    columns: str = "",
    missing: str = "error",
) -> dict:
    """Reads triples into a store.

    Entities and relations are those of all files. Ids go by decreasing frequency in the training
    triples (of entities: as tails), ties alphabetically. Rows that repeat one of their file are
    left out.

    Args:
        store: see `softbench.datasets.store`.
        files: {"train", "valid", "test"}; or {"train", "test"} or {"all"}, of which `Splits` holds
            out what is missing, in exact fractions.
        valid_fraction, test_fraction, split_seed: of `Splits`.
        columns, missing: of `read_columns`.

    Returns:
        {"num_classes", "num_relations", "rows", "columns": how they were understood, "repairs"}.

    Raises:
        DataFileError: naming file and row.
    """
    import pandas as pd

    repairs, understood, tables = Counter(), "", []
    whole = "all" if "all" in files else "train"
    fractions = (0.0 if "valid" in files else valid_fraction, test_fraction * (whole == "all"))
    for role in (*SPLITS, "all"):
        if role in files:
            reading = {"columns": columns, "missing": missing, "layout": "columns"}
            rows, understood = read_columns(files[role], (HEAD, RELATION, TAIL), repairs, **reading)
            split_ids = SPLITS.index(role) if role in SPLITS else 0
            if role == whole and any(fractions):
                split_ids = Splits(split_seed, *fractions, size=len(rows))(np.arange(len(rows)))
            tables.append(rows.assign(split=split_ids))
    rows = pd.concat(tables)
    train = rows[rows["split"] == 0]
    entities = dict.fromkeys(pd.unique(pd.concat([rows["head"], rows["tail"]])), 0)
    relations = dict.fromkeys(pd.unique(rows["relation"]), 0)
    entities |= train["tail"].value_counts().to_dict()
    relations |= train["relation"].value_counts().to_dict()
    names = [by_frequency(entities), by_frequency(relations)]
    entity, link = map(pd.Index, names)
    numbers = entity, link, entity
    columns_of = (rows["head"], rows["relation"], rows["tail"])
    ids = [n.get_indexer(values) for n, values in zip(numbers, columns_of, strict=True)]
    triples = np.stack(ids, axis=1).astype(np.int32)
    for index, split in enumerate(SPLITS):
        store.append(split, triples[rows["split"] == index])
    store.append("counts", np.array([entities[name] for name in names[0]], np.int64))
    store.write_strings("entities", names[0])
    store.write_strings("relations", names[1])
    return {
        "num_classes": len(names[0]),
        "num_relations": len(names[1]),
        "rows": {split: int((rows["split"] == index).sum()) for index, split in enumerate(SPLITS)},
        "columns": understood,
        "repairs": dict(+repairs),
    }


def load_triples(store: Any, facts: Mapping, name: str) -> TripleData:
    """Makes the data set from a store that `write_triples` filled."""
    return TripleData(
        name,
        **{split: store.read(split) for split in SPLITS},
        num_classes=facts["num_classes"],
        num_relations=facts["num_relations"],
        entities=store.read_strings("entities"),
        relations=store.read_strings("relations"),
        counts=store.read("counts"),
    )


class TripleBatches(ShuffledBatches):
    """Item i is `((heads, relations), tails)`, each int32 `(B,)`; see `ShuffledBatches`.

    Evaluation: `((heads, relations), tails, mask)`, all triples in order.

    Args:
        data: a `TripleData`.
        split, batch_size, seed: of `ShuffledBatches`.
    """

    def __init__(
        self, data: TripleData, split: str = "train", batch_size: int = 256, *, seed: int = 0
    ) -> None:
        self._triples = data.split(split)
        rows = np.arange(len(self._triples))
        super().__init__(rows, split, batch_size, seed)

    def _batch(self, index: int) -> tuple:
        triples = self._triples[self._order[self._span(index)]]
        heads, relations, tails = self._padded(triples).T.copy()
        item = ((heads, relations), tails)
        return (*item, self._mask(len(triples))) if self.masked else item
