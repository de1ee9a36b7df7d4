"""Users' items: files, splits, packed histories and queries. NumPy only."""

import numpy as np
import pytest

from softbench import datasets
from softbench.datasets import histories, prepared
from softbench.datasets.lines import DataFileError

HISTORIES = "u a b c d\n\nv b a\nw c b a b e\n"
RNG = np.random.default_rng(7)


@pytest.fixture
def beauty(tmp_path):
    (tmp_path / "sequences").mkdir()
    (tmp_path / "sequences" / "beauty.txt").write_text(HISTORIES)
    return datasets.load("beauty", data_dir=tmp_path)


def named(data, split):
    lists = data.split(split)
    return [
        "".join(data.items[i] for i in lists.items[a:b])
        for a, b in zip(lists.ends, lists.ends[1:], strict=False)
    ]


def test_leave_one_out(beauty):
    """A user of two items is for training alone; ids go by frequency there, ties by name."""
    assert named(beauty, "train") == ["ab", "ba", "cba"]
    assert named(beauty, "valid") == ["c", "", "b"]
    assert named(beauty, "test") == ["d", "", "e"]
    assert beauty.items == ["a", "b", "c", "d", "e"] and beauty.counts.tolist() == [3, 3, 1, 0, 0]
    assert named(beauty._replace(train=beauty.before("test")), "train") == ["abc", "ba", "cbab"]
    assert beauty.before("valid") is beauty.train


def test_prepared_histories_are_the_same(beauty, tmp_path):
    datasets.prepare("beauty", tmp_path, tmp_path / "out")
    again = datasets.load("beauty", data_dir=tmp_path / "out")
    assert again.users == beauty.users == ["u", "v", "w"]
    for split in datasets.SPLITS:
        assert named(again, split) == named(beauty, split)


def by_time(tmp_path, text, **options):
    (tmp_path / "events.csv").write_text(text)
    options = {"min_count": 1, "min_length": 0, "split": "time", **options}
    return datasets.load("interactions", data_dir=tmp_path / "events.csv", **options)


TIMES = "user,item,time\nu,a,1\nu,b,2\nv,a,2\nv,c,3\nu,a,4\nv,b,4\nu,c,5\nv,b,5\nw,c,5\nw,b,5\n"


