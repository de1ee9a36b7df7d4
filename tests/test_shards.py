"""Rows that are streamed from Parquet files: all of them once, by hosts, at any step."""

import json
from collections import Counter

import keras
import numpy as np
import pytest
from small_runs import run_cells_here

from softbench import __main__ as command
from softbench import datasets
from softbench.bench.training import recommenders
from softbench.datasets import Prefetched, shards

pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
SIZES = (70, 0, 33, 120)  # rows of each file; groups of 16


def write(folder, columns, sizes=SIZES):
    import pyarrow.parquet as pq

    done = 0
    for number, size in enumerate(sizes):
        part = {name: values[done : done + size] for name, values in columns.items()}
        pq.write_table(pa.table(part), folder / f"{number}.parquet", row_group_size=16)
        done += size
    return str(folder / "*.parquet")


@pytest.fixture
def rows(tmp_path):
    """Row r has user r and item r % 7."""
    number = np.arange(sum(SIZES))
    return shards.row_groups(write(tmp_path, {"user": number, "item": number % 7}), ("user",))


def users(batches):
    return np.concatenate([batch[0] for batch in batches])


@pytest.mark.parametrize("hosts", [1, 3])
def test_hosts_share_the_rows_of_an_epoch(rows, hosts):
    parts = [
        shards.InteractionShards(rows, 8, seed=5, window=50, host=host, num_hosts=hosts)
        for host in range(hosts)
    ]
    orders = []
    for epoch in range(2):
        seen = Counter(np.concatenate([users(part) for part in parts]).tolist())  # and goes on
        assert {part.epoch for part in parts} == {epoch + 1}
        assert sorted(seen) == list(range(223))
        filled = hosts * 8 * len(parts[0]) - 223
        assert sum(seen.values()) == 223 + filled and max(seen.values()) <= 2
        orders.append(list(seen))
    assert orders[0] != orders[1] and orders[0] != sorted(orders[0])
    batch = parts[0][0]
    assert all(array.dtype == np.int32 and array.shape == (8,) for array in batch)
    assert np.array_equal(batch[1], batch[0] % 7)
    again = shards.InteractionShards(rows, 8, seed=6, window=50)
    assert list(users(again)) != list(users(shards.InteractionShards(rows, 8, seed=5, window=50)))


def test_rows_of_a_window_are_of_several_groups_and_mixed(rows):
    first = users([shards.InteractionShards(rows, 64, window=64)[0]])
    assert len({user // 16 for user in first.tolist()}) >= 4
    assert np.abs(np.diff(first)).mean() > 16  # 1, if groups were read one after the other


@pytest.mark.parametrize("ahead", [False, True])
def test_it_goes_on_at_any_step(rows, ahead):
    def batches():
        made = shards.InteractionShards(rows, 8, seed=2, window=40)
        return Prefetched(made) if ahead else made

    whole = batches()
    whole.set_epoch(3)
    expected = [whole[i] for i in range(len(whole))]
    for step in (0, 7, len(whole) - 1):
        resumed = batches()
        resumed.set_epoch(3)
        for index in range(step, len(whole)):
            assert np.array_equal(resumed[index], expected[index])


def test_sparse_rows_draw_one_of_their_labels(tmp_path):
    """Row r has features r + k of values 0.5 r + k, and labels 3 r and 3 r + 2; 3 are kept."""
    number = range(sum(SIZES))
    columns = {
        "features": [list(range(r, r + 1 + r % 4)) for r in number],
        "values": [[0.5 * r + k for k in range(1 + r % 4)] for r in number],
        "labels": [[3 * r, 3 * r + 2] for r in number],
    }
    path = write(tmp_path, columns)
    batches = shards.BagShards(shards.row_groups(path, list(columns)), 16, 3, window=40)
    drawn = []
    for (ids, weights), labels in batches:
        row = labels // 3
        filled = np.arange(3) < 1 + row[:, None] % 4
        k = np.maximum(row % 4 - 2, 0)[:, None] + np.arange(3)
        assert np.array_equal(ids, np.where(filled, row[:, None] + k, 0))
        expected = np.where(filled, 0.5 * row[:, None] + k, 0)
        assert np.array_equal(weights, expected.astype("float32"))
        drawn.append(labels)
    places = np.concatenate(drawn) % 3
    assert set(places.tolist()) == {0, 2} and 70 < (places == 0).sum() < 154
    columns["labels"][5] = []
    with pytest.raises(ValueError, match="must have one of 'labels'"):
        list(shards.BagShards(shards.row_groups(write(tmp_path, columns), list(columns)), 16))


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ([0, None, 2], "'item' must have all values. Received: 1 missing"),
        ([0, -1, 2], "whole numbers from 0 to .* from -1 to 2"),
        ([0, 2**31, 2], "whole numbers from 0 to .* to 2147483648"),
        ([0.5, 1.5, 2.0], "whole numbers from 0 .*float64"),
    ],
)
def test_wrong_ids_are_an_error(tmp_path, items, error):
    path = write(tmp_path, {"user": [0, 1, 2], "item": items}, (3,))
    rows = shards.row_groups(path, ("user", "item"))
    with pytest.raises(ValueError, match=error):
        shards.InteractionShards(rows, 2)[0]
    with pytest.raises(ValueError, match=r"0.parquet must have the columns user, x.* no x"):
        shards.row_groups(tmp_path, ("user", "x"))
    with pytest.raises(FileNotFoundError, match="no such file"):
        shards.row_groups(tmp_path / "*.txt", ("user",))
    (tmp_path / "9.parquet").write_text("user,item")
    with pytest.raises(ValueError, match=r"9.parquet must be Parquet"):
        shards.row_groups(tmp_path, ("user",))
    with pytest.raises(ValueError, match=r"`host` must be in \[0, 2\)"):
        shards.InteractionShards(rows, host=2, num_hosts=2)


