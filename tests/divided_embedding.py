"""An embedding divided over four virtual CPU devices; `test_embedding_table.py` starts it.

Prints a line of JSON: losses on one device and on four, and the compiled step's collectives.
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


def trained():
    keras.utils.set_random_seed(0)
    embedding = keras.layers.ReversibleEmbedding(N, D, name="tokens")
    tokens, labels = (keras.Input((T,), batch_size=BATCH, dtype="int32") for _ in range(2))
    hidden = keras.layers.Dense(D)(embedding(tokens))
    head = softbench.FullSoftmax(table=embedding)
    model = keras.Model([tokens, labels], head(hidden, labels))
    batch = list(np.random.default_rng(0).integers(0, N, (2, BATCH, T)).astype("int32"))
    step, compiled = compile_divided(model, keras.optimizers.SGD(0.5), batch)
    losses = [float(step(batch)[0]) for _ in range(4)]
    rows = embedding.embeddings.value.addressable_shards[0].data.shape[0]
    return losses, rows, collectives(compiled.as_text())


if __name__ == "__main__":
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), jax.devices()[:1])
    layout = keras.distribution.LayoutMap(mesh)
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout))
    one = trained()[0]
    mesh = keras.distribution.DeviceMesh((1, 4), ("batch", "model"), jax.devices())
    layout = keras.distribution.LayoutMap(mesh)
    layout["tokens/embeddings"] = ("model", None)
    options = {"layout_map": layout, "batch_dim_name": "batch"}
    keras.distribution.set_distribution(keras.distribution.ModelParallel(**options))
    four, rows, found = trained()
    print(json.dumps({"one": one, "four": four, "rows": rows, "collectives": found}))
