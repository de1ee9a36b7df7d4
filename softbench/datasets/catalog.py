"""The data sets that are read from files: where each one's files lie, and how they are read."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from softbench.datasets import (
    corpus,
    interactions,
    ptb,
    states,
    streamed,
    triples,
    xmc,
)
from softbench.datasets.base import SPLITS
from softbench.datasets.own_files import ABOUT, own_files

_SUFFIXES = ("", ".gz", ".xz", ".bz2")
REPOSITORY = "http://manikvarma.org/downloads/XC/XMLRepository.html"


class Kind(NamedTuple):
    """A form of data: how files become a store, and a store a data set.

    Attributes:
        write: (store, files, **options) -> facts.
        load: (store, facts, name, **load_options) -> data set.
    """

    write: Callable[..., dict]
    load: Callable[..., Any]


class Entry(NamedTuple):
    """A data set.

    Attributes:
        kind: name in `KINDS`.
        files: {role: paths under the data folder, the first that exists counts}. Where the name
            is one of `own_files.ABOUT`, the data folder may be the user's file or folder.
        options: of the kind's `write`, instead of its defaults.
        about: where a reader gets the files.
    """

    kind: str
    files: dict[str, tuple[str, ...]]
    options: dict
    about: str


KINDS = {
    "multi_label": Kind(xmc.write_xmc, xmc.load_xmc),
    "xmc_shards": Kind(streamed.write_xmc_shards, streamed.load_xmc_shards),
    "triples": Kind(triples.write_triples, triples.load_triples),
    "corpus": Kind(corpus.write_corpus, corpus.load_corpus),
    "ptb": Kind(ptb.write_ptb, corpus.load_corpus),
    "histories": Kind(interactions.write_histories, interactions.load_interactions),
    "interactions": Kind(interactions.write_interactions, interactions.load_interactions),
    "states": Kind(states.write_states, states.load_states),
    "interaction_shards": Kind(streamed.write_interaction_shards, streamed.load_interaction_shards),
}


def _xmc_entries(*folders: str, **options: Any) -> dict[str, Entry]:
    """Entries of data sets of the Repository, by the names of their folders there."""
    entries = {}
    for folder in folders:
        name = f"xmc/{folder.lower()}"
        files = {
            split: (f"{name}_{split}.txt", f"xmc/{folder}/{split}.txt", f"{folder}/{split}.txt")
            for split in ("train", "test")
        }
        entries[name] = Entry("multi_label", files, options, f"{folder} of {REPOSITORY}")
    return entries


ENTRIES = {
    "ptb": Entry(
        "ptb",
        {s: (f"ptb/ptb.{s}.txt", f"ptb.{s}.txt") for s in SPLITS},
        {},
        f"ptb.train.txt, ptb.valid.txt and ptb.test.txt of {ptb.URL}",
    ),
    "eltec-hun": Entry(
        "corpus",
        {"all": ("eltec-hun/eltec-hun.txt",)},
        {
            "tokenizer": "words",
            "lowercase": True,
            "end_of_line": False,
            "min_count": 2,
            "vocabulary_from": "all",
            "valid_fraction": 0.02,
            "test_fraction": 0.02,
        },
        "the novels of https://github.com/COST-ELTeC/ELTeC-hun as one text",
    ),
    "bnews": Entry(
        "corpus",
        {"train": ("bnews/train", "bnews/train.txt"), "test": ("bnews/test", "bnews/test.txt")},
        {"vocabulary_size": 64_000, "valid_fraction": 0.001, "split_lines": 1},
        "your copy of the text, one sentence a line, as bnews/train and bnews/test",
    ),
    "text": Entry(
        "corpus",
        {"train": ("text/train", "text/train.txt"), "test": ("text/test", "text/test.txt")},
        {},
        f"{ABOUT['text']}; or text/train.txt and text/test.txt under the data folder",
    ),
    "interactions": Entry("histories", {}, {}, ABOUT["interactions"]),
    "interaction_shards": Entry("interaction_shards", {}, {}, ABOUT["interaction_shards"]),
    "xmc_shards": Entry("xmc_shards", {}, {}, ABOUT["xmc_shards"]),
    "triples": Entry("triples", {}, {}, ABOUT["triples"]),
    "xmc": Entry("multi_label", {}, {"exact_split": True}, ABOUT["xmc"]),
    "wd50k": Entry(
        "triples",
        {split: (f"wd50k/{split}.txt",) for split in SPLITS},
        {},
        "the triples of https://github.com/migalkin/StarE (WD50K, without qualifiers)",
    ),
    "beauty": Entry(
        "histories",
        {"all": ("sequences/beauty.txt", "beauty/beauty.txt", "Beauty.txt")},
        {"layout": "lines", "min_count": 1, "min_length": 0},
        "Amazon Beauty (5-core) as in https://github.com/RUCAIBox/CIKM2020-S3Rec",
    ),
    "gowalla": Entry(
        "interactions",
        {split: (f"gowalla/{split}.txt",) for split in ("train", "test")},
        {},
        "the check-ins of https://github.com/kuandeng/LightGCN (Gowalla, its split)",
    ),
    "yelp2018": Entry(
        "interactions",
        {split: (f"yelp2018/{split}.txt",) for split in ("train", "test")},
        {},
        "the visits of https://github.com/kuandeng/LightGCN (Yelp2018, its split)",
    ),
    "xmc/citeulike-t": Entry(
        "multi_label",
        {"all": ("xmc/citeulike-t_all.txt",)},
        {},
        "citeulike-t in the format of " + REPOSITORY,
    ),
    **_xmc_entries("Delicious", "Bibtex", "AmazonCat-13K", "Delicious-200K", "WikiLSHTC-325K"),
    **_xmc_entries("Wikipedia-500K", "Amazon-670K", allow_negative=True),
    **_xmc_entries("own"),
}


def find(name: str) -> Entry | None:
    """The data set of a name: of `ENTRIES`, or "states/..."; None of any other."""
    if name.startswith(states.PREFIX):
        return Entry("states", {"all": (f"{name}/manifest.json",)}, {}, states.ABOUT)
    return ENTRIES.get(name)


def split_options(name: str, options: Mapping) -> tuple[dict, dict]:
    """Returns the options of `write`, the entry's included, and those of `load`.

    Raises:
        ValueError: for an option that neither has.
    """
    entry = find(name)
    keywords = [_keywords(function) for function in KINDS[entry.kind]]
    unknown = sorted(set(options) - set(keywords[0]) - set(keywords[1]))
    if unknown:
        choice = ", ".join(sorted({*keywords[0], *keywords[1]})) or "none"
        raise ValueError(f"`options` of {name!r} must be among: {choice}. Received: {unknown}")
    write = {**keywords[0], **entry.options}
    write |= {key: value for key, value in options.items() if key in keywords[0]}
    return write, {key: value for key, value in options.items() if key in keywords[1]}


def _keywords(function: Callable) -> dict:
    """Keyword-only parameters of a function and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def find_files(name: str, data_dir: Path) -> dict[str, Path]:
    """Returns {role: path} of a data set's files.

    Raises:
        FileNotFoundError: naming what `data_dir` must hold.
    """
    entry = find(name)
    files = {}
    for role, names in entry.files.items():
        candidates = (data_dir / (file + suffix) for file in names for suffix in _SUFFIXES)
        path = next((path for path in candidates if path.exists()), None)
        if path is None and name in ABOUT:
            return own_files(name, data_dir)
        if path is None:
            wanted = " or ".join(names)
            raise FileNotFoundError(
                f"`data_dir` must hold {wanted} (or compressed: .gz, .xz, .bz2) for {name!r}: "
                f"{entry.about}. Received: {str(data_dir)!r}"
            )
        files[role] = path
    return files or own_files(name, data_dir)
