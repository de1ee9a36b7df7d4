"""Data sets and batching: NumPy only, no Keras."""

import bisect
import os
import pathlib

import numpy as np
import pytest
import scipy.sparse as sp

from softbench import datasets
from softbench.datasets import draws, ptb

ROOT = pathlib.Path(__file__).resolve().parents[1]


def small_xmc(**sizes):
    given = dict(num_classes=60, num_features=300, num_train=200, num_valid=20, num_test=30)
    return datasets.synthetic_xmc(**{**given, **sizes})


def bag_data(features, labels):
    features = sp.csr_matrix(np.array(features, np.float32))
    labels = sp.csr_matrix(np.array(labels, np.float32))
    counts = np.asarray(labels.sum(0)).ravel().astype(np.int64)
    parts = (features, labels) * 3
    return datasets.MultiLabelData("hand", *parts, features.shape[1], labels.shape[1], counts)


def test_load_names_and_errors():
    assert datasets.load("synthetic_language", num_classes=5, num_train=50).num_classes == 5
    generated = "synthetic_interactions, synthetic_language, synthetic_triples, synthetic_xmc"
    with pytest.raises(ValueError, match=rf"ptb, {generated}, .*'x'"):
        datasets.load("x")
    with pytest.raises(ValueError, match=r"`sizes`.*Received: .*bogus"):
        datasets.load("synthetic_xmc", bogus=1)
    with pytest.raises(ValueError, match=r"`options` of 'ptb' must be among: verify"):
        datasets.load("ptb", num_train=1)
    with pytest.raises(FileNotFoundError, match=r"`data_dir` must be given for 'wd50k'.*StarE"):
        datasets.load("wd50k")


def test_splits_are_read_by_name():
    data = small_xmc()
    features, labels = data.split("valid")
    assert features is data.valid_features and labels is data.valid_labels
    assert data.split("test").labels is data.test_labels
    words = datasets.synthetic_language(5, 50)
    assert words.split("train") is words.train
    for other in (data, words):
        with pytest.raises(ValueError, match=r"`split` must be train, valid or test.*: 'dev'"):
            other.split("dev")


def test_draws_by_the_cumulative_sum():
    """Against Python's bisection, number by number; a class of weight 0 is never drawn."""
    weights = np.array([0.0, 2.0, 0.0, 1.0, 5.0, 0.0])
    ids = draws.draw(draws.random_generator(3), weights, (500, 2))
    uniform = draws.random_generator(3).random((500, 2))
    ends = [0.0, 2.0, 2.0, 3.0, 8.0, 8.0]
    expected = [[bisect.bisect_right(ends, 8.0 * u) for u in row] for row in uniform]
    np.testing.assert_array_equal(ids, expected)
    assert set(ids.ravel()) == {1, 3, 4}
    table = np.array([[0.25, 0.75], [1.0, 0.0]])
    rows = np.array([0, 1, 0, 0])
    uniform = np.array([[0.2, 0.3], [0.0, 0.999], [0.25, 0.0], [0.999, 0.249]])
    expected = [[0, 1], [0, 0], [1, 0], [1, 0]]
    np.testing.assert_array_equal(draws.draw_rows(table, rows, uniform), expected)
    np.testing.assert_array_equal(draws.draw_rows(table, rows, uniform[:, 1]), [1, 0, 0, 0])


def test_carried_batches_by_hand():
    batches = datasets.CarriedBatches(np.arange(15), batch_size=2, num_steps=3)
    # rows 0..6 and 7..13, (7 - 1) // 3 = 2 batches; 14 predictions, 12 of them covered
    assert len(batches) == 2
    (x0, y0), (x1, y1) = batches
    np.testing.assert_array_equal(x0, [[0, 1, 2], [7, 8, 9]])
    np.testing.assert_array_equal(y0, [[1, 2, 3], [8, 9, 10]])
    np.testing.assert_array_equal(x1, [[3, 4, 5], [10, 11, 12]])
    np.testing.assert_array_equal(y1, [[4, 5, 6], [11, 12, 13]])
    assert x0.dtype == y0.dtype == np.int32


