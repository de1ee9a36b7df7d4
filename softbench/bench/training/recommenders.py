"""Recommenders: users' histories with SASRec, users' interactions with a factorisation.

Shape letters: B batch, T steps, d features, n items; of a user S seen items, R labels, K best ids.
"""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench import datasets, metrics, models, partition
from softbench.bench.training import build
from softbench.bench.training.evaluation import by_frequency
from softbench.common import Tensor
from softbench.heads import TiedEmbedding
from softbench.metrics.recommendation import without_seen
from softbench.targets import Targets

TOP_K = (1, 5, 10, 20)
USERS = 256  # scored at a time
USER_GROUPS = ("few", "some", "many")  # interactions in training
_SASREC = ("dim", "length", "num_blocks", "num_heads", "dropout", "hidden_units")  # of the config


def problem(data: datasets.InteractionData, config: dict) -> dict[str, Any]:
    """The fields of a `Problem`; `model` names "sasrec", "matrix_factorisation" or an encoder.

    With `refit` the validation set is training data, and there is none to be asked. Otherwise, of
    the users with a label in it, `model.valid_users` are evaluated after each epoch, and of those
    of the test set `model.test_users` at the end; all without it, or if it is 0.

    Raises:
        ValueError: for another model, or a `refit` of streamed interactions.
    """
    if config.get("refit"):
        data = _refitted(data)
    makers = {"sasrec": _sasrec, "matrix_factorisation": _matrix_factorisation}
    model = config["model"]
    name = "sasrec" if build.is_custom(model["name"]) else model["name"]
    if name not in makers:
        raise ValueError(
            f"`model.name` must be one of {', '.join(makers)} for data of users and items. "
            f"Received: {name!r}"
        )
    fields, inputs = makers[name](data, config)

    def queries(split: str) -> datasets.Queries:
        limit = model.get(f"{split}_users") or None
        return datasets.Queries(data, split, USERS, inputs(split), limit)

    novelty, sizes = _novelty(data), data.train.sizes()

    def score(trained: keras.Model | None, split: str) -> dict[str, float]:
        """Of the test by buckets of items and groups of users too."""
        by_group = sizes if split == "test" else None
        return evaluate(trained, queries(split), data.counts, novelty, by_group)

    def probe(other: keras.Model | None = None) -> tuple[np.ndarray, np.ndarray]:
        x, _, labels, mask = queries("valid")[0]
        encoder = other or fields["encoder"]
        hidden = _last(encoder(keras.tree.map_structure(ops.convert_to_tensor, x), training=False))
        return ops.convert_to_numpy(hidden)[mask > 0], labels[mask > 0, 0]

    return fields | {
        "num_classes": data.num_classes,
        "counts": data.counts,
        "evaluate": score,
        "probe": probe,
    }


def _refitted(data: datasets.InteractionData) -> datasets.InteractionData:
    """The data with the validation set in the training set, and none to be asked."""
    if data.stream is not None:
        raise ValueError("`refit` must be False for streamed interactions. Received: True")
    train = data.before("test")
    counts = np.bincount(train.items, minlength=data.num_classes)
    none = data.valid._replace(items=data.valid.items[:0], ends=np.zeros_like(data.valid.ends))
    return data._replace(train=train, valid=none, counts=counts)


