"""Writes tests/data/rectools.json: random rankings, and what RecTools' own metrics say of them.

    pip install rectools==0.19.0
    python tests/rectools_figures.py

in an environment of its own: RecTools needs NumPy 1, and JAX needs NumPy 2. It imports nothing of
softbench; tests/test_metrics.py compares `softbench.metrics.ranking` with the file.
"""

import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
from rectools import Columns
from rectools.metrics import MAP, MRR, NDCG, CatalogCoverage, MeanInvUserFreq, Precision, Recall

N, USERS, RANKED, DEPTHS = 25, 30, 18, (1, 5, 10)
RNG = np.random.default_rng(5)
BUCKETS = ("head", "torso", "tail")


def padded(rows):
    width = max(map(len, rows))
    return [list(map(int, row)) + [-1] * (width - len(row)) for row in rows]


def thirds(counts):
    """Items in the order of counts, by the third of all interactions in which they begin."""
    order, before, bucket = np.argsort(-counts, kind="stable"), 0, {}
    for item in order:
        bucket[int(item)] = BUCKETS[min(3 * before // counts.sum(), 2) if counts[item] else 2]
        before += counts[item]
    return bucket


def figures(reco, interactions, train):
    values = {}
    for k in DEPTHS:
        of_labels = {
            "precision": Precision(k),
            "recall": Recall(k),
            "ndcg": NDCG(k, divide_by_achievable=True),
            "mrr": MRR(k),
            "map": MAP(k),
        }
        for name, metric in of_labels.items():
            values[f"{name}_at_{k}"] = metric.calc(reco, interactions)
        if train is not None:
            values[f"novelty_at_{k}"] = MeanInvUserFreq(k).calc(reco, train)
    return {name: float(value) for name, value in values.items()}


def main():
    weights = 1 / np.arange(1, N + 1)
    train = pd.DataFrame(
        {
            Columns.User: RNG.integers(40, size=300),
            Columns.Item: RNG.choice(N - 2, 300, p=weights[: N - 2] / weights[: N - 2].sum()),
        }
    )
    counts = np.bincount(train[Columns.Item], minlength=N)
    top_ids = [RNG.permutation(N)[:RANKED] for _ in range(USERS)]
    top_ids[7] = []  # a user with labels to whom nothing is recommended
    labels = [RNG.permutation(N)[:size] for size in RNG.integers(1, 14, USERS)]
    labels[4] = labels[11] = []  # users without test items
    seen = [RNG.permutation(N)[:size] for size in RNG.integers(0, 9, USERS)]
    groups = RNG.choice(["new", "old"], USERS)
    left = [[i for i in row if i not in own] for row, own in zip(top_ids, seen, strict=True)]
    rows = [(user, item, 1 + rank) for user in range(USERS) for rank, item in enumerate(left[user])]
    reco = pd.DataFrame(rows, columns=[Columns.User, Columns.Item, Columns.Rank])
    pairs = [(user, item) for user in range(USERS) for item in labels[user]]
    test = pd.DataFrame(pairs, columns=[Columns.User, Columns.Item])
    values = {"": figures(reco, test, train)}
    for k in DEPTHS:
        coverage = CatalogCoverage(k, normalize=True).calc(reco, range(N))
        values[""][f"coverage_at_{k}"] = float(coverage)
    for group in ("new", "old"):
        kept = [frame[groups[frame[Columns.User]] == group] for frame in (reco, test)]
        values[f"_of_{group}"] = figures(*kept, train)
    bucket = test[Columns.Item].map(thirds(counts))
    for name in BUCKETS:
        values[f"_{name}"] = figures(reco, test[bucket == name], None)
    content = {
        "rectools": metadata.version("rectools"),
        "num_items": N,
        "ks": DEPTHS,
        "top_ids": padded(top_ids),
        "labels": padded(labels),
        "seen": padded(seen),
        "groups": groups.tolist(),
        "train_users": train[Columns.User].tolist(),
        "train_items": train[Columns.Item].tolist(),
        "figures": values,
    }
    path = Path(__file__).parent / "data" / "rectools.json"
    path.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
