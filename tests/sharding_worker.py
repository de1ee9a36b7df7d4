"""Trains heads on one and on four virtual CPU devices; `test_distribution.py` starts it.

    python tests/sharding_worker.py <folder> <case> ...

Prints a line of JSON for each case. Shape letters: B batch, d features, n classes, k best classes.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
)
os.environ["PJRT_NPROC"] = "32"  # threads: of 4, one for each device, none is left to wait
os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
import reference
from small import spec

import softbench
from softbench import partition
from softbench.distribution import collective_bytes, collectives
from softbench.ops.steps import compile_divided
from softbench.targets import Targets

# On two cores the devices of two steps under way can wait for each other, without an end.
jax.config.update("jax_cpu_enable_async_dispatch", False)

N, D, WIDTH, BATCH, M, K = 1024, 32, 6, 8, 8, 5
COUNTS = np.maximum(1000 // np.arange(1, N + 1), 1).tolist()
partition.class_chunk = lambda *_: 48  # so that passes have chunks

SAMPLERS = {
    "uniform": {},
    "log_uniform": {"share_draws": True},
    "unigram": {"counts": COUNTS, "unique": True},
    "in_batch": {},
    "exp": {},
    "quadratic": {},
    "rff": {"num_features": 8, "block_size": 4, "prior": COUNTS},
    "sorf": {"num_features": 8, "block_size": 4, "share_draws": True},
    "positive": {"num_features": 8, "block_size": 1},
    "maclaurin": {"num_features": 8, "block_size": 4},
    "codebook": {"num_codewords": 4, "refresh_every": 4},
    "top_and_tail": {"num_top": 8, "num_codewords": 4, "share_draws": 2, "counts": COUNTS},
    "mixed": {"first": "uniform"},
}
SAMPLERS["mixed"]["second"] = spec("rff", **SAMPLERS["rff"])
UNIGRAM = spec("unigram", counts=COUNTS)
BUCKETS = {"num_buckets": 4, "bucket_examples": 4, "bucket_classes": 8}


def sampled(name):
    """A head with this sampler."""
    config = dict(SAMPLERS[name])
    if name == "top_and_tail":
        small = {"num_codewords": config.pop("num_codewords"), "counts": COUNTS}
        config["top"] = spec("codebook", **small)
    sampler = spec(name, **config)
    return lambda **rows: softbench.SampledSoftmax(N, sampler, M, seed=3, **rows)


HEADS = {
    **{name: sampled(name) for name in SAMPLERS},
    "full": lambda: softbench.FullSoftmax(N),
    "full chunked": lambda: softbench.FullSoftmax(N, class_chunk=48, normalize=True),
    "full several": lambda: softbench.FullSoftmax(N, class_chunk=48, multi_label="mean"),
    "nce": lambda **o: softbench.NoiseContrastive(N, UNIGRAM, num_sampled=M, seed=3, **o),
    "negative": lambda **o: softbench.NegativeSampling(
        N, UNIGRAM, M, regularization=1e-3, seed=3, **o
    ),
    "one vs each": lambda **o: softbench.OneVsEach(N, "uniform", M, seed=3, **o),
    "hinge": lambda **o: softbench.SampledHinge(N, "uniform", M, seed=3, **o),
    "buckets": lambda **o: softbench.BucketedSoftmax(N, **BUCKETS, seed=3, **o),
    "augment reduce": lambda **o: softbench.AugmentReduce(
        N, "uniform", M, num_examples=64, seed=3, **o
    ),
    "hierarchical": lambda **o: softbench.HierarchicalSoftmax(N, **o),
    "adaptive": lambda: softbench.AdaptiveSoftmax(N, [32, 128]),
}
ROWS = {"sgd": softbench.RowSGD, "adagrad": softbench.RowAdagrad, "adam": softbench.RowAdam}


def mesh(devices, *shape):
    names = ["batch", "classes"][-len(shape) :]
    cpus = keras.distribution.list_devices("cpu")[:devices]
    return keras.distribution.DeviceMesh(shape, names, cpus)


def model_parallel(devices, *shape):
    layouts = softbench.distribution.layout_map(mesh(devices, *shape))
    return keras.distribution.ModelParallel(layout_map=layouts)


DISTRIBUTIONS = {
    "none": lambda: None,
    "1": lambda: model_parallel(1, 1),
    "2": lambda: model_parallel(2, 2),
    "4": lambda: model_parallel(4, 4),
    "2x2": lambda: model_parallel(4, 2, 2),
    "data": lambda: keras.distribution.DataParallel(devices=keras.distribution.list_devices("cpu")),
}


def batch(step, head):
    rng = np.random.default_rng(step)
    x = rng.normal(size=(BATCH, WIDTH)).astype("float32")
    y = rng.choice(N, BATCH, p=np.array(COUNTS) / sum(COUNTS)).astype("int32")
    if head.multi_label:
        y = np.stack([y, (y + 1) % N], axis=-1)
    ids = [np.arange(BATCH, dtype="int32")] * isinstance(head, softbench.AugmentReduce)
    return [x, y, *ids]


def make(name):
    """A model on a head, "<head>" or "<head>:<row optimizer>"."""
    head, _, rows = name.partition(":")
    head = HEADS[head](**({"row_optimizer": ROWS[rows](0.1)} if rows else {}))
    labels = (2,) if head.multi_label else ()
    x, y = keras.Input((WIDTH,)), keras.Input(labels, dtype="int32")
    hidden = keras.layers.Dense(D, name="encoder")(x)
    if isinstance(head, softbench.AugmentReduce):
        ids = keras.Input((), dtype="int32")
        return keras.Model([x, y, ids], head(hidden, y, example_ids=ids)), head
    return keras.Model([x, y], head(hidden, y)), head


def train(model, head, first, last):
    """The losses of the steps [first, last), and the compiled step."""
    optimizer = keras.optimizers.Adam(0.05)
    step, compiled = compile_divided(model, optimizer, batch(first, head))
    losses = [float(step(batch(i, head))[0]) for i in range(first, last)]
    return losses, compiled.as_text()


def evaluated(head):
    """Exact losses (B,) and the k best of the trained head, as compiled, and by NumPy."""
    rng = np.random.default_rng(100)
    hidden = rng.normal(size=(BATCH, D)).astype("float32")
    labels = rng.integers(0, N, BATCH).astype("int32")
    variables = head.variables

    def function(values, hidden):
        with keras.StatelessScope(zip(variables, values, strict=True)):
            return head.negative_log_likelihood(hidden, Targets(labels)), head.top_k(hidden, K)

    compiled = jax.jit(function).lower([v.value for v in variables], hidden).compile()
    losses, best = compiled([v.value for v in variables], hidden)
    found = {"losses": np.asarray(losses).tolist(), "scores": np.asarray(best[0]).tolist()}
    if hasattr(head, "table"):
        scores = reference.scores(
            hidden.astype(float),
            np.asarray(head.table.kernel.value, float),
            np.asarray(head.table.bias.value, float),
            head.table.normalize,
        )
        if isinstance(head, softbench.NegativeSampling):
            scores = scores + np.log(reference.unigram_distribution(COUNTS, 1.0))
        found["by_numpy"] = {
            "losses": reference.negative_log_likelihood(scores, labels).tolist(),
            "scores": np.sort(scores)[:, ::-1][:, :K].tolist(),
        }
    return found, compiled.as_text()


def moved(hlo):
    """What the collectives of a compiled function do."""
    every = collectives(hlo)
    return {
        "largest": max((one.elements for one in every), default=0),
        "looped": sum(one.bytes for one in every if one.looped),
        "bytes": collective_bytes(hlo),
    }


def share(variables):
    """The part of each variable (n, ...) that one device has, by path."""
    large = [v for v in variables if v.shape and v.shape[0] >= N // 8]
    return {v.path: v.value.addressable_shards[0].data.size / v.value.size for v in large}


def run(name, steps=5):
    """A case "<head>[:<row optimizer>]@<distribution>": one device against several."""
    what, _, where = name.partition("@")
    found = {"case": name}
    for place in ("none", where):
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        keras.distribution.set_distribution(DISTRIBUTIONS[place]())
        model, head = make(what)
        losses, hlo = train(model, head, 0, steps)
        found["one" if place == "none" else "losses"] = losses
    answers, eval_hlo = evaluated(head)
    found |= {"step": moved(hlo), "evaluation": {**answers, **moved(eval_hlo)}}
    return {**found, "share": share(head.variables)}


def classified():
    """Losses and measures of `Classifier.fit` and `evaluate` on one device, then on four."""
    rng, found = np.random.default_rng(5), {"case": "classifier"}
    x = rng.normal(size=(4 * BATCH, WIDTH)).astype("float32")
    y = np.abs(x).argmax(-1).astype("int32")
    for place in ("none", "2x2"):
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        keras.distribution.set_distribution(DISTRIBUTIONS[place]())
        encoder = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(D)])
        head = HEADS["in_batch"](row_optimizer=ROWS["adagrad"](0.1))
        model = softbench.Classifier(encoder, head)
        model.compile(keras.optimizers.Adam(0.05))
        options = {"batch_size": BATCH, "verbose": 0}
        losses = model.fit(x, y, epochs=3, shuffle=False, **options).history["loss"]
        scores = model.evaluate(x, y, return_dict=True, **options)
        found[place] = {"losses": losses, "scores": scores}
        found[f"share {place}"] = share([head.table.kernel])
    return found


def saved(folder):
    """Losses of a head that four devices train and one, two and four go on with."""
    keras.utils.set_random_seed(1)
    keras.distribution.set_distribution(DISTRIBUTIONS["4"]())
    model, head = make("in_batch:adagrad")
    train(model, head, 0, 2)
    path, found = os.path.join(folder, "model.keras"), {"case": "saved"}
    model.save(path)
    for place in ("4", "1", "2"):
        keras.distribution.set_distribution(DISTRIBUTIONS[place]())
        model = keras.saving.load_model(path)
        head = next(layer for layer in model.layers if isinstance(layer, softbench.SampledSoftmax))
        found[place] = train(model, head, 2, 4)[0]
        found[f"share {place}"] = share([head.table.kernel])
    return found


LAYOUTS = {
    "tokens/embeddings": ("classes", None),
    "tokens/lora_embeddings_a": ("classes", None),
    "tokens/reverse_embeddings": (None, "classes"),
}


def embedded(sampler=None, **options):
    """Losses of a head on the rows of a Keras embedding, the rows of a device, the collectives."""
    keras.utils.set_random_seed(0)
    layer = keras.layers.ReversibleEmbedding(N, D, name="tokens", **options)
    tokens, labels = (keras.Input((WIDTH,), batch_size=BATCH, dtype="int32") for _ in range(2))
    head = softbench.FullSoftmax(table=layer)
    if sampler:
        head = softbench.SampledSoftmax(None, sampler, M, table=layer, seed=1)
    model = keras.Model([tokens, labels], head(keras.layers.Dense(D)(layer(tokens)), labels))
    given = list(np.random.default_rng(0).integers(0, N, (2, BATCH, WIDTH)).astype("int32"))
    step, compiled = compile_divided(model, keras.optimizers.SGD(0.5), given)
    losses = [float(step(given)[0]) for _ in range(4)]
    rows = layer.weights[0].value.addressable_shards[0].data.shape[0]
    return losses, rows, collectives(compiled.as_text())


def embedding():
    """Losses on one device and on four; "computed" are those of rows that are of no variable."""
    kinds = {"lora": ("codebook", {"lora_rank": 2}), "untied": ("exp", {"tie_weights": False})}
    found = {"case": "embedding", "computed": {kind: [] for kind in kinds}}
    for place, devices in (("one", 1), ("four", 4)):
        layouts = keras.distribution.LayoutMap(mesh(devices, 1, devices))
        for path, axes in LAYOUTS.items():
            layouts[path] = axes
        options = {"layout_map": layouts, "batch_dim_name": "batch"}
        keras.distribution.set_distribution(keras.distribution.ModelParallel(**options))
        found[place], found["rows"], found["collectives"] = embedded()
        for kind, (sampler, kwargs) in kinds.items():
            found["computed"][kind].append(embedded(sampler, **kwargs)[0])
    return found


if __name__ == "__main__":
    for case in sys.argv[2:]:
        others = {"saved": lambda: saved(sys.argv[1]), "classifier": classified}
        others["embedding"] = embedding
        line = others[case]() if case in others else run(case)
        print(json.dumps(line), flush=True)
