"""An embedding divided over four virtual CPU devices; `test_embedding_table.py` starts it.

Prints a line of JSON: losses on one device and on four, and the compiled step's collectives; with
"computed", the losses of a codebook on rows that are of no variable (n, d).
"""

import json
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

import softbench
from softbench.distribution import collectives
from softbench.ops.steps import compile_divided

jax.config.update("jax_cpu_enable_async_dispatch", False)
N, D, T, BATCH = 4096, 16, 6, 8
LAYOUTS = {
    "tokens/embeddings": ("model", None),
    "tokens/lora_embeddings_a": ("model", None),
    "tokens/reverse_embeddings": (None, "model"),
}


def trained(sampler="", **options):
    keras.utils.set_random_seed(0)
    embedding = keras.layers.ReversibleEmbedding(N, D, name="tokens", **options)
    tokens, labels = (keras.Input((T,), batch_size=BATCH, dtype="int32") for _ in range(2))
    hidden = keras.layers.Dense(D)(embedding(tokens))
    head = softbench.FullSoftmax(table=embedding)
    if sampler:
        head = softbench.SampledSoftmax(None, sampler, 8, table=embedding, seed=1)
    model = keras.Model([tokens, labels], head(hidden, labels))
    batch = list(np.random.default_rng(0).integers(0, N, (2, BATCH, T)).astype("int32"))
    step, compiled = compile_divided(model, keras.optimizers.SGD(0.5), batch)
    losses = [float(step(batch)[0]) for _ in range(4)]
    rows = embedding.weights[0].value.addressable_shards[0].data.shape[0]
    return losses, rows, collectives(compiled.as_text())


if __name__ == "__main__":
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), jax.devices()[:1])
    layout = keras.distribution.LayoutMap(mesh)
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout))
    one, others = trained()[0], {"lora": {"lora_rank": 2}, "untied": {"tie_weights": False}}
    computed = {kind: [trained("codebook", **kwargs)[0]] for kind, kwargs in others.items()}
    mesh = keras.distribution.DeviceMesh((1, 4), ("batch", "model"), jax.devices())
    layout = keras.distribution.LayoutMap(mesh)
    for path, axes in LAYOUTS.items():
        layout[path] = axes
    options = {"layout_map": layout, "batch_dim_name": "batch"}
    keras.distribution.set_distribution(keras.distribution.ModelParallel(**options))
    four, rows, found = trained()
    for kind, kwargs in others.items():
        computed[kind].append(trained("codebook", **kwargs)[0])
    record = {"one": one, "four": four, "rows": rows, "collectives": found, "computed": computed}
    print(json.dumps(record))