def _sasrec(data: datasets.InteractionData, config: dict) -> tuple[dict, Callable]:
    """Fields of the problem, and (split) -> inputs of queries.

    With `model.tied` the encoder reads the head's table. A user's encoder takes the same
    inputs.
    """
    if data.stream is not None:
        raise ValueError(
            "`model.name` must be matrix_factorisation for streamed interactions, which have no "
            f"histories. Received: {config['model']['name']!r}"
        )
    model, n, custom = config["model"], data.num_classes, build.custom_encoder(data, config)
    options = {key: model[key] for key in _SASREC if key in model}
    length = options.setdefault("length", 50)
    train = datasets.PackedHistories(data, model["batch_size"], length, seed=config["seed"])

    def tied(head: keras.layers.Layer) -> keras.Model:
        row_optimizer = getattr(getattr(head, "table", None), "row_optimizer", None)
        if row_optimizer is not None:
            raise ValueError(
                "`model.tied` must be False where a `row_optimizer` updates the table of the head. "
                f"Received: {type(row_optimizer).__name__}"
            )
        return models.sasrec(n, item_embedding=TiedEmbedding(head), **options)

    fields = {
        "encoder": custom or models.sasrec(n, **options),
        "train": build.Batches(train, config["steps_per_epoch"]),
        "examples": round(train.num_positions / len(train)),
        "head_kwargs": {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.02)},
        "tied": tied if custom is None and model.get("tied", True) else None,
    }
    return fields, lambda split: datasets.history_inputs(data, split, length)


def _matrix_factorisation(data: datasets.InteractionData, config: dict) -> tuple[dict, Callable]:
    """As `_sasrec`."""
    model = config["model"]
    batch, row_optimizer = model["batch_size"], build.row_optimizer(model.get("row_optimizer"))
    rows, own = None, {}
    if model.get("spectral"):
        start = time.perf_counter()
        rows, of_items = _spectral_rows(data, config)
        own = {"head_kwargs": {"kernel_initializer": keras.initializers.Constant(of_items)}}
        own["start_seconds"] = time.perf_counter() - start
    excluded = [row["excluded"] for row in config.get("methods", {}).values() if "excluded" in row]
    if data.stream is None:
        had = max(excluded, default=0)
        train = datasets.InteractionBatches(data, batch, had, seed=config["seed"])
    elif excluded:
        raise ValueError(
            "`excluded` must be left out for streamed interactions, whose users' lists are not "
            f"held. Received: excluded={excluded[0]}"
        )
    else:
        train = datasets.Prefetched(data.stream(batch, seed=config["seed"]))
    sizes = len(data.train.ends) - 1, model["dim"]
    encoder = models.matrix_factorisation(*sizes, row_optimizer, batch, rows)
    if excluded:  # what the head takes is another entry of the inputs
        encoder = keras.Model({"users": encoder.input}, encoder.output)
    fields = {
        "encoder": encoder,
        "train": build.Batches(train, config["steps_per_epoch"]),
        "examples": batch,
        "num_rows": getattr(train, "num_numbers", None),
    }

    def inputs(users: np.ndarray) -> Any:
        users = users.astype(np.int32)
        return {"users": users} if excluded else users

    return fields | own, lambda split: inputs


def _spectral_rows(data: datasets.InteractionData, config: dict) -> tuple:
    """`models.spectral_rows` of the training interactions."""
    if data.stream is not None:
        raise ValueError("`model.spectral` must be False for streamed interactions. Received: True")
    sizes = data.train.sizes()
    users = np.repeat(np.arange(len(sizes)), sizes)
    numbers = len(sizes), data.num_classes, config["model"]["dim"]
    return models.spectral_rows(users, data.train.items, *numbers, config["seed"])


