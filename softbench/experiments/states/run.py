"""The task "states": trains an encoder, freezes it, and writes what it makes of the data.

Shape letters: B batch, T steps, N examples, K of them kept, d features, n classes.
"""

from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import scipy.sparse as sp

from softbench.bench import environment, matrix
from softbench.bench.job import Job
from softbench.bench.training import run as train
from softbench.bench.training.problems import Problem
from softbench.common import check_positive
from softbench.datasets import SPLITS, padded_labels, prepared
from softbench.datasets.states import PREFIX
from softbench.datasets.store import FolderStore

_REACHED = ("valid_perplexity", "test_perplexity", "test_precision_at_1")


def run(job: Job) -> None:
    """Trains as the task "train" does, then writes `<root>/states/<name>`; fills `job.result`.

    The root is the data folder; of generated data, which need none, it is the job's cache. The name
    is that of the data set. `options` are {split: rows}: where a split has more, so many are taken
    at random. A row with several labels is written with its first one.

    Raises:
        FileExistsError: before training, if the folder is there already.
        ValueError: for options that are no numbers of rows of splits.
    """
    rows = job.options
    if set(rows) != set(SPLITS):
        raise ValueError(f"`options` must be rows of {', '.join(SPLITS)}. Received: {rows}")
    check_positive(**rows)
    name, root = PREFIX + matrix.name(job.config["dataset"]), Path(job.data_dir or job.cache)
    folder = prepared.new_folder(name, root)
    folder.parent.mkdir(parents=True, exist_ok=True)  # fails before training, if at all
    model, problem = train.trained(job)
    if problem.held_out is None:
        raise ValueError("`dataset` must have rows with labels. Received: users' next items")

    def fill(store: FolderStore) -> dict:
        sizes, counts = {}, np.zeros(problem.num_classes, np.int64)
        for split in SPLITS:
            batches = problem.train if split == "train" else problem.held_out(split)
            sizes[split] = 0
            for hidden, labels in frozen(model.encoder, problem, batches, rows[split]):
                store.append(f"{split}_features", hidden)
                store.append(f"{split}_labels", labels)
                sizes[split] += len(labels)
                if split == "train":
                    counts += np.bincount(labels, minlength=len(counts))
        store.append("counts", counts)
        width = int(model.encoder.output.shape[-1])
        facts = {"num_features": width, "num_classes": problem.num_classes, "rows": sizes}
        return facts | {"repairs": {}, "encoder": _encoder(job)}

    prepared.write_folder(name, "states", root, fill, options={}, files={})
    job.result["states"] = {"name": name, "data": prepared.fingerprint(folder)}


def frozen(
    encoder: keras.Model, problem: Problem, batches: object, limit: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields hidden float32 (K, d) and labels int32 (K,) of one pass over batches.

    Of more than `limit` examples, that many are taken at random, the same in every run.
    """
    if batches is problem.train:
        batches.go_to(0)
    examples = [_kept(*batches[index][1:]) for index in range(len(batches))]
    ends = np.cumsum([0, *map(len, examples)])
    chosen = np.zeros(ends[-1], bool)
    order = np.random.default_rng(0).permutation(len(chosen))
    chosen[order[:limit]] = True
    for callback in problem.callbacks():
        callback.set_model(encoder)
        callback.on_predict_begin()
    for index, positions in enumerate(examples):
        x, y = batches[index][:2]
        hidden = encoder.predict_on_batch(x)
        kept = positions[chosen[ends[index] : ends[index + 1]]]
        yield hidden.reshape(-1, hidden.shape[-1])[kept].astype(np.float32), _labels(y)[kept]


def _kept(labels: object, weight: np.ndarray | None = None) -> np.ndarray:
    """Places of a batch, flattened, that hold an example with a label."""
    has = _labels(labels) >= 0
    return np.flatnonzero(has if weight is None else has & (weight.reshape(-1) > 0))


def _labels(labels: object) -> np.ndarray:
    """One label of each position, flattened int32; -1 where there is none."""
    if sp.issparse(labels):
        labels = padded_labels(labels)[:, 0]
    return np.asarray(labels, np.int32).reshape(-1)


def _encoder(job: Job) -> dict:
    """What a record says of the encoder whose states it used."""
    point, final = job.result["curve"][-1], job.result.get("best", job.result["final"])
    return {
        "cell": matrix.cell_id(job.config),
        "code": environment.code(),
        "git": environment.git_state(),
        "steps": final.get("step", point["step"]),
        "seconds": final.get("seconds", point["seconds"]),
        **{name: final[name] for name in _REACHED},
    }