def interactions(folder, **options):
    """Users 0 to 19, items 0 to 9 of 200 rows in two files: the split, and what is kept of it."""
    rng = np.random.default_rng(7)
    columns = {"user": rng.integers(20, size=200), "item": rng.integers(10, size=200)}
    path = write(folder, columns, (120, 80))
    options = {"valid_fraction": 0.2, "test_fraction": 0.1, **options}
    return columns, path, options


@pytest.mark.parametrize("most", [100, 3])
def test_the_split_is_by_row_groups_and_keeps_the_asked_users(tmp_path, most):
    """13 groups of 16 rows, but for 8 at the end of the first file: 9, 3 and 1 of them."""
    columns, path, options = interactions(tmp_path)
    place = tmp_path / "out"
    datasets.prepare("interaction_shards", path, place, held_out_users=most, **options)
    options["held_out_users"] = most
    data = datasets.load("interaction_shards", data_dir=place, **options)
    ends = {"train": (0, 136), "valid": (136, 184), "test": (184, 200)}
    counted = columns["item"][:136]
    assert np.array_equal(data.counts, np.bincount(counted, minlength=columns["item"].max() + 1))
    known = np.unique(columns["user"][136:])
    asked = [user for user in range(20) if data.before("test").sizes()[user]]
    assert len(asked) == min(most, len(known)) and set(asked) <= set(known.tolist())
    for split, (start, end) in ends.items():
        lists = data.split(split)
        for user in range(20):
            own = lists.items[lists.ends[user] : lists.ends[user + 1]].tolist()
            rows = (columns["user"][start:end] == user) & (user in asked)
            assert own == columns["item"][start:end][rows].tolist()
    seen = [np.concatenate(parts) for parts in zip(*data.stream(8, seed=1), strict=True)]
    assert len(seen[0]) == 136
    rows = zip(columns["user"][:136], columns["item"][:136], strict=True)
    assert Counter(zip(*seen, strict=True)) == Counter(rows)


def test_streamed_interactions_have_all_measures_but_novelty(tmp_path):
    """It needs the users of every item, of whom only the asked ones are kept."""
    _, path, options = interactions(tmp_path, held_out_users=3)
    datasets.prepare("interaction_shards", path, tmp_path / "out", **options)
    data = datasets.load("interaction_shards", data_dir=tmp_path / "out", **options)
    model = {"name": "matrix_factorisation", "dim": 4, "batch_size": 16}
    config = {"model": model, "seed": 0, "steps_per_epoch": 0}
    measures = recommenders.problem(data, config)["evaluate"](None, "test")
    assert {"recall_at_5", "map_at_5", "coverage_at_5", "users_of_few"} <= set(measures)
    assert not any("novelty" in name for name in measures)


