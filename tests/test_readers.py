"""Readers of data files: NumPy and SciPy only. What is malformed names its file and line."""

import gzip
import hashlib
import itertools
import lzma
import os
import pathlib
import re

import data_files
import numpy as np
import pytest

from softbench import datasets
from softbench.datasets.base import SPLITS
from softbench.datasets.lines import DataFileError
from softbench.datasets.store import Splits
from softbench.datasets.xmc_format import XMCFile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = pathlib.Path(os.environ.get("SOFTBENCH_DATA") or ROOT.parent / "shared" / "data")


def by_row(matrix):
    """Yields {id: value} of each row, in the order of its entries."""
    for start, end in itertools.pairwise(matrix.indptr):
        ids, values = matrix.indices[start:end].tolist(), matrix.data[start:end].tolist()
        yield dict(zip(ids, values, strict=True))
        assert len(set(ids)) == len(ids)


def parsed(path, block_rows=8192, **options):
    """The rows of a file as lists [(labels, {feature: weight})], and the repairs made."""
    file, rows = XMCFile(path, **options), []
    for block in file.blocks(block_rows):
        for labels, features in zip(by_row(block.labels), by_row(block.features), strict=True):
            rows.append((list(labels), features))
    return rows, {name: count for name, count in file.repairs.items() if count}


@pytest.mark.parametrize("block_rows", [1, 7, 100])
def test_xmc_rows_survive_writing_and_reading(tmp_path, block_rows):
    rows = data_files.random_rows(50, 30, 12)
    path = tmp_path / "a.txt"
    path.write_text(data_files.xmc_text(rows, 30, 12))
    found, repairs = parsed(path, block_rows)
    assert found == rows
    assert repairs == {"rows_without_label": 1, "rows_without_feature": 1}


@pytest.mark.parametrize("opener", [gzip.open, lzma.open])
def test_compressed_files_are_known_by_content(tmp_path, opener):
    rows = data_files.random_rows(50, 30, 12)
    path = tmp_path / "a.txt"
    with opener(path, "wt") as file:
        file.write(data_files.xmc_text(rows, 30, 12))
    assert parsed(path)[0] == rows
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataFileError, match=r"a\.txt:\d+: the compressed file must be whole"):
        parsed(path)


@pytest.mark.parametrize(
    "line, row, repair",
    [
        ("1,2 3:0.5 4:1\r", ([1, 2], {3: 0.5, 4: 1.0}), "crlf_lines"),
        ("1 3:0.5 2:1 3:0.25", ([1], {2: 1.0, 3: 0.75}), "duplicate_features"),
        ("2,1,2 3:1", ([2, 1], {3: 1.0}), "duplicate_labels"),
        ("1 3:0 4:1", ([1], {4: 1.0}), "zero_weights"),
        (" 3:1", ([], {3: 1.0}), "rows_without_label"),
        ("3:1 4:2", ([], {3: 1.0, 4: 2.0}), "rows_without_label"),
        ("1,0", ([1, 0], {}), "rows_without_feature"),
    ],
)
def test_what_is_repaired_is_counted(tmp_path, line, row, repair):
    path = tmp_path / "a.txt"
    path.write_bytes(f"2 5 3\n{line}\n0 0:1\n".encode())
    assert parsed(path) == ([row, ([0], {0: 1.0})], {repair: 1})


def test_a_missing_final_newline_is_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1 5 3\n0 0:1 4:2e-1")
    assert parsed(path) == ([([0], {0: 1.0, 4: pytest.approx(0.2)})], {"missing_final_newline": 1})


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("", 1, "must begin with a line `N D L`.*empty file"),
        ("3 5\n", 1, "the first line must be"),
        ("0 1:1\n", 1, "the first line must be"),
        ("3 5 3\n0 1:1\n1 1:1\n", 4, "promises 3 rows.*end of the file after 2"),
        ("1 5 3\n0 1:1\n\n1 1:1\n", 4, "promises 1 rows and no more"),
        ("2 5 3\n0 1:1\n3 1:1\n", 3, r"label id must be in \[0, 3\) \(`first_id=1`.*Received: 3"),
        ("2 5 3\n0 1:1\n0 2:1 6:1\n", 3, r"feature id must be in \[0, 5\)\. Received: 6"),
        ("2 5 3\n0 1:1\n0 2:1 5:1\n", 3, r"feature id must be in \[0, 5\) \(`first_id=1`"),
        ("2 5 3\n0 1:1\n0 2:-1\n", 3, "finite and not negative.*Received: -1"),
        ("2 5 3\n0 1:1\n0 2:nan\n", 3, "finite weight.*2:nan"),
        ("2 5 3\n0 1:1\n0 2:1e99\n", 3, "must be finite.*1e\\+99"),
        ("2 5 3\n0 1:1\n0 2:1 3:\n", 3, "`id:weight`.*Received: b'3:'"),
        ("2 5 3\n0 1:1\n0 2:1 3\n", 3, "`id:weight`.*Received: b'3'"),
        ("2 5 3\n0 1:1\n0, 2:1\n", 3, "labels must be ids with commas.*b'0,'"),
        ("2 5 3\n0 1:1\n-1 2:1\n", 3, "labels must be ids with commas.*b'-1'"),
        ("2 5 3\n0 1:1\n0 1 2:1\n", 3, "`id:weight`.*Received: b'1'"),
    ],
)
@pytest.mark.parametrize("block_rows", [1, 8192])
def test_malformed_files_name_file_and_line(tmp_path, text, line, words, block_rows):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(DataFileError, match=rf"{re.escape(str(path))}:{line}: .*{words}"):
        parsed(path, block_rows)