def test_synthetic_triples_tell_the_tail_by_head_and_relation():
    sizes = {"num_classes": 40, "num_relations": 3, "num_train": 3_000}
    sizes |= {"num_valid": 50, "num_test": 60}
    data = datasets.load("synthetic_triples", **sizes)
    splits = [data.split(name) for name in datasets.SPLITS]
    assert [len(part) for part in splits] == [3_000, 50, 60]
    relations, tails = data.train[:, 1], data.train[:, 2]
    assert data.train.dtype == np.int32 and relations.max() == 2
    np.testing.assert_array_equal(data.counts, np.bincount(tails, minlength=40))
    assert np.all(np.diff(data.counts) <= 0) and len(data.entities) == data.num_classes == 40
    every = np.concatenate(splits)
    for pair in np.unique(every[:, :2], axis=0):
        assert len(np.unique(every[(every[:, :2] == pair).all(1), 2])) <= 4
    same, other = (datasets.synthetic_triples(**sizes, seed=seed).train for seed in (0, 1))
    np.testing.assert_array_equal(same, data.train)
    assert not np.array_equal(other, same)
    with pytest.raises(ValueError, match=r"`num_relations`.*Received: num_relations=0"):
        datasets.synthetic_triples(num_relations=0)


def test_batches_reject_bad_input():
    with pytest.raises(ValueError, match=r"`tokens` must hold at least.*Received: 5"):
        datasets.CarriedBatches(np.arange(5), 2, 3)
    with pytest.raises(ValueError, match=r"`batch_size`.*Received: batch_size=0"):
        datasets.CarriedBatches(np.arange(5), 0, 3)
    with pytest.raises(ValueError, match=r"`tokens`.*float64"):
        datasets.CarriedBatches(np.zeros(50), 2, 3)
    with pytest.raises(IndexError):
        datasets.CarriedBatches(np.arange(15), 2, 3)[2]


@pytest.mark.parametrize("size", [2, 7, 24, 25, 26, 31])
def test_evaluation_batches_cover_every_prediction_once(size):
    tokens = np.arange(100, 100 + size)
    batches = datasets.EvaluationBatches(tokens, 4, 3)
    seen = [y[w == 1] for _, y, w in batches]
    assert sorted(np.concatenate(seen)) == list(tokens[1:])
    for x, y, w in batches:
        assert x.shape == y.shape == w.shape == (4, 3)
        np.testing.assert_array_equal((y - x)[w == 1], 1)
    joined = np.concatenate([y for _, y, _ in batches], 1)
    weight = np.concatenate([w for _, _, w in batches], 1)
    for row, kept in zip(joined, weight, strict=True):  # rows are contiguous: state carries
        np.testing.assert_array_equal(np.diff(row[kept == 1]), 1)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 50])
def test_language_conditionals_sum_to_one(n):
    data = datasets.synthetic_language(n, 300, 20, 20, seed=3, num_groups=8)
    for p, labels in data.truth():
        np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
        assert (p[labels.nonzero()] > 0).all()


def test_language_draws_follow_the_stated_distribution():
    """Pearson chi-square of what follows one context, against its truth, 1 in 10,000."""
    data = datasets.synthetic_language(12, 1, 1, 60_000, seed=1, num_groups=4)
    pairs = data.test[:-2].astype(np.int64) * 12 + data.test[1:-1]
    context = pairs == np.bincount(pairs).argmax()
    observed = np.bincount(data.test[2:][context], minlength=12)
    p = np.concatenate([p for p, _ in data.truth()])[1:][context]
    np.testing.assert_array_equal(p, np.broadcast_to(p[0], p.shape))
    expected = p[0] * observed.sum()
    possible = expected > 0
    assert observed[~possible].sum() == 0
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    assert statistic < 37.4  # 0.9999 quantile of chi-square with 11 degrees of freedom


def test_language_has_structure_and_is_deterministic():
    data = datasets.synthetic_language(2_000, 60_000, 5_000, 5_000, seed=0)
    again = datasets.synthetic_language(2_000, 60_000, 5_000, 5_000, seed=0)
    other = datasets.synthetic_language(2_000, 60_000, 5_000, 5_000, seed=1)
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(getattr(data, split), getattr(again, split))
    assert (data.train != other.train).mean() > 0.5
    assert [len(data.train), len(data.valid), len(data.test)] == [60_000, 5_000, 5_000]
    assert data.train.dtype == np.int32 and data.counts.dtype == np.int64
    np.testing.assert_array_equal(data.counts, np.bincount(data.train, minlength=2_000))
    assert (np.diff(data.counts) <= 0).all()
    uniform = np.full(2_000, 1 / 2_000)
    joint = np.zeros((2_000, 2_000))
    np.add.at(joint, (data.train[:-1], data.train[1:]), 1.0)
    seen = joint.sum(1, keepdims=True)
    prior = (data.counts + 1.0) / (data.counts.sum() + 2_000)
    unigram = np.exp(-np.log(prior[data.test]).mean())
    bigram = (joint + 50 * prior) / (seen + 50)
    bigram = np.exp(-np.log(bigram[data.test[:-1], data.test[1:]]).mean())
    (p, labels), *_ = data.truth()
    true = np.exp(-np.log(p[labels.nonzero()]).mean())
    assert true < bigram < 0.5 * unigram < 0.5 / uniform[0]


