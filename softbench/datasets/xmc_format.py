"""The text format of the Extreme Classification Repository, read in blocks.

First line `N D L`: rows, features, labels. Then one row a line: `l1,l2 f:w f:w ...`. Labels or
features may be missing; without labels the line begins with a space or with a feature.

Shape letters: N rows, D features, L labels; R rows, E features and T labels of one block.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from softbench.datasets.lines import fail, read_lines

_NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_FEATURE = re.compile(rb"(\d+):(" + _NUMBER + rb")")
_LINE = re.compile(rb"(?:(\d+(?:,\d+)*)(?=[ \t]|$))?[ \t]*((?:\d+:" + _NUMBER + rb"(?:[ \t]+|$))*)")
_HEADER = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*")


class Rows(NamedTuple):
    """A block of rows.

    Attributes:
        label_sizes: int64 (R,) labels of each row.
        labels: int32 (T,) distinct ids of each row, in the order of the file.
        feature_sizes: int64 (R,) features of each row.
        features: int32 (E,) distinct ids of each row, increasing.
        weights: float32 (E,), none zero.
    """

    label_sizes: np.ndarray
    labels: np.ndarray
    feature_sizes: np.ndarray
    features: np.ndarray
    weights: np.ndarray


class XMCFile:
    """A file in the format, its header read and checked.

    Repairs are counted in `repairs`: `crlf_lines` (read like others), `missing_final_newline`,
    `duplicate_features` (weights added up), `duplicate_labels` (kept once), `zero_weights`
    (dropped). All else is an error. Rows without labels or features are rows, and are counted as
    `rows_without_label` and `rows_without_feature`.

    Args:
        path: text, or text compressed with gzip, xz or bzip2.
        first_id: 0 or 1, the id of the first label and feature in the file; ids given out begin
            at 0.
        allow_negative: whether weights may be negative (learned dense features).

    Raises:
        DataFileError: if the file is empty or its first line is not `N D L`.
    """

    def __init__(self, path: Path, first_id: int = 0, allow_negative: bool = False) -> None:
        if first_id not in (0, 1):
            raise ValueError(f"`first_id` must be 0 or 1. Received: {first_id}")
        self.path, self.first_id, self.allow_negative = Path(path), first_id, allow_negative
        self.repairs: Counter = Counter()
        first = next(read_lines(self.path), None)
        if first is None:
            fail(self.path, 1, "the file must begin with a line `N D L`.", "an empty file")
        found = _HEADER.fullmatch(first)
        if not found or min(map(int, found.groups())) < 1:
            rule = "the first line must be `N D L`: rows, features and labels, all positive."
            fail(self.path, 1, rule, first.strip())
        self.num_rows, self.num_features, self.num_labels = map(int, found.groups())

    def blocks(self, block_rows: int = 8192) -> Iterator[Rows]:
        """Yields the rows in order; memory is that of a block.

        Raises:
            DataFileError: naming the first line that breaks the format.
        """
        lines, start = islice(read_lines(self.path), 1, None), 2
        while start < self.num_rows + 2:
            block = list(islice(lines, min(block_rows, self.num_rows + 2 - start)))
            if not block:
                rule = f"the header promises {self.num_rows} rows."
                fail(self.path, start, rule, f"the end of the file after {start - 2} rows")
            yield self._parse(block, start)
            start += len(block)
        for offset, rest in enumerate(lines):
            if rest.strip():
                rule = f"the header promises {self.num_rows} rows and no more."
                fail(self.path, start + offset, rule, rest.strip())

    def _parse(self, block: list[bytes], start: int) -> Rows:
        labels, features = [], []
        for offset, raw in enumerate(block):
            line = raw.rstrip(b"\n")
            self.repairs["missing_final_newline"] += len(line) == len(raw)
            if line.endswith(b"\r"):
                line = line[:-1]
                self.repairs["crlf_lines"] += 1
            found = _LINE.fullmatch(line)
            if found is None:
                self._explain(line, start + offset)
            labels.append(found[1] or b"")
            features.append(found[2])
        label_sizes = np.array([part.count(b",") + 1 if part else 0 for part in labels], np.int64)
        sizes = np.array([part.count(b":") for part in features], np.int64)
        ids = _numbers(b",".join(part for part in labels if part), ",")
        pairs = _numbers(b" ".join(features).replace(b":", b" "), " ").reshape(-1, 2)
        ids = self._ids(ids, label_sizes, self.num_labels, "label", start)
        feature_ids = self._ids(pairs[:, 0], sizes, self.num_features, "feature", start)
        weights = self._weights(pairs[:, 1], sizes, start)
        label_sizes, ids = self._distinct_labels(label_sizes, ids)
        rows = Rows(label_sizes, ids, *self._distinct_features(sizes, feature_ids, weights))
        self.repairs["rows_without_label"] += int((rows.label_sizes == 0).sum())
        self.repairs["rows_without_feature"] += int((rows.feature_sizes == 0).sum())
        return rows

    def _ids(
        self, values: np.ndarray, sizes: np.ndarray, limit: int, what: str, start: int
    ) -> np.ndarray:
        first = self.first_id
        bad = np.flatnonzero((values < first) | (values >= limit + first))
        if len(bad):
            rule = f"a {what} id must be in [{first}, {limit + first})"
            if first == 0 and values[bad[0]] == limit:
                rule += " (`first_id=1` reads files whose ids begin at 1)"
            fail(self.path, start + _row_of(bad[0], sizes), rule + ".", f"{values[bad[0]]:.0f}")
        return (values - first).astype(np.int32)

    def _weights(self, values: np.ndarray, sizes: np.ndarray, start: int) -> np.ndarray:
        with np.errstate(over="ignore"):
            weights = values.astype(np.float32)
        bad = ~np.isfinite(weights)
        if not self.allow_negative:
            bad |= weights < 0
        if bad.any():
            first = int(bad.argmax())
            rule = "a weight must be finite"
            rule += "." if self.allow_negative else " and not negative."
            fail(self.path, start + _row_of(first, sizes), rule, f"{values[first]:g}")
        return weights

    def _distinct_labels(
        self, sizes: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = np.repeat(np.arange(len(sizes)), sizes)
        kept = np.sort(np.unique(rows * self.num_labels + labels, return_index=True)[1])
        if len(kept) == len(labels):
            return sizes, labels
        self.repairs["duplicate_labels"] += len(labels) - len(kept)
        return np.bincount(rows[kept], minlength=len(sizes)), labels[kept]

    def _distinct_features(
        self, sizes: np.ndarray, ids: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        keys = np.repeat(np.arange(len(sizes)), sizes) * self.num_features + ids
        if not (np.diff(keys) > 0).all():
            order = np.argsort(keys, kind="stable")
            keys, weights = keys[order], weights[order]
            firsts = np.flatnonzero(np.diff(keys, prepend=-1))
            self.repairs["duplicate_features"] += len(keys) - len(firsts)
            keys, weights = keys[firsts], np.add.reduceat(weights, firsts)
        kept = weights != 0
        if not kept.all():
            self.repairs["zero_weights"] += int((~kept).sum())
            keys, weights = keys[kept], weights[kept]
        rows, ids = np.divmod(keys, self.num_features)
        return np.bincount(rows, minlength=len(sizes)), ids.astype(np.int32), weights

    def _explain(self, line: bytes, number: int) -> NoReturn:
        """Raises for a line that the format does not allow."""
        for position, token in enumerate(line.split()):
            if b":" not in token and position == 0 and not line[:1].isspace():
                if not re.fullmatch(rb"\d+(,\d+)*", token):
                    fail(self.path, number, "labels must be ids with commas between.", token)
            elif not _FEATURE.fullmatch(token):
                rule = "a feature must be `id:weight` with a finite weight"
                fail(self.path, number, f"{rule}, a space before it.", token)
        fail(self.path, number, "a row must be `l1,l2 f:w f:w ...`.", line)


def _numbers(text: bytes, separator: str) -> np.ndarray:
    """Numbers float64 of a text that is known to hold nothing else."""
    if not text.strip():
        return np.zeros(0)
    return np.fromstring(text.decode("ascii"), dtype=np.float64, sep=separator)


def _row_of(position: int, sizes: np.ndarray) -> int:
    """Row that holds the entry at a position of the flat array."""
    return int(np.searchsorted(np.cumsum(sizes), position, side="right"))
