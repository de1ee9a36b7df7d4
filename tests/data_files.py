"""Small data files for the tests, in every format that is read."""

import numpy as np


def xmc_text(rows, num_features, num_labels):
    """The format's text of rows `(labels, {feature: weight})`."""
    lines = [f"{len(rows)} {num_features} {num_labels}"]
    for labels, features in rows:
        words = [f"{i}:{w:.9g}" for i, w in features.items()]
        lines.append(" ".join([",".join(map(str, labels)), *words]))
    return "\n".join(lines) + "\n"


def random_rows(size, num_features, num_labels, seed=0, per_row=4):
    """Random rows, among them one without labels and one without features."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(size):
        labels = rng.choice(num_labels, rng.integers(1, 4), replace=False).tolist()
        ids = np.sort(rng.choice(num_features, rng.integers(1, per_row + 1), replace=False))
        weights = np.float32(rng.uniform(0.1, 2, len(ids)))
        rows.append((labels, dict(zip(ids.tolist(), weights.tolist(), strict=True))))
    rows[1] = ([], rows[1][1])
    rows[2] = (rows[2][0], {})
    return rows


def write_xmc_folder(folder, name="own", size=40, num_features=30, num_labels=12):
    """Writes train and test files as `softbench.datasets.load` finds them; returns the rows."""
    (folder / "xmc").mkdir(parents=True, exist_ok=True)
    rows = {}
    for index, split in enumerate(("train", "test")):
        rows[split] = random_rows(size, num_features, num_labels, seed=index)
        text = xmc_text(rows[split], num_features, num_labels)
        (folder / "xmc" / f"{name}_{split}.txt").write_text(text)
    return rows


TRIPLES = {
    "train": "a,r,b\nc,r,b\na,s,c\nb,s,d\n",
    "valid": "a,r,e\n",
    "test": "c,s,b\nd,r,b\n",
}


def write_triples_folder(folder):
    """Writes `TRIPLES` to wd50k/."""
    (folder / "wd50k").mkdir(parents=True, exist_ok=True)
    for split, text in TRIPLES.items():
        (folder / "wd50k" / f"{split}.txt").write_text(text)


def write_text_folder(folder, train="b a b\n\na c b\n", test="a z b\n"):
    """Writes text/train.txt and text/test.txt."""
    (folder / "text").mkdir(parents=True, exist_ok=True)
    (folder / "text" / "train.txt").write_text(train)
    (folder / "text" / "test.txt").write_text(test)


def histories(data):
    """{user: items} by their names, in the order of time."""
    whole = data.before("test").joined(data.test)
    spans = zip(data.users, whole.ends, whole.ends[1:], strict=False)
    return {user: [data.items[i] for i in whole.items[a:b]] for user, a, b in spans}