def test_language_rejects_bad_arguments():
    with pytest.raises(ValueError, match=r"`num_classes`.*Received: num_classes=0"):
        datasets.synthetic_language(0)
    with pytest.raises(ValueError, match=r"`collocation`.*Received: 1.5"):
        datasets.synthetic_language(10, collocation=1.5)


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 257])
def test_xmc_of_any_size(n):
    data = small_xmc(num_classes=n)
    assert data.train_features.shape == (200, 300) and data.train_labels.shape == (200, n)
    assert data.valid_labels.shape == (20, n) and data.test_features.shape == (30, 300)
    assert (np.diff(data.train_labels.indptr) >= 1).all()
    assert set(data.train_labels.data) == {1.0}
    assert data.train_features.dtype == np.float32 and data.counts.dtype == np.int64
    np.testing.assert_array_equal(data.counts, np.asarray(data.train_labels.sum(0)).ravel())
    norms = np.sqrt(np.asarray(data.train_features.multiply(data.train_features).sum(1)))
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)


def test_xmc_is_learnable_and_deterministic():
    data = datasets.synthetic_xmc(500, 3_000, 4_000, 300, 500, seed=0)
    again = datasets.synthetic_xmc(500, 3_000, 4_000, 300, 500, seed=0)
    assert (data.train_features != again.train_features).nnz == 0
    assert (data.test_labels != again.test_labels).nnz == 0
    frequent = data.test_labels[:, int(data.counts.argmax())].mean()
    sums = (data.train_labels.T @ data.train_features).toarray()
    scores = data.test_features @ (sums / np.maximum(data.counts, 1)[:, None]).T
    precision = data.test_labels[np.arange(500), scores.argmax(1)].mean()
    assert precision > 0.5 > 5 * frequent
    with pytest.raises(ValueError, match=r"`labels_per_example`.*Received: 0.5"):
        small_xmc(labels_per_example=0.5)


def test_bag_batches_by_hand():
    features = [[0, 2, 0, 1], [3, 0, 0, 0], [0, 0, 0, 0], [1, 5, -9, 2], [0, 0, 7, 0]]
    labels = [[0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]]
    data = bag_data(features, labels)
    bags = datasets.BagBatches(data, "train", batch_size=2, max_features=2, seed=5)
    assert (bags.num_rows, len(bags)) == (3, 2)
    expected = {2: ([1, 3], [2, 1]), 0: ([0, 0], [3, 0]), 1: ([1, 2], [5, -9])}
    seen = []
    for (ids, weights), targets in bags:
        assert ids.shape == weights.shape == (2, 2)
        assert (ids.dtype, weights.dtype, targets.dtype) == (np.int32, np.float32, np.int32)
        for i, w, y in zip(ids, weights, targets, strict=True):
            np.testing.assert_array_equal(i, expected[y][0])
            np.testing.assert_array_equal(w, expected[y][1])
            seen.append(int(y))
    assert sorted(seen[:3]) == [0, 1, 2] and seen[3] == seen[0]  # wraps to its own start
    assert bags.epoch == 1


@pytest.mark.parametrize("longest", ["train", "valid", "test"])
def test_bags_have_room_for_the_longest_row_of_all_splits(longest):
    """They share one shape, and no row of any split is cut."""
    data = bag_data(np.eye(2, 5), np.eye(2))
    data = data._replace(**{f"{longest}_features": sp.csr_matrix(np.ones((2, 5)))})
    for split in ("train", "valid", "test"):
        bags = datasets.BagBatches(data, split, 2)
        assert bags.max_features == 5


def test_bag_batches_epochs():
    data = small_xmc()
    bags, again = (datasets.BagBatches(data, "train", 64, seed=2) for _ in range(2))
    first, second = list(bags), list(bags)
    assert any((a[1] != b[1]).any() for a, b in zip(first, second, strict=True))
    again.on_epoch_end()
    for a, b in zip(second, again, strict=True):
        np.testing.assert_array_equal(a[0][0], b[0][0])
        np.testing.assert_array_equal(a[1], b[1])


