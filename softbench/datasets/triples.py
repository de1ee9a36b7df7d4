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
from softbench.datasets.lines import by_frequency, fail, read_text
from softbench.datasets.shuffled import ShuffledBatches

_BLOCK = 65_536


def read_triples(path: Path, repairs: Counter) -> Iterator[tuple[str, str, str]]:
    """Yields the triples of a file, one a line, separated by commas or by tabs.

    Blank lines (`blank_lines`) and carriage returns (`crlf_lines`) are counted in `repairs`. (Of
    statements with qualifiers, as in the full WD50K, the first three fields are the triple; such
    files are refused, so that nothing is lost unseen.)

    Raises:
        DataFileError: for an empty file, or a line that is not three names.
    """
    line = 0
    for line, text in read_text(path, repairs):
        text = text.rstrip("\r\n")
        if not text.strip():
            repairs["blank_lines"] += 1
            continue
        fields = [field.strip() for field in text.split("\t" if "\t" in text else ",")]
        if len(fields) != 3 or not all(fields):
            fail(path, line, "a line must be `head,relation,tail`.", text)
        yield tuple(fields)
    if line == 0:
        fail(path, 1, "the file must hold triples.", "an empty file")


def write_triples(store: Any, files: Mapping[str, Path]) -> dict:
    """Reads {"train", "valid", "test"} into a store.

    Entities and relations are those of the three files. Ids go by decreasing frequency in the
    training triples (of entities: as tails), ties alphabetically.

    Returns:
        {"num_classes", "num_relations", "rows", "repairs"}.
    """
    repairs, tails, relations = Counter(), Counter(), Counter()
    for split in SPLITS:
        for head, relation, tail in read_triples(files[split], repairs):
            tails.update({head: 0, tail: int(split == "train")})
            relations[relation] += split == "train"
    names = [by_frequency(tails), by_frequency(relations)]
    entity, link = ({name: i for i, name in enumerate(found)} for found in names)
    rows = dict.fromkeys(SPLITS, 0)
    for split in SPLITS:
        store.append(split, np.zeros((0, 3), np.int32))
        triples = read_triples(files[split], Counter())
        while block := [(entity[h], link[r], entity[t]) for h, r, t in islice(triples, _BLOCK)]:
            store.append(split, np.array(block, np.int32))
            rows[split] += len(block)
    store.append("counts", np.array([tails[name] for name in names[0]], np.int64))
    store.write_strings("entities", names[0])
    store.write_strings("relations", names[1])
    return {
        "num_classes": len(names[0]),
        "num_relations": len(names[1]),
        "rows": rows,
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
