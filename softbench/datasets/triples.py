"""Knowledge-graph triples `head,relation,tail`: predict the tail among all entities.

Arrays: `<split>` int32 (N, 3) of ids (head, relation, tail), `counts`; strings `entities` and
`relations`. Shape letters: N triples, B batch.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from softbench.datasets.base import SPLITS, TripleData
from softbench.datasets.lines import by_frequency, fail, filled_lines
from softbench.datasets.shuffled import ShuffledBatches
from softbench.datasets.store import Splits

_BLOCK = 65_536


def read_triples(path: Path, repairs: Counter) -> Iterator[tuple[str, str, str]]:
    """Yields the triples of a file, one a line, separated by commas or by tabs.

    Blank lines (`blank_lines`) and carriage returns (`crlf_lines`) are counted in `repairs`. (Of
    statements with qualifiers, as in the full WD50K, the first three fields are the triple; such
    files are refused, so that nothing is lost unseen.)

    Raises:
        DataFileError: for an empty file, or a line that is not three names.
    """
    for line, text in filled_lines(path, repairs, "the file must hold triples."):
        fields = [field.strip() for field in text.split("\t" if "\t" in text else ",")]
        if len(fields) != 3 or not all(fields):
            fail(path, line, "a line must be `head,relation,tail`.", text)
        yield tuple(fields)


def write_triples(
    store: Any,
    files: Mapping[str, Path],
    *,
    valid_fraction: float = 0.05,
    test_fraction: float = 0.05,
    split_seed: int = 0,
) -> dict:
    """Reads triples into a store.

    Entities and relations are those of all files. Ids go by decreasing frequency in the training
    triples (of entities: as tails), ties alphabetically.

    Args:
        store: see `softbench.datasets.store`.
        files: {"train", "valid", "test"}; or {"train", "test"} or {"all"}, of which `Splits` holds
            out what is missing, in exact fractions.
        valid_fraction, test_fraction, split_seed: of `Splits`.

    Returns:
        {"num_classes", "num_relations", "rows", "repairs"}.
    """
    splits = _held_out(files, split_seed, valid_fraction, test_fraction)
    repairs, tails, relations = Counter(), Counter(), Counter()
    for split, (head, relation, tail) in _by_split(files, splits, repairs):
        tails.update({head: 0, tail: int(split == "train")})
        relations[relation] += split == "train"
    names = [by_frequency(tails), by_frequency(relations)]
    entity, link = ({name: i for i, name in enumerate(ranked)} for ranked in names)
    rows = dict.fromkeys(SPLITS, 0)
    for split in SPLITS:
        store.append(split, np.zeros((0, 3), np.int32))
    triples = _by_split(files, splits, Counter())
    while block := list(islice(triples, _BLOCK)):
        ids = np.array([(entity[h], link[r], entity[t]) for _, (h, r, t) in block], np.int32)
        of = np.array([split for split, _ in block])
        for split in SPLITS:
            store.append(split, ids[of == split])
            rows[split] += int((of == split).sum())
    store.append("counts", np.array([tails[name] for name in names[0]], np.int64))
    store.write_strings("entities", names[0])
    store.write_strings("relations", names[1])
    return {
        "num_classes": len(names[0]),
        "num_relations": len(names[1]),
        "rows": rows,
        "repairs": dict(+repairs),
    }


def _held_out(
    files: Mapping[str, Path], seed: int, valid: float, test: float
) -> dict[str, np.ndarray]:
    """{role: index into `SPLITS` of each triple} of the file that others are held out of."""
    whole = "all" if "all" in files else "train"
    fractions = (0.0 if "valid" in files else valid, test if whole == "all" else 0.0)
    if not any(fractions):
        return {}
    size = sum(1 for _ in read_triples(files[whole], Counter()))
    return {whole: Splits(seed, *fractions, size=size)(np.arange(size))}


def _by_split(
    files: Mapping[str, Path], held_out: Mapping[str, np.ndarray], repairs: Counter
) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yields (split, triple) of all files."""
    for role in (*SPLITS, "all"):
        if role in files:
            split_ids = held_out.get(role)
            for number, triple in enumerate(read_triples(files[role], repairs)):
                yield (role if split_ids is None else SPLITS[split_ids[number]]), triple


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
        split, batch_size, seed, training, partial: of `ShuffledBatches`.
    """

    def __init__(
        self,
        data: TripleData,
        split: str = "train",
        batch_size: int = 256,
        *,
        seed: int = 0,
        training: bool | None = None,
        partial: str = "fill",
    ) -> None:
        self._triples = data.split(split)
        rows = np.arange(len(self._triples))
        super().__init__(rows, split, batch_size, seed, training, partial)

    def _batch(self, index: int) -> tuple:
        triples = self._triples[self._order[self._span(index)]]
        heads, relations, tails = self._padded(triples).T.copy()
        item = ((heads, relations), tails)
        return (*item, self._mask(len(triples))) if self.masked else item
