"""A recommender on generated histories: SASRec with a sampled softmax, from data to serving.

    python docs/examples/recommender.py --out=recommender

The items of a user's history and those to recommend are rows of one table, the head's. For data of
your own, `softbench.datasets.load("interactions", data_dir="interactions.csv")` is such a set too.
"""

import os

import keras
import numpy as np
from absl import app, flags

import softbench
from softbench.datasets import PackedHistories, Queries, history_inputs, synthetic_interactions

_ITEMS = flags.DEFINE_integer("items", 2_000, "Generated items.")
_USERS = flags.DEFINE_integer("users", 4_000, "Generated users.")
_UNITS = flags.DEFINE_integer("units", 64, "Width of the item vectors.")
_EPOCHS = flags.DEFINE_integer("epochs", 10, "Passes over the histories.")
_OUT = flags.DEFINE_string("out", None, "Folder for the model.", required=True)
LENGTH, K = 16, 10  # items of a history that count; items recommended


def model_of(num_items: int, counts: np.ndarray) -> softbench.Classifier:
    """SASRec whose inputs are rows of the head's table."""
    unigram = {"counts": (counts + 1).tolist(), "power": 0.75, "share_draws": True, "unique": True}
    head = softbench.SampledSoftmax(
        num_items,
        sampler={"class_name": "unigram", "config": unigram},
        num_sampled=min(256, num_items // 4),
        normalize=True,
        temperature=0.09,
        use_bias=False,
    )
    rows = softbench.TiedEmbedding(head, dim=_UNITS.value)
    encoder = softbench.models.sasrec(num_items, _UNITS.value, LENGTH, item_embedding=rows)
    return softbench.Classifier(encoder, head)


def arrays(batches: PackedHistories) -> tuple:
    """x, y and weights of all batches: several histories in a row, each step with a label."""
    inputs, labels, weights = zip(*batches, strict=True)
    items, positions = (np.concatenate(part) for part in zip(*inputs, strict=True))
    return [items, positions], np.concatenate(labels), np.concatenate(weights)


def recommend(
    model: softbench.Classifier, x: tuple, seen: np.ndarray, index: object = False
) -> np.ndarray:
    """The best items (B, K) for histories x, without those that are seen (B, S), padded with -1."""
    hidden = model.encoder.predict_on_batch(list(x))[:, -1]
    ids = model.head.top_k(hidden, K + seen.shape[1], approximate=index)[1]
    ids = keras.ops.convert_to_numpy(ids)
    is_seen = (ids[:, :, None] == seen[:, None]).any(axis=-1)
    unseen_first = np.argsort(is_seen, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(ids, unseen_first, axis=1)


def recall(model: softbench.Classifier, queries: Queries, index: object = False) -> float:
    """Part of the users whose next item is among K recommended ones."""
    found = []
    for x, seen, labels, mask in queries:
        hits = (recommend(model, x, seen, index) == labels).any(axis=1)
        found += hits[mask > 0].tolist()
    return float(np.mean(found))


def main(_: list[str]) -> None:
    keras.utils.set_random_seed(0)
    data = synthetic_interactions(_ITEMS.value, _USERS.value)
    model = model_of(data.num_classes, data.counts)
    model.compile(keras.optimizers.Adam(3e-3))
    x, labels, weights = arrays(PackedHistories(data, batch_size=32, length=LENGTH))
    model.fit(x, labels, sample_weight=weights, batch_size=32, epochs=_EPOCHS.value, verbose=2)

    queries = Queries(data, "test", 256, history_inputs(data, "test", LENGTH))
    index = softbench.serving.Index(model.head)
    print(f"test recall@{K} of {len(queries.users):,} users, without what they have had:")
    print(f"exact {recall(model, queries):.4f}, approximate {recall(model, queries, index):.4f}")

    path = os.path.join(_OUT.value, "model.keras")
    os.makedirs(_OUT.value, exist_ok=True)
    model.save(path)
    loaded = keras.models.load_model(path)
    print(f"loaded {recall(loaded, queries):.4f}")

    if keras.backend.backend() == "tensorflow":  # for TensorFlow Serving
        inputs = [keras.Input((LENGTH,), dtype="int32", name=n) for n in ("items", "positions")]
        best = softbench.serving.TopK(loaded.head, K, softbench.serving.Index(loaded.head))
        served = keras.Model(inputs, best(loaded.encoder(inputs)[:, -1]))
        served.export(os.path.join(_OUT.value, "serving", "1"), verbose=False)


if __name__ == "__main__":
    app.run(main)