def bags(folder, sizes=(120, 80), **options):
    """200 rows in two files, row r of features r % 9 to 9 or so, and one or two labels of 12."""
    columns = {
        "features": [[r % 9, 9 + r % 3][: 1 + r % 2] for r in range(200)],
        "values": [[1.0, 0.5][: 1 + r % 2] for r in range(200)],
        "labels": [[r % 9, 9 + r % 3][: 1 + (r % 5 == 0)] for r in range(200)],
    }
    options = {"valid_fraction": 0.2, "test_fraction": 0.1, **options}
    return columns, write(folder, columns, sizes), options


@pytest.mark.parametrize("most", [100, 5])
def test_rows_of_labels_are_split_by_row_groups(tmp_path, most):
    """13 groups of 16 rows, as above: 136 rows train, 48 and 16 are held out."""
    columns, path, options = bags(tmp_path, held_out_rows=most)
    datasets.prepare("xmc_shards", path, tmp_path / "out", **options)
    data = datasets.load("xmc_shards", data_dir=tmp_path / "out", **options)
    labels = np.concatenate(columns["labels"][:136])
    assert np.array_equal(data.counts, np.bincount(labels, minlength=12))
    assert (data.num_classes, data.num_features) == (12, 12)
    assert data.train_features.shape[0] == 0
    for split, (start, end) in {"valid": (136, 184), "test": (184, 200)}.items():
        kept = data.split(split)
        assert kept.features.shape == (min(most, end - start), 12)
        rows = [
            (tuple(f.indices), tuple(f.data), tuple(y.indices))
            for f, y in zip(kept.features, kept.labels, strict=True)
        ]
        known = list(zip(*(map(tuple, own[start:end]) for own in columns.values()), strict=True))
        places = [known.index(row) for row in rows]
        assert most < 100 or rows == known
        assert len(places) == len(rows)
    ids = np.concatenate([y for _, y in data.stream(8, seed=1)])
    assert len(ids) == 136 and set(ids.tolist()) <= set(labels.tolist())
    assert data.stream(8)[0][0][0].shape == (8, 2)  # the longest row


def test_a_row_without_a_label_is_found_before_training(tmp_path):
    columns, _, options = bags(tmp_path)
    columns["labels"][3] = []
    path = write(tmp_path, columns, (120, 80))
    with pytest.raises(ValueError, match="every row must have one of 'labels'"):
        datasets.prepare("xmc_shards", path, tmp_path / "out", **options)
    with pytest.raises(ValueError, match=r"`columns` must name those of features, values and"):
        datasets.prepare("xmc_shards", path, tmp_path / "out", columns="labels")


def benchmark(tmp_path, config, path, options, *flags):
    """The record of a run of a shipped config on a pattern of files."""
    line = ["softbench", f"--config={config}", f"--config.dataset.path={path}"]
    line += [f"--config.dataset.{key}={value}" for key, value in options.items()]
    line += ["--config.model.batch_size=16", "--config.methods=in_batch", *flags]
    line += ["--config.timing.head_repetitions=0", f"--workdir={tmp_path / 'out'}"]
    assert command.main([*line, f"--backend={keras.backend.backend()}"]) == 0
    (path,) = (tmp_path / "out" / "runs").glob("*.json")
    record = json.loads(path.read_text())
    assert record["steps_per_epoch"] == 9  # of 136 rows
    return record


@pytest.mark.thorough
def test_the_benchmark_trains_on_a_pattern_of_files(tmp_path, monkeypatch):
    run_cells_here(monkeypatch)
    _, path, options = interactions(tmp_path)
    record = benchmark(tmp_path, "interactions", path, options, "--config.model.dim=4")
    assert record["config"]["dataset"]["name"] == "interaction_shards"
    assert record["num_classes"] == 10 and 0 < record["final"]["test_ndcg_at_5"] < 1


@pytest.mark.thorough
def test_the_benchmark_trains_on_streamed_rows_of_labels(tmp_path, capsys, monkeypatch):
    """Features tell the label of most rows; the most frequent labels are a ninth each."""
    run_cells_here(monkeypatch)
    _, path, options = bags(tmp_path)
    flags = "--config.model.dim=8", "--config.epochs=8"
    record = benchmark(tmp_path, "own_xmc", path, options, *flags)
    assert record["config"]["dataset"]["name"] == "xmc_shards"
    assert record["num_classes"] == 12 and record["final"]["test_precision_at_1"] > 0.8
    assert "accuracy" not in str(record["final"])
    assert "136 train" in capsys.readouterr().out