class _Answer(keras.layers.Layer):
    """hidden (B, d), seen (B, S), labels (B, R) -> best unseen ids (B, K), -log p (B, R), log p.

    The last (B,) is of the best unseen item, p over all items.
    """

    def __init__(self, head: keras.layers.Layer, k: int) -> None:
        super().__init__()
        self.head, self.k = head, k
        self.built = True

    def call(self, hidden: Tensor, seen: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        head, labels = self.head, ops.maximum(labels, 0)
        scores = head.prediction_scores(hidden, labels)
        log_z = head.negative_log_likelihood(hidden, Targets(labels[:, 0])) + scores[:, 0]
        scorer = partition.without(head.scorer(hidden), seen)
        ids = partition.top_k(scorer, hidden, head.units, self.k)[1]
        best = head.prediction_scores(hidden, ids[:, :1])[:, 0]  # as in `evaluation`
        return ids, log_z[:, None] - scores, best - log_z


def _last(hidden: Tensor) -> Tensor:
    """hidden (B, d), that of the last step if it is (B, T, d)."""
    return hidden[:, -1] if len(hidden.shape) == 3 else hidden


def _answers(model: keras.Model, queries: datasets.Queries, k: int) -> Callable[..., tuple]:
    """(x, seen, labels) -> what `_Answer` returns, by a trained `Classifier`; kept in it."""
    key = (k, *(array.shape for array in queries[0][1:3]))
    cache = model.__dict__.setdefault("_answers", {})
    if key not in cache:
        inputs = [keras.Input(i.shape[1:], key[1][0], i.dtype) for i in model.encoder.inputs]
        hidden = model.encoder(keras.tree.pack_sequence_as(model.encoder.input, inputs))
        seen, labels = (keras.Input(shape[1:], shape[0], dtype="int32") for shape in key[1:])
        outputs = _Answer(model.head, k)(_last(hidden), seen, labels)
        cache[key] = keras.Model([*inputs, seen, labels], outputs)
    return lambda x, *others: cache[key].predict_on_batch([*keras.tree.flatten(x), *others])


def most_frequent(counts: np.ndarray, k: int) -> Callable[..., tuple]:
    """(x, seen, labels) -> as `_Answer`: by training counts, the same for every user."""
    order, nll = by_frequency(counts)

    def answer(x: Any, seen: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
        candidates = np.tile(order[: k + seen.shape[1]], (len(seen), 1))
        best = without_seen(candidates, seen)[:, :k]
        return best, nll[np.maximum(labels, 0)], -nll[best[:, 0]]

    return answer


def evaluate(
    model: keras.Model | None,
    queries: datasets.Queries,
    counts: np.ndarray,
    novelty: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> dict[str, float]:
    """Returns the results of `metrics.RecommendationTotals`; one batch is held at a time.

    Args:
        model: a `Classifier`, or None for `most_frequent`.
        queries: of a split.
        counts: (n,) training interactions of each item.
        novelty: (n,), or None.
        sizes: (U,) training interactions of each user; None leaves out the metrics of buckets of
            items and of groups of users. The groups are the users with few, some and many
            interactions, up to the first and the second third of those in the order of their sizes.
    """
    n = len(counts)
    ks = tuple(k for k in TOP_K if k <= n)
    totals = metrics.RecommendationTotals(ks, n, None if sizes is None else counts, novelty)
    group_of = None if sizes is None else _groups(sizes)
    answer = most_frequent(counts, max(ks)) if model is None else _answers(model, queries, max(ks))
    start = 0
    for x, seen, labels, mask in queries:
        kept = mask > 0
        users = queries.users[start : start + int(kept.sum())]
        start += len(users)
        ids, nll, best = (np.asarray(array)[kept] for array in answer(x, seen, labels))
        if seen.shape[1] + max(ks) > n:  # the last ones may be items that were left out
            ids = without_seen(ids, seen[kept])
        confidence = np.exp(np.minimum(best.astype(np.float64), 0.0))
        groups = None if group_of is None else group_of(users)
        totals.update(ids, labels[kept], nll.astype(np.float64), confidence, groups=groups)
    return totals.result()


def _groups(sizes: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """users (B,) -> the group of each; users with equal `sizes` are in one group."""
    bounds = np.quantile(sizes[sizes > 0], (1 / 3, 2 / 3), method="higher")
    return lambda users: np.array(USER_GROUPS)[np.searchsorted(bounds, sizes[users])]


def _novelty(data: datasets.InteractionData) -> np.ndarray | None:
    """Of each item (n,); None of streamed data, whose `train` is that of the asked users alone."""
    if data.stream is not None:
        return None
    sizes = data.train.sizes()
    users = np.repeat(np.arange(len(sizes)), sizes)
    return metrics.item_novelty(users, data.train.items, data.num_classes)