def test_ids_from_1_and_negative_weights(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1 5 3\n1,3 1:1 5:-2\n")
    assert parsed(path, first_id=1, allow_negative=True)[0] == [([0, 2], {0: 1.0, 4: -2.0})]
    path.write_text("1 5 3\n0 1:1\n")
    with pytest.raises(DataFileError, match=r":2: a label id must be in \[1, 4\)\. Received: 0"):
        parsed(path, first_id=1)
    with pytest.raises(ValueError, match=r"`first_id` must be 0 or 1. Received: 2"):
        XMCFile(path, first_id=2)


def dense(rows, num_features, num_labels):
    labels, features = np.zeros((len(rows), num_labels)), np.zeros((len(rows), num_features))
    for index, (own, pairs) in enumerate(rows):
        labels[index, own] = 1
        features[index, list(pairs)] = list(pairs.values())
    return features, labels


def test_xmc_set_has_every_row_once(tmp_path):
    rows = data_files.write_xmc_folder(tmp_path, size=60)
    data = datasets.load("xmc/own", data_dir=tmp_path, valid_fraction=0.3, split_seed=3)
    features, labels = dense(rows["train"], 30, 12)
    held_out = Splits(3, 0.3)(np.arange(60)) == 1
    assert 5 < held_out.sum() < 35
    for split, mask in (("valid", held_out), ("train", ~held_out)):
        found = getattr(data, f"{split}_features").toarray()
        np.testing.assert_allclose(found, features[mask], rtol=1e-6)
        np.testing.assert_array_equal(getattr(data, f"{split}_labels").toarray(), labels[mask])
    np.testing.assert_array_equal(data.counts, labels[~held_out].sum(0))
    features, labels = dense(rows["test"], 30, 12)
    np.testing.assert_allclose(data.test_features.toarray(), features, rtol=1e-6)
    np.testing.assert_array_equal(data.test_labels.toarray(), labels)


def test_first_label_keeps_the_first_in_the_file(tmp_path):
    rows = data_files.write_xmc_folder(tmp_path, size=30)
    data = datasets.load("xmc/own", data_dir=tmp_path, valid_fraction=0.0, first_label=True)
    expected = [labels[0] if labels else -1 for labels, _ in rows["train"]]
    np.testing.assert_array_equal(datasets.padded_labels(data.train_labels)[:, 0], expected)
    assert np.diff(data.train_labels.indptr).max() == 1
    used = [label for label in expected if label >= 0]
    np.testing.assert_array_equal(data.counts, np.bincount(used, minlength=12))


def test_one_file_is_split_by_a_hash_of_the_row(tmp_path):
    (tmp_path / "xmc").mkdir()
    rows = data_files.random_rows(400, 30, 12)
    path = tmp_path / "xmc" / "citeulike-t_all.txt"
    path.write_text(data_files.xmc_text(rows, 30, 12))
    data = datasets.load("xmc/citeulike-t", data_dir=tmp_path)
    sizes = [getattr(data, f"{s}_labels").shape[0] for s in SPLITS]
    assert sum(sizes) == 400
    # 0.1 and 0.2 of 400: within 5 standard deviations
    assert abs(sizes[1] - 40) < 30 and abs(sizes[2] - 80) < 40
    again = datasets.load("xmc/citeulike-t", data_dir=tmp_path)
    other = datasets.load("xmc/citeulike-t", data_dir=tmp_path, split_seed=1)
    assert (data.test_features != again.test_features).nnz == 0
    assert data.test_features.shape != other.test_features.shape or (
        (data.test_features != other.test_features).nnz > 0
    )


def test_splitmix_reference_values():
    """Against a plain integer implementation of splitmix64."""
    mask = 2**64 - 1

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    step = 0x9E3779B97F4A7C15
    assert mix(step) == 0xE220A8397B1DCDAF  # the generator's first output from state 0
    for seed in (0, 7):
        start = mix((seed + step) & mask)
        u = [mix((start + i * step) & mask) / 2**64 for i in range(200)]
        expected = [1 if x < 0.25 else 2 if x < 0.5 else 0 for x in u]
        assert Splits(seed, 0.25, 0.25)(np.arange(200)).tolist() == expected


def test_different_headers_are_refused(tmp_path):
    data_files.write_xmc_folder(tmp_path)
    (tmp_path / "xmc" / "own_test.txt").write_text("1 30 13\n0 1:1\n")
    with pytest.raises(DataFileError, match=r"own_test.txt:1: .*\(30, 12\), as in own_train.txt"):
        datasets.load("xmc/own", data_dir=tmp_path)


def test_repairs_that_change_data_are_told(tmp_path):
    data_files.write_xmc_folder(tmp_path)
    (tmp_path / "xmc" / "own_test.txt").write_text("1 30 12\n0 1:1 1:1\n")
    with pytest.warns(UserWarning, match=r"xmc/own: repaired.*'duplicate_features': 1"):
        datasets.load("xmc/own", data_dir=tmp_path)


def test_triples_by_hand(tmp_path):
    data_files.write_triples_folder(tmp_path)
    data = datasets.load("wd50k", data_dir=tmp_path)
    assert data.entities == ["b", "c", "d", "a", "e"]  # 2, 1, 1 times a training tail, then 0
    assert data.relations == ["r", "s"]
    np.testing.assert_array_equal(data.counts, [2, 1, 1, 0, 0])
    np.testing.assert_array_equal(data.train, [[3, 0, 0], [1, 0, 0], [3, 1, 1], [0, 1, 2]])
    np.testing.assert_array_equal(data.valid, [[3, 0, 4]])
    np.testing.assert_array_equal(data.test, [[1, 1, 0], [2, 0, 0]])


def corpus(folder, **options):
    data = datasets.load("text", data_dir=folder, **{"valid_fraction": 0.5, **options})
    return data, {s: [data.vocabulary[i] for i in getattr(data, s)] for s in SPLITS}


def test_corpus_by_hand(tmp_path):
    line = "b a b\n\na c b\n"  # one block of three lines: the empty one gives nothing
    data_files.write_text_folder(tmp_path, train=line * 20, test="a z b\n")
    data, words = corpus(tmp_path, split_lines=3)
    assert words["test"] == ["a", "<unk>", "b", "<eos>"]
    block = ["b", "a", "b", "<eos>", "a", "c", "b", "<eos>"]
    repeats = [len(words[s]) // 8 for s in ("train", "valid")]
    assert words["train"] == block * repeats[0] and words["valid"] == block * repeats[1]
    assert sum(repeats) == 20 and min(repeats) > 0
    # of 8 tokens b 3, <eos> 2, a 2, c 1; nothing was left out
    assert data.vocabulary == ["b", "<eos>", "a", "c", "<unk>"]
    np.testing.assert_array_equal(data.counts, np.array([3, 2, 2, 1, 0]) * repeats[0])


@pytest.mark.parametrize("split_lines", [3, 0])
def test_a_part_of_a_corpus(tmp_path, split_lines):
    """The held-out blocks are those of the whole corpus, and the training blocks some of its."""
    lines = [f"w{number} x" for number in range(1_200)]
    data_files.write_text_folder(tmp_path, train="\n".join(lines) + "\n", test="w1 x\n")
    options = {"split_lines": split_lines, "valid_fraction": 0.25, "end_of_line": False}
    _, whole = corpus(tmp_path, **options)
    data, part = corpus(tmp_path, train_fraction=0.25, **options)
    assert len(part["valid"]) == len(whole["valid"]) and len(part["test"]) == 2
    assert set(part["train"]) < set(whole["train"])
    assert len(part["train"]) / len(whole["train"]) == pytest.approx(1 / 3, abs=0.1)
    assert data.counts.sum() == len(part["train"]) and data.vocabulary[0] == "x"
    assert corpus(tmp_path, train_fraction=0.75, **options)[1] == whole  # all that is left
    Splits(0, 0.05, 0.05, train=0.9)
    for fraction in (0.0, 0.8):
        with pytest.raises(ValueError, match=rf"`train_fraction` must be.*Received: {fraction} "):
            corpus(tmp_path, train_fraction=fraction, **options)


def test_vocabulary_limits(tmp_path):
    data_files.write_text_folder(tmp_path, train="b a B\na c b's x1y\n" * 20, test="a b\n")
    data, _ = corpus(tmp_path, split_lines=2, lowercase=True, tokenizer="words", end_of_line=False)
    # per block: a 2, b 2, "b's" c x y 1 each
    assert data.vocabulary == ["a", "b", "b's", "c", "x", "y", "<unk>"]
    data, words = corpus(
        tmp_path, split_lines=2, lowercase=True, tokenizer="words", vocabulary_size=4
    )
    # 4 words seen once, 2 lines: <unk> 4 of 10, then <eos>, a, b with 2 each
    assert data.vocabulary == ["<unk>", "<eos>", "a", "b"]
    assert words["train"][:5] == ["b", "a", "b", "<eos>", "a"]
    blocks = data.counts[1] // 2
    data, _ = corpus(tmp_path, split_lines=2, min_count=int(blocks) + 1, end_of_line=False)
    assert data.vocabulary == ["<unk>", "a"]  # whitespace, case kept: only `a` twice in a block


def test_corpus_of_a_folder_and_bad_text(tmp_path):
    for split in ("train", "test"):
        (tmp_path / "text" / split).mkdir(parents=True)
        (tmp_path / "text" / split / "b.txt").write_text("c d\n" * 9)
        with gzip.open(tmp_path / "text" / split / "a.txt.gz", "wt") as file:
            file.write("a b\n" * 9)
    _, words = corpus(tmp_path, split_lines=1)
    assert words["test"][:2] == ["a", "b"] and words["test"][-3:] == ["c", "d", "<eos>"]
    (tmp_path / "text" / "test" / "b.txt").write_bytes(b"c d\n\xff\n")
    with pytest.raises(DataFileError, match=r"b.txt:2: the text must be UTF-8"):
        corpus(tmp_path)
    with pytest.raises(ValueError, match=r"`tokenizer` must be one of.*Received: 'x'"):
        corpus(tmp_path, tokenizer="x")
    (tmp_path / "text" / "test" / "b.txt").write_text("")
    (tmp_path / "text" / "test" / "a.txt.gz").unlink()
    with pytest.raises(DataFileError, match=r"the text must hold words"):
        corpus(tmp_path)


@pytest.mark.parametrize(
    "name, classes, sizes",
    [
        ("xmc/delicious", 983, (12_920, 3_185)),
        ("xmc/bibtex", 159, (4_880, 2_515)),
        ("xmc/citeulike-t", 52_946, (25_975, 0)),
        ("wd50k", 41_334, (188_491, 46_023)),
    ],
)
def test_real_sets(name, classes, sizes):
    try:
        datasets.check(name, data_dir=DATA)
    except FileNotFoundError as error:
        pytest.skip(f"{name} is not at hand: {error}")
    data = datasets.load(name, data_dir=DATA)
    assert data.num_classes == classes and data.counts.shape == (classes,)
    if name == "wd50k":
        assert data.num_relations == 486
        found = [len(part) for part in (data.train, data.valid, data.test)]
    else:
        found = [getattr(data, f"{s}_labels").shape[0] for s in SPLITS]
    if name == "xmc/citeulike-t":
        assert sum(found) == sizes[0]
    else:
        assert (found[0] + found[1], found[2]) == sizes


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("gowalla", "bb99da0d02fb7f87"),
        ("yelp2018", "aca637225600c538"),
        ("beauty", "4ddf7478bf916856"),
        ("wd50k", "e3502278f6438658"),
    ],
)
def test_real_splits_are_those_of_the_records(name, digest):
    try:
        data = datasets.load(name, data_dir=DATA)
    except FileNotFoundError as error:
        pytest.skip(f"{name} is not at hand: {error}")
    found = hashlib.sha256()
    for split in SPLITS:
        arrays = data.split(split)
        for array in arrays if isinstance(arrays, tuple) else (arrays,):
            found.update(np.ascontiguousarray(array).tobytes())
    found.update(data.counts.tobytes())
    assert found.hexdigest()[:16] == digest


def test_real_novels():
    if not (DATA / "eltec-hun" / "eltec-hun.txt.xz").is_file():
        pytest.skip("eltec-hun is not at hand: set SOFTBENCH_DATA to the folder that holds it")
    data = datasets.load("eltec-hun", data_dir=DATA)
    assert data.num_classes == 197_029 + 1  # words seen twice or more, and <unk>
    assert len(data.train) + len(data.valid) + len(data.test) == 6_682_055