def test_split_by_time(tmp_path):
    """Rows of one time are in one split; what a user has had before is left out of the later ones.

    Of ten rows the last fifth, and before it three tenths: the test begins at 5, with all four rows
    of that time, validation at 4. In validation u has had a before, and in the test v b.
    """
    shares = {"valid_fraction": 0.3, "test_fraction": 0.2}
    data = by_time(tmp_path, TIMES, **shares)
    assert named(data, "train") == ["ab", "ac", ""]
    assert named(data, "valid") == ["", "b", ""]
    assert named(data, "test") == ["c", "", "cb"]
    assert data.counts.tolist() == [2, 1, 1] and data.items == ["a", "b", "c"]
    queries = datasets.Queries(data, "test", 1, lambda users: users)
    assert queries.users.tolist() == [0]  # w has no history
    options = {"min_count": 1, "min_length": 0, "split": "time", **shares}
    manifest = datasets.prepare(
        "interactions", tmp_path / "events.csv", tmp_path / "out", **options
    )
    assert prepared.summary(manifest)[1:] == [
        "dropped: 2 later events of items that the user has had before",
        "columns: user = user, item = item, time = time (numbers); CSV with commas",
        "split: 4 train, 1 valid, 3 test; by time: the last 0.2 of the events are the test, "
        "0.3 before them for validation",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "random"}, r"`split` must be one of: last, time\. Received: 'random'"),
        ({"test_fraction": 0.0}, r"`test_fraction` must be more than 0.*Received: 0\.1, 0\.0"),
        ({"valid_fraction": 0.5, "test_fraction": 0.5}, r"`valid_fraction` and .* Received: 0\.5"),
        ({"valid_fraction": 0.7, "test_fraction": 0.2}, "every split.*10 rows at 4 times"),
    ],
)
def test_splits_by_time_that_are_none(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        by_time(tmp_path, TIMES.replace("u,a,1", "u,a,2"), **options)


def test_a_split_by_time_needs_times(tmp_path):
    with pytest.raises(ValueError, match=r"`split`: events\.csv must have a column of times"):
        by_time(tmp_path, "user,item\nu,a\nu,b\nv,a\n")


def test_interactions_hold_out_one_of_each_user(tmp_path):
    lines = [f"{u} " + " ".join(map(str, RNG.permutation(30)[:20])) for u in range(40)]
    (tmp_path / "gowalla").mkdir()
    one = "40 7"  # a user who has but this
    (tmp_path / "gowalla" / "train.txt").write_text("\n".join([*lines, one]) + "\n")
    (tmp_path / "gowalla" / "test.txt").write_text("3 1 2\n5\n")
    data = datasets.load("gowalla", data_dir=tmp_path)
    sizes = {split: data.split(split).sizes() for split in datasets.SPLITS}
    assert sizes["train"].tolist() == [19] * 40 + [1]
    assert sizes["valid"].tolist() == [1] * 40 + [0]
    assert sizes["test"].tolist() == [0, 0, 0, 2] + [0] * 37
    places = [
        line.split()[1:].index(data.items[i])
        for line, i in zip(lines, data.valid.items, strict=True)
    ]
    assert 5 < np.mean(places) < 14  # of 0 to 19
    other = datasets.load("gowalla", data_dir=tmp_path, split_seed=1).valid.items
    assert not np.array_equal(other, data.valid.items)
    for user, line in enumerate(lines):
        start, end = data.before("test").ends[user : user + 2]
        own = sorted(data.items[i] for i in data.before("test").items[start:end])
        assert own == sorted(line.split()[1:])
    part = datasets.load("gowalla", data_dir=tmp_path, user_fraction=0.25)
    kept = [data.users.index(user) for user in part.users]
    assert 4 < len(kept) < 17 and kept == sorted(kept)
    had = [np.split(d.before("test").items, d.before("test").ends[1:-1]) for d in (data, part)]
    for index, user in enumerate(kept):
        whole, own = had[0][user], had[1][index]
        assert sorted(data.items[i] for i in whole) == sorted(part.items[i] for i in own)
    for fraction in (0, 1.5, 1e-9):
        with pytest.raises(ValueError, match=r"`user_fraction` must be in \(0, 1\]"):
            datasets.load("gowalla", data_dir=tmp_path, user_fraction=fraction)
    (tmp_path / "gowalla" / "test.txt").write_text("3 1\n\n99 2\n")
    with pytest.raises(DataFileError, match=r"test.txt:3: every user of the test .*'99'"):
        datasets.load("gowalla", data_dir=tmp_path)


@pytest.mark.parametrize("length", [1, 7, 50])
def test_packed_parts_do_not_overlap_and_leave_little_room(length):
    sizes = np.minimum(RNG.geometric(0.15, 400), length)
    places = histories.pack(sizes, length)
    assert np.all(places // length == (places + sizes - 1) // length)
    taken = np.concatenate([np.arange(p, p + s) for p, s in zip(places, sizes, strict=True)])
    assert len(set(taken.tolist())) == len(taken)
    rows = places.max() // length + 1
    assert set(places // length) == set(range(rows)) and rows <= 1.05 * sizes.sum() / length + 1


def test_packed_histories_hold_every_step_once():
    data = datasets.synthetic_interactions(50, 60, 12)
    batches = datasets.PackedHistories(data, batch_size=4, length=8, seed=3)
    expected = []
    for start, end in zip(data.train.ends, data.train.ends[1:], strict=False):
        kept = data.train.items[start:end].tolist()[-9:]
        first = 8 - (len(kept) - 1)
        expected += [(first + i, *kept[i : i + 2]) for i in range(len(kept) - 1)]
    orders = []
    for _ in range(2):
        found = []
        for (items, places), labels, weights in batches:
            assert items.shape == places.shape == labels.shape == weights.shape == (4, 8)
            rows = zip(places.ravel(), items.ravel(), labels.ravel(), strict=True)
            kept = weights.ravel() > 0
            found += [tuple(map(int, r)) for r, k in zip(rows, kept, strict=True) if k]
            # Places go up within a history alone, and there a step begins where the last one ended.
            later = (places[:, 1:] == places[:, :-1] + 1) & (weights[:, 1:] > 0)
            assert np.all(items[:, 1:][later] == labels[:, :-1][later])
            assert np.all(weights[:, :-1][later] > 0)
            assert np.all(places[:, :-1][~later & (weights[:, :-1] > 0)] == 7)
        assert sorted(found) == sorted(expected) and batches.num_positions == len(expected)
        orders.append(found)
    assert orders[0] != orders[1]


def test_interactions_are_the_training_lists(beauty):
    batches = datasets.InteractionBatches(beauty, batch_size=3)
    pairs = list(map(tuple, np.concatenate(list(batches), axis=1).T.tolist()))
    assert sorted(pairs[:7]) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert pairs[7:] == pairs[:2]


def test_queries(beauty):
    """Histories end at the last column; a label that was seen before is not among the seen."""
    inputs = datasets.history_inputs(beauty, "valid", 4)
    ((x, seen, labels, mask),) = datasets.Queries(beauty, "valid", 3, inputs)
    assert mask.tolist() == [1, 1, 0] and labels[:2].tolist() == [[2], [1]]
    assert [set(row[row >= 0].tolist()) for row in seen[:2]] == [{0, 1}, {2, 0}]
    assert x[0][:2].tolist() == [[0, 0, 0, 1], [0, 2, 1, 0]]
    assert x[1][:2].tolist() == [[3, 3, 2, 3], [3, 1, 2, 3]]
    limited = datasets.Queries(beauty, "test", 1, lambda users: users, limit=1)
    assert len(limited) == 1 and limited.users[0] in (0, 2)


def test_synthetic_interactions_tell_about_the_next_item():
    """Half of three in four next items is the likeliest one of 64 contexts: far from chance."""
    data = datasets.load("synthetic_interactions", num_classes=500, num_users=3000, seed=1)
    again = datasets.synthetic_interactions(500, 3000, seed=1)
    np.testing.assert_array_equal(data.train.items, again.train.items)
    assert np.all(np.diff(data.counts) <= 0) and data.counts.sum() == len(data.train.items)
    for start, end in zip(data.train.ends[:200], data.train.ends[1:], strict=False):
        own = data.train.items[start:end].tolist()
        assert len(set(own)) == len(own)
    batches = datasets.PackedHistories(data, 16, 16)
    pairs = np.concatenate([np.stack([x[0], y])[:, w > 0] for x, y, w in batches], axis=1)
    table = np.zeros((500, 500))
    np.add.at(table, tuple(pairs), 1)
    frequent = table.sum(0).max() / table.sum()
    assert table.max(1).sum() / table.sum() > 3 * frequent
    with pytest.raises(ValueError, match="`max_items` must be at least 3"):
        datasets.synthetic_interactions(max_items=2)
