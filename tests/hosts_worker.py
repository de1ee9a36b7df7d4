"""One process of a training that several make together; `test_distribution.py` starts them.

    python tests/hosts_worker.py <process> <processes> <port> <folder> <steps>

It trains from the newest checkpoint in the folder, or from the beginning, up to `steps` steps, and
saves every other step. Prints a line {"step": .., "loss": ..} for each step.
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

import softbench

N, D, BATCH = 64, 8, 8


class Batches(keras.utils.PyDataset):
    """The part of this process of the batches of the steps [first, last)."""

    def __init__(self, first, last, process, processes):
        super().__init__()
        self.first, self.last = first, last
        size = BATCH // processes
        self.part = slice(process * size, (process + 1) * size)

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        x, y = rng.normal(size=(BATCH, 6)), rng.integers(0, N, BATCH)
        return ([x[self.part].astype("float32"), y[self.part].astype("int32")],)


class Lines(keras.callbacks.Callback):
    """Prints the loss of every batch; Keras reports their mean so far."""

    def __init__(self, first):
        super().__init__()
        self.first, self.total = first, 0.0

    def on_train_batch_end(self, batch, logs=None):
        total = float(logs["loss"]) * (batch + 1)
        line = {"step": self.first + batch, "loss": total - self.total}
        print(json.dumps(line), flush=True)
        self.total = total


def make_model():
    x, y = keras.Input((6,)), keras.Input((), dtype="int32")
    hidden = keras.layers.Dense(D, name="encoder")(x)
    rows = softbench.RowAdagrad(0.3)
    head = softbench.SampledSoftmax(N, "in_batch", 6, row_optimizer=rows, seed=3, name="head")
    model = keras.Model([x, y], head(hidden, y))
    model.compile(keras.optimizers.Adam(0.05))
    return model, head


def main(process, processes, port, folder, steps):
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        keras.distribution.initialize(f"localhost:{port}", processes, process)
    keras.utils.set_random_seed(1)
    mesh = keras.distribution.DeviceMesh((processes,), ["classes"])
    layouts = softbench.distribution.layout_map(mesh)
    parallel = keras.distribution.ModelParallel(layout_map=layouts, auto_shard_dataset=False)
    keras.distribution.set_distribution(parallel)
    model, head = make_model()
    model.optimizer.build(model.trainable_variables)
    kernel = head.table.kernel.value
    assert kernel.addressable_shards[0].data.shape == (N // processes, D)
    if os.path.isdir(folder) and os.listdir(folder):
        model.load_weights(folder)
    first = int(model.optimizer.iterations)
    saves = keras.callbacks.OrbaxCheckpoint(folder, save_freq=2, save_on_background=False)
    data = Batches(first, steps, process, processes)
    model.fit(data, callbacks=[saves, Lines(first)], shuffle=False, verbose=0)
    scores = head.top_k(np.ones((1, D), "float32"), 3)[0]
    print(json.dumps({"top": np.asarray(scores.addressable_data(0)).tolist()}), flush=True)


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:4]), sys.argv[4], int(sys.argv[5]))
