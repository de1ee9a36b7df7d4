"""Streams of batches: seeded epochs, masks, dense rows, prefetching. NumPy and SciPy only."""

import hashlib
import threading

import data_files
import numpy as np
import pytest

from softbench import datasets


def small_xmc(**sizes):
    given = dict(num_classes=60, num_features=300, num_train=200, num_valid=20, num_test=30)
    return datasets.synthetic_xmc(**{**given, **sizes})


@pytest.fixture
def triples(tmp_path):
    data_files.write_triples_folder(tmp_path)
    return datasets.load("wd50k", data_dir=tmp_path)


def flat(item):
    """Every array of a batch."""
    for part in item:
        if isinstance(part, tuple):
            yield from flat(part)
        else:
            yield part.toarray() if hasattr(part, "toarray") else part


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        for x, y in zip(flat(a), flat(b), strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype


def test_triple_batches(triples):
    batches = datasets.TripleBatches(triples, "train", 3, seed=1)
    assert len(batches) == 2
    seen = [np.stack([*x, y], axis=1) for x, y in batches]
    assert [part.shape for part in seen] == [(3, 3), (3, 3)] and seen[0].dtype == np.int32
    rows = np.concatenate(seen)
    assert sorted(map(tuple, rows[:4])) == sorted(map(tuple, triples.train))
    np.testing.assert_array_equal(rows[4:], rows[:2])
    ((heads, relations), tails, mask) = datasets.TripleBatches(triples, "test", 3)[0]
    np.testing.assert_array_equal(heads, [1, 2, 0])
    np.testing.assert_array_equal(relations, [1, 0, 0])
    np.testing.assert_array_equal(tails, [0, 0, 0])
    np.testing.assert_array_equal(mask, [1, 1, 0])


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_run_continues_at_an_epoch_boundary(triples, prefetch):
    def make():
        for batches in (
            datasets.BagBatches(small_xmc(), "train", 64, seed=2),
            datasets.TripleBatches(triples, "train", 3, seed=2),
        ):
            yield datasets.Prefetched(batches, 3) if prefetch else batches

    for whole, resumed in zip(make(), make(), strict=True):
        epochs = [list(whole) for _ in range(3)]
        assert whole.epoch == 3
        resumed.set_epoch(2)
        assert_same(epochs[2], list(resumed))
        with pytest.raises(AssertionError):
            assert_same(epochs[0], epochs[1])


def test_prefetched_batches_are_the_batches():
    data = small_xmc()
    plain = datasets.BagBatches(data, "train", 32)
    ahead = datasets.Prefetched(datasets.BagBatches(data, "train", 32), 2)
    assert len(ahead) == len(plain)
    expected = [plain[i] for i in range(len(plain))]
    assert_same(expected, [ahead[i] for i in range(len(plain))])
    for index in (0, 1, 5, 5, 2, 3, 6):  # any order
        assert_same([expected[index]], [ahead[index]])
    with pytest.raises(IndexError):
        ahead[7]
    ahead.set_epoch(1)
    plain.set_epoch(1)
    assert_same([plain[0]], [ahead[0]])


def test_prefetching_is_on_another_thread_and_shows_errors():
    class Source:
        epoch = 0

        def __init__(self):
            self.threads = []

        def __len__(self):
            return 4

        def __getitem__(self, index):
            self.threads.append(threading.current_thread().name)
            if index == 2:
                raise OSError("disk")
            return (index,)

    source = Source()
    ahead = datasets.Prefetched(source, 2)
    assert [ahead[0], ahead[1]] == [(0,), (1,)]
    with pytest.raises(OSError, match="disk"):
        ahead[2]
    assert ahead[3] == (3,)
    assert all(name.startswith("prefetch") for name in source.threads)
    with pytest.raises(ValueError, match=r"`depth`.*Received: depth=0"):
        datasets.Prefetched(source, 0)


def test_dense_rows():
    data = small_xmc()
    rows, masks = zip(
        *((x, m) for x, _, m in datasets.BagBatches(data, "test", 8, dense=True)), strict=True
    )
    assert rows[0].shape == (8, 300) and rows[0].dtype == np.float32
    kept = np.concatenate(rows)[np.concatenate(masks) > 0]
    np.testing.assert_array_equal(kept, data.test_features.toarray())
    x, labels = datasets.BagBatches(data, "train", 8, dense=True, seed=4)[0]
    (ids, weights), same_labels = datasets.BagBatches(data, "train", 8, seed=4)[0]
    np.testing.assert_array_equal(labels, same_labels)
    rebuilt = np.zeros_like(x)
    np.add.at(rebuilt, (np.arange(8)[:, None], ids), weights)
    np.testing.assert_array_equal(x, rebuilt)


def test_longest_rows_are_cut_batch_by_batch():
    data = small_xmc()
    limit = 5
    (ids, weights), *_ = datasets.BagBatches(data, "test", 30, max_features=limit)[0]
    for row, own, weight in zip(data.test_features.toarray(), ids, weights, strict=True):
        present = np.flatnonzero(row)
        order = sorted(present, key=lambda i: (-abs(row[i]), i))[:limit]
        assert sorted(order) == own[weight != 0].tolist()
        np.testing.assert_array_equal(weight[weight != 0], row[sorted(order)])


def test_batches_of_the_prepared_folder_do_not_depend_on_the_backend(tmp_path):
    """NumPy alone makes them: one checksum, taken once, in every environment that tests this."""
    data_files.write_xmc_folder(tmp_path, size=50)
    datasets.prepare("xmc/own", tmp_path, tmp_path / "out")
    data = datasets.load("xmc/own", data_dir=tmp_path / "out")
    digest = hashlib.sha256()
    for split in ("train", "test"):
        for item in datasets.BagBatches(data, split, 16, max_features=4):
            for array in flat(item):
                digest.update(np.ascontiguousarray(array).tobytes())
    assert digest.hexdigest() == "79eb8731975fcc5c3c360e5270b2cb0da14a58bd97f5434b028a621ffd519632"


def test_bad_arguments(triples):
    with pytest.raises(ValueError, match=r"`split`.*Received: 'dev'"):
        datasets.TripleBatches(triples, "dev")
    with pytest.raises(ValueError, match=r"`batch_size`.*Received: batch_size=0"):
        datasets.TripleBatches(triples, "train", 0)


@pytest.mark.parametrize("limit", [2, 1000])
def test_bags_with_all_labels_of_a_row(limit):
    """As many as asked for, all different, others at another visit; the same for the same seed."""
    data = small_xmc()
    labels = data.split("train").labels
    longest = int(np.diff(labels.indptr).max())
    batches = datasets.BagBatches(data, "train", 64, seed=3, max_labels=limit)
    again = datasets.BagBatches(data, "train", 64, seed=3, max_labels=limit)
    assert_same(list(batches), list(again))
    visits = []
    for epoch in (0, 1):
        batches.set_epoch(epoch)
        found = {}
        for i in range(len(batches)):
            own = batches[i][1]
            assert own.dtype == np.int32 and own.shape == (64, min(limit, longest))
            for row, ids in zip(batches.numbers(i), own, strict=True):
                ids = ids[ids >= 0]
                truth = labels[row].indices
                assert len(set(ids)) == len(ids) == min(len(truth), limit)
                assert set(ids) <= set(truth)
                found[int(row)] = tuple(ids)
        visits.append(found)
    assert (visits[0] == visits[1]) == (limit >= longest)
    one = datasets.BagBatches(data, "train", 64, seed=3)
    again.set_epoch(0)
    np.testing.assert_array_equal(one.numbers(0), again.numbers(0))