def test_bag_targets_are_uniform_over_the_labels():
    data = bag_data([[1.0]] * 4000, [[1, 0, 1, 1]] * 4000)
    (_, targets) = datasets.BagBatches(data, "train", 4000)[0]
    observed = np.bincount(targets, minlength=4)
    assert observed[1] == 0
    kept = observed[[0, 2, 3]]
    statistic = ((kept - 4000 / 3) ** 2 / (4000 / 3)).sum()
    assert statistic < 18.4  # 0.9999 quantile of chi-square with 2 degrees of freedom


def test_bag_batches_for_evaluation():
    data = small_xmc()
    bags = datasets.BagBatches(data, "test", 8)
    rebuilt, truth, masks = [], [], []
    for (ids, weights), labels, mask in bags:
        assert ids.shape == (8, bags.max_features) and labels.shape == (8, 60)
        dense = np.zeros((8, 300), np.float32)
        np.add.at(dense, (np.arange(8)[:, None], ids), weights)
        rebuilt.append(dense)
        truth.append(labels.toarray())
        masks.append(mask)
    mask = np.concatenate(masks)
    assert mask.tolist() == [1.0] * 30 + [0.0] * 2
    np.testing.assert_array_equal(np.concatenate(rebuilt)[:30], data.test_features.toarray())
    np.testing.assert_array_equal(np.concatenate(truth)[:30], data.test_labels.toarray())
    assert np.concatenate(truth)[30:].sum() == 0
    with pytest.raises(ValueError, match=r"`split`.*Received: 'dev'"):
        datasets.BagBatches(data, "dev")


def test_padded_labels():
    labels = sp.csr_matrix(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    np.testing.assert_array_equal(datasets.padded_labels(labels), [[1, 2], [-1, -1], [0, -1]])
    with pytest.raises(ValueError, match=r"`width`.*Received: 1"):
        datasets.padded_labels(labels, 1)


def write_ptb(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in texts.items():
        (folder / f"ptb.{split}.txt").write_text(text)


def test_ptb_reads_a_folder(tmp_path):
    write_ptb(tmp_path / "ptb", train=" b a b \n a c \n", valid=" c \n", test=" a z \n")
    for folder in (tmp_path, tmp_path / "ptb"):
        data = datasets.load("ptb", data_dir=folder, verify=False)
        # 2, 2, 2, 1: ties alphabetical; a word of the test text alone is unknown
        assert data.vocabulary == ["<eos>", "a", "b", "c", "<unk>"]
        np.testing.assert_array_equal(data.counts, [2, 2, 2, 1, 0])
        np.testing.assert_array_equal(data.train, [2, 1, 2, 0, 1, 3, 0])
        np.testing.assert_array_equal(data.test, [1, 4, 0])
    with pytest.raises(ValueError, match=r"`data_dir`.*sha256.*Received"):
        datasets.load("ptb", data_dir=str(tmp_path))


def test_ptb_bad_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`data_dir`.*Received: .*missing") as caught:
        datasets.load("ptb", data_dir=str(tmp_path / "missing"))
    assert "\n" not in str(caught.value)


def test_ptb_downloads_once_to_the_cache(tmp_path, monkeypatch):
    served = tmp_path / "served"
    write_ptb(served, train=" a b \n", valid=" a \n", test=" b \n")
    monkeypatch.setenv("SOFTBENCH_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(ptb, "URL", served.as_uri() + "/")
    with pytest.raises(ValueError, match="sha256"):
        datasets.load("ptb")
    assert not list((tmp_path / "cache").rglob("*.txt"))
    assert len(datasets.load("ptb", verify=False).train) == 3
    monkeypatch.setattr(ptb, "URL", (tmp_path / "gone").as_uri() + "/")
    assert len(datasets.load("ptb", verify=False).train) == 3
    monkeypatch.setenv("SOFTBENCH_DATA", str(tmp_path / "empty"))
    with pytest.raises(OSError, match=r"`data_dir` was not given.*Received: file"):
        datasets.load("ptb")


def test_ptb_real_text():
    folder = pathlib.Path(os.environ.get("SOFTBENCH_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "ptb" / "ptb.train.txt").is_file():
        pytest.skip(
            "Penn Treebank is not at hand: set SOFTBENCH_DATA to the folder that holds ptb/"
        )
    data = datasets.load("ptb", data_dir=str(folder))
    assert [len(data.train), len(data.valid), len(data.test)] == [929_589, 73_760, 82_430]
    assert data.num_classes == len(data.vocabulary) == 10_000
    assert data.vocabulary[:3] == ["the", "<unk>", "<eos>"]
    assert data.counts.sum() == 929_589 and (np.diff(data.counts) <= 0).all()
    assert len(datasets.CarriedBatches(data.train, 20, 20)) == 2_323  # (929589 // 20 - 1) // 20
