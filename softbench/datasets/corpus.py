"""Plain text as token streams: a file or a folder of files, words below a threshold as `<unk>`.

Arrays: `train`, `valid`, `test` int32 streams, `counts`; strings `vocabulary`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import SPLITS, LanguageData
from softbench.datasets.lines import by_frequency, fail, read_text
from softbench.datasets.store import Splits

UNKNOWN, END = "<unk>", "<eos>"
_WORDS = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "whitespace": str.split,
    "words": _WORDS.findall,
}
_BLOCK = 1_000_000  # tokens
_NOWHERE = ""  # the split of blocks that are left out
Text = Iterator[tuple[str, list[str]]]


def corpus_files(path: Path) -> list[Path]:
    """The files of a corpus: the path itself, or the files of a folder in order of name."""
    if not path.is_dir():
        return [path]
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    if not files:
        raise ValueError(f"`data_dir`: a corpus folder must hold files. Received: {path}")
    return files


def write_corpus(
    store: Any,
    files: Mapping[str, Path],
    *,
    min_count: int = 1,
    vocabulary_size: int | None = None,
    vocabulary_from: str = "train",
    lowercase: bool = False,
    tokenizer: str = "whitespace",
    end_of_line: bool = True,
    valid_fraction: float = 0.05,
    test_fraction: float = 0.05,
    train_fraction: float | None = None,
    split_seed: int = 0,
    split_lines: int = 200,
) -> dict:
    """Reads text into a store, twice: to count the words, then to write the streams.

    Ids go by decreasing frequency in the counted text, ties alphabetically. Words outside the
    vocabulary are `<unk>`, which is always a class.

    Args:
        store: see `softbench.datasets.store`.
        files: {"all"}, or "train" and "test" with or without "valid"; each a file or a folder of
            them. What is missing is held out of "all" or "train": blocks of `split_lines`
            consecutive lines, by `Splits`.
        min_count: words seen less often in the counted text are `<unk>`.
        vocabulary_size: at most so many classes, `<unk>` and `<eos>` among them; None for all.
        vocabulary_from: "train" counts the training text; "all" counts every line (the vocabulary
            then knows which words the held-out text has).
        lowercase: of Unicode, before the words are taken.
        tokenizer: "whitespace"; "words" takes runs of letters, with apostrophes inside.
        end_of_line: put `<eos>` after each line that has a word.
        valid_fraction, test_fraction, split_seed: of `Splits`, over the blocks.
        train_fraction: share of all blocks to train on, where that is a part of what the others
            leave; the rest of the text is left out. None: all that they leave.
        split_lines: lines of a block. 0 fits files of any size: blocks of up to 200 lines that hold
            words, a hundred blocks or more where there are as many lines, and exact fractions.

    Returns:
        {"num_classes", "rows": tokens of each split, "unknown": those that are `<unk>`, "repairs"}.

    Raises:
        DataFileError: for a file without words or one that is not UTF-8.
        ValueError: for arguments out of range.
    """
    check_positive(min_count=min_count, split_lines=split_lines or 1)
    _check_choices(vocabulary_size, vocabulary_from, tokenizer)
    valid = 0.0 if "valid" in files else valid_fraction
    fractions = {"valid": valid, "test": test_fraction if "all" in files else 0.0}
    fractions |= {"train": train_fraction}
    reading = (lowercase, TOKENIZERS[tokenizer], end_of_line)
    splits = Splits(split_seed, **fractions)
    if split_lines == 0:
        split_lines, splits = _exact_splits(files, split_seed, fractions, reading)
    options = (splits, split_lines, *reading)
    repairs, frequency = Counter(), Counter()
    for split, words in _text(files, *options, repairs):
        if vocabulary_from == "all" or split == "train":
            frequency.update(words)
    vocabulary = _vocabulary(frequency, min_count, vocabulary_size)
    ids = {word: i for i, word in enumerate(vocabulary)}
    unknown_id = ids[UNKNOWN]
    counts = np.zeros(len(ids), np.int64)
    rows, unknown = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0)
    for split in SPLITS:
        store.append(split, np.zeros(0, np.int32))
    for split, tokens in _encoded(_text(files, *options, Counter()), ids, unknown_id):
        store.append(split, tokens)
        rows[split] += len(tokens)
        unknown[split] += int((tokens == unknown_id).sum())
        if split == "train":
            counts += np.bincount(tokens, minlength=len(counts))
    if min(rows.values()) < 2:
        raise ValueError(
            "`files`: every split must have 2 words or more (a shorter `split_lines` makes more "
            f"blocks to hold out). Received: {rows}"
        )
    store.append("counts", counts)
    store.write_strings("vocabulary", vocabulary)
    facts = {"num_classes": len(ids), "rows": rows, "unknown": unknown}
    return facts | {"repairs": dict(+repairs)}


def _check_choices(vocabulary_size: int | None, vocabulary_from: str, tokenizer: str) -> None:
    if vocabulary_size is not None and vocabulary_size < 3:
        raise ValueError(
            f"`vocabulary_size` must be 3 or more, or None. Received: {vocabulary_size!r}"
        )
    if vocabulary_from not in ("train", "all"):
        raise ValueError(f"`vocabulary_from` must be train or all. Received: {vocabulary_from!r}")
    if tokenizer not in TOKENIZERS:
        names = ", ".join(TOKENIZERS)
        raise ValueError(f"`tokenizer` must be one of: {names}. Received: {tokenizer!r}")


def load_corpus(store: Any, facts: Mapping, name: str) -> LanguageData:
    """Makes the data set from a store that `write_corpus` filled."""
    return LanguageData(
        name,
        **{split: store.read(split) for split in SPLITS},
        num_classes=facts["num_classes"],
        vocabulary=store.read_strings("vocabulary"),
        counts=store.read("counts"),
    )


def _text(
    files: Mapping[str, Path],
    splits: Splits,
    split_lines: int,
    lowercase: bool,
    tokenize: Callable[[str], list[str]],
    end_of_line: bool,
    repairs: Counter,
) -> Text:
    """Yields (split, words) of every line that has a word."""
    for role, path in files.items():
        block, split, count = -1, role, 0
        for number, line in enumerate(_lines(path, repairs)):
            words = tokenize(line.lower() if lowercase else line)
            if splits.is_exact and not words:
                continue
            current = (count if splits.is_exact else number) // split_lines
            if role in ("train", "all") and current != block:
                block = current
                split = (*SPLITS, _NOWHERE)[int(splits(np.array([block]))[0])]
            if words:
                count += 1
                if split != _NOWHERE:
                    yield split, [*words, END] if end_of_line else words
        if not count:
            fail(path, 1, "the text must hold words.", "none")


def _exact_splits(
    files: Mapping[str, Path], seed: int, fractions: Mapping, reading: tuple
) -> tuple[int, Splits]:
    """Lines of a block, and splits by exact fractions, for a text of any size."""
    whole = {role: path for role, path in files.items() if role in ("train", "all")}
    lines = sum(1 for _ in _text(whole, Splits(seed, 0.0), 1, *reading, Counter()))
    block = min(200, max(1, lines // 100))
    return block, Splits(seed, **fractions, size=-(-lines // block))


def _lines(path: Path, repairs: Counter) -> Iterator[str]:
    for file in corpus_files(path):
        yield from (line for _, line in read_text(file, repairs))


def _vocabulary(frequency: Counter, min_count: int, size: int | None) -> list[str]:
    """The words to keep and `<unk>`, by decreasing frequency; `<unk>` counts what is left out."""
    unknown = frequency.pop(UNKNOWN, 0)
    kept = [word for word in by_frequency(frequency) if frequency[word] >= min_count or word == END]
    if size is not None and len(kept) > size - 1:
        rest = size - 1 - (END in frequency)
        kept = [word for word in kept if word != END][:rest] + [END] * (END in frequency)
    frequency[UNKNOWN] = unknown + sum(frequency.values()) - sum(frequency[word] for word in kept)
    return by_frequency({word: frequency[word] for word in [*kept, UNKNOWN]})


def _encoded(text: Text, ids: dict[str, int], unknown: int) -> Iterable[tuple[str, np.ndarray]]:
    """Yields (split, ids) in pieces."""
    pending: dict[str, list[int]] = {split: [] for split in SPLITS}
    for split, words in text:
        pending[split] += [ids.get(word, unknown) for word in words]
        if len(pending[split]) >= _BLOCK:
            yield split, np.array(pending[split], np.int32)
            pending[split] = []
    for split, tokens in pending.items():
        yield split, np.array(tokens, np.int32)
