"""The text format of the Extreme Classification Repository, read in blocks.

First line `N D L`: rows, features, labels. Then one row a line: `l1,l2 f:w f:w ...`. Labels or
features may be missing; without labels the line begins with a space or with a feature.

Shape letters: N rows, D features, L labels; R rows and E entries (labels or features) of a block.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
import scipy.sparse as sp

from softbench.datasets.base import Labelled
from softbench.datasets.lines import fail, read_lines

_NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_FEATURE = re.compile(rb"(\d+):(" + _NUMBER + rb")")
_LINE = re.compile(rb"(?:(\d+(?:,\d+)*)(?=[ \t]|$))?[ \t]*((?:\d+:" + _NUMBER + rb"(?:[ \t]+|$))*)")
_HEADER = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*")


class XMCFile:
    """A file in the format, its header read and checked.

    Repairs are counted in `repairs`: `crlf_lines` (read like others), `missing_final_newline`,
    `duplicate_features` (weights added up), `duplicate_labels` (kept once), `zero_weights`
    (dropped). All else is an error. Rows without labels or features are rows, and are counted as
    `rows_without_label` and `rows_without_feature`.

    Args:
        path: text, or text compressed with gzip, xz or bzip2.
        first_id: 0 or 1, the id of the first label and feature in the file; ids in memory begin
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
        match = _HEADER.fullmatch(first)
        if not match or min(map(int, match.groups())) < 1:
            rule = "the first line must be `N D L`: rows, features and labels, all positive."
            fail(self.path, 1, rule, first.strip())
        self.num_rows, self.num_features, self.num_labels = map(int, match.groups())

    def blocks(self, block_rows: int = 8192) -> Iterator[Labelled]:
        """Yields the rows in order; memory is that of a block.

        Labels `(R, L)` of a row are distinct and in the order of the file; features `(R, D)` are
        distinct, by increasing id, and none has weight 0.

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

    def _parse(self, block: list[bytes], start: int) -> Labelled:
        labels, features = [], []
        for offset, raw in enumerate(block):
            line = raw.rstrip(b"\n")
            self.repairs["missing_final_newline"] += len(line) == len(raw)
            if line.endswith(b"\r"):
                line = line[:-1]
                self.repairs["crlf_lines"] += 1
            match = _LINE.fullmatch(line)
            if match is None:
                self._explain(line, start + offset)
            labels.append(match[1] or b"")
            features.append(match[2])
        ids = _numbers(b",".join(text for text in labels if text), ",")
        ends = _ends([text.count(b",") + 1 if text else 0 for text in labels])
        labels = self._labels(ids, ends, start)
        pairs = _numbers(b" ".join(features).replace(b":", b" "), " ").reshape(-1, 2)
        ends = _ends([text.count(b":") for text in features])
        features = self._features(pairs[:, 0], pairs[:, 1], ends, start)
        self.repairs["rows_without_label"] += int((np.diff(labels.indptr) == 0).sum())
        self.repairs["rows_without_feature"] += int((np.diff(features.indptr) == 0).sum())
        return Labelled(features, labels)

    def _ids(
        self, values: np.ndarray, ends: np.ndarray, limit: int, what: str, start: int
    ) -> np.ndarray:
        """Ids (E,) from 0, after a check of their range."""
        first = self.first_id
        bad = np.flatnonzero((values < first) | (values >= limit + first))
        if len(bad):
            rule = f"a {what} id must be in [{first}, {limit + first})"
            if first == 0 and values[bad[0]] == limit:
                rule += " (`first_id=1` reads files whose ids begin at 1)"
            fail(self.path, start + _row_of(bad[0], ends), rule + ".", f"{values[bad[0]]:.0f}")
        return (values - first).astype(np.int32)

    def _labels(self, values: np.ndarray, ends: np.ndarray, start: int) -> sp.csr_matrix:
        ids = self._ids(values, ends, self.num_labels, "label", start)
        rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        kept = np.sort(np.unique(rows * self.num_labels + ids, return_index=True)[1])
        if len(kept) < len(ids):
            self.repairs["duplicate_labels"] += len(ids) - len(kept)
            ids, ends = ids[kept], _ends(np.bincount(rows[kept], minlength=len(ends) - 1))
        shape = (len(ends) - 1, self.num_labels)
        return sp.csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape)

    def _features(
        self, values: np.ndarray, weights: np.ndarray, ends: np.ndarray, start: int
    ) -> sp.csr_matrix:
        ids = self._ids(values, ends, self.num_features, "feature", start)
        with np.errstate(over="ignore"):
            data = weights.astype(np.float32)
        bad = ~np.isfinite(data)
        if not self.allow_negative:
            bad |= data < 0
        if bad.any():
            first = int(bad.argmax())
            rule = "a weight must be finite"
            rule += "." if self.allow_negative else " and not negative."
            fail(self.path, start + _row_of(first, ends), rule, f"{weights[first]:g}")
        features = sp.csr_matrix((data, ids, ends), (len(ends) - 1, self.num_features))
        features.sum_duplicates()
        self.repairs["duplicate_features"] += len(data) - features.nnz
        distinct = features.nnz
        features.eliminate_zeros()
        self.repairs["zero_weights"] += distinct - features.nnz
        return features

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
    """Numbers float64 of a text that holds nothing else."""
    if not text.strip():
        return np.zeros(0)
    return np.fromstring(text.decode("ascii"), dtype=np.float64, sep=separator)


def _ends(sizes: Sequence[int]) -> np.ndarray:
    """Where each row ends, int64 (R + 1,), after a zero: the `indptr` of rows of these sizes."""
    return np.append(0, np.cumsum(sizes, dtype=np.int64))


def _row_of(position: int, ends: np.ndarray) -> int:
    """Row that holds the entry at a position of the flat array."""
    return int(np.searchsorted(ends[1:], position, side="right"))
