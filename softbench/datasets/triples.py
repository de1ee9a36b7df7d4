"""Knowledge-graph triples `head,relation,tail`: predict the tail among all entities.

Arrays: `<split>` int32 (N, 3) of ids (head, relation, tail), `counts`; strings `entities` and
`relations`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from softbench.datasets.base import TripleData
from softbench.datasets.lines import decode, fail, read_lines
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
    line = 0
    for line, raw in enumerate(read_lines(path), 1):
        repairs["crlf_lines"] += raw.endswith(b"\r\n")
        text = decode(raw, path, line).rstrip("\r\n")
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
    repairs: Counter = Counter()
    tails, relations = Counter(), Counter()
    for split in Splits.NAMES:
        for head, relation, tail in read_triples(files[split], repairs):
            tails.update({head: 0, tail: int(split == "train")})
            relations[relation] += split == "train"
    names = [sorted(found, key=lambda name: (-found[name], name)) for found in (tails, relations)]
    ids = [{name: i for i, name in enumerate(found)} for found in names]
    facts = {"num_classes": len(names[0]), "num_relations": len(names[1]), "rows": {}}
    for split in Splits.NAMES:
        store.append(split, np.zeros((0, 3), np.int32))
        count, block = 0, []
        for head, relation, tail in read_triples(files[split], Counter()):
            block.append((ids[0][head], ids[1][relation], ids[0][tail]))
            if len(block) == _BLOCK:
                store.append(split, np.array(block, np.int32))
                count, block = count + _BLOCK, []
        if block:
            store.append(split, np.array(block, np.int32))
        facts["rows"][split] = count + len(block)
    store.append("counts", np.array([tails[name] for name in names[0]], np.int64))
    store.write_strings("entities", names[0])
    store.write_strings("relations", names[1])
    return facts | {"repairs": {name: count for name, count in repairs.items() if count}}


def load_triples(store: Any, facts: Mapping, name: str) -> TripleData:
    """Makes the data set from a store that `write_triples` filled."""
    return TripleData(
        name,
        *(store.read(split) for split in Splits.NAMES),
        num_classes=facts["num_classes"],
        num_relations=facts["num_relations"],
        entities=store.read_strings("entities"),
        relations=store.read_strings("relations"),
        counts=store.read("counts"),
    )
