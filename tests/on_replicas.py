"""Run as a script, in a process of its own: prints what two replicas train, beside one device."""

import json

import keras
import numpy as np
import tensorflow as tf
from head_zoo import COUNTS, WIDTH, D, N, randomize
from small import functional, spec

from softbench import (
    AdaptiveSoftmax,
    AugmentReduce,
    Classifier,
    FullSoftmax,
    HierarchicalSoftmax,
    NegativeSampling,
    NoiseContrastive,
    RowAdam,
    RowSGD,
    SampledSoftmax,
)
from softbench.samplers import Proposal, Sampler

SIZE, BATCH = 16, 6  # the last batch is of four, the weights of its second half are 0


class GivenProposal(Proposal):
    """The classes label + 1, label + 2, label + 4; in prediction all classes equally."""

    def __init__(self, hidden, labels):
        super().__init__(N, None, tf.shape(hidden)[0])
        self.labels = labels

    def draw(self, num_sampled, seed):
        ids = (self.labels[:, None] + np.array([1, 2, 4], "int32")) % N
        return ids, self.log_count(ids, num_sampled)

    def log_count(self, ids, num_sampled):
        return tf.math.log(0.1 + tf.cast(ids, "float32") / N)

    def class_pass(self, num_sampled):
        return lambda ids: tf.fill((self.batch, ids.shape[0]), -np.log(N).astype("float32"))

    def log_scale(self, num_sampled):
        return 0.0


class GivenDraws(Sampler):
    """Draws that labels give, whichever replica the label is on."""

    def propose(self, table, hidden, exclude=None, targets=None):
        return GivenProposal(hidden, None if targets is None else targets.labels)


HEADS = {
    "full": lambda: FullSoftmax(N),
    "nce_ranking": lambda: NoiseContrastive(N, GivenDraws(), 3, objective="ranking"),
    "negative": lambda: NegativeSampling(N, GivenDraws(), 3, regularization=1e-3),
    "hierarchical": lambda: HierarchicalSoftmax(N),
    "adaptive": lambda: AdaptiveSoftmax(N, [3, 7], div_value=2.0),
}
SAMPLERS = {
    "in_batch": {"counts": COUNTS},
    "quadratic": {"block_size": 2, "refresh_every": 2},
    "rff": {"num_features": 8, "block_size": 2, "refresh_every": 2, "share_draws": True},
    "codebook": {"num_codewords": 3, "counts": COUNTS, "refresh_every": 2},
    "top_and_tail": {"num_top": 2, "share_draws": 2, "counts": COUNTS},
}


def data():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(SIZE, WIDTH)), rng.integers(0, N, SIZE)
    weight = rng.integers(0, 4, SIZE)
    weight[-2:] = 0
    return x.astype("float32"), y.astype("int32"), weight.astype("float32")


def model_of(heads):
    """A model that trains all heads at once, on one hidden layer; each adds its own loss.

    On one device it runs step by step, which needs no graphs.
    """
    x, y, weight = keras.Input((WIDTH,)), keras.Input((), dtype="int32"), keras.Input(())
    layer = keras.layers.Dense(D, name="hidden")
    hidden = layer(x)
    outputs = {name: head(hidden, y, sample_weight=weight) for name, head in heads.items()}
    layer.set_weights([np.random.default_rng(4).normal(size=v.shape) for v in layer.weights])
    for head in heads.values():
        randomize(head)
    model = keras.Model([x, y, weight], outputs)
    eager = not tf.distribute.has_strategy()
    model.compile(keras.optimizers.Adagrad(0.1), jit_compile=False, run_eagerly=eager)
    return model


def all_heads():
    """What every variable holds after two epochs, and then the losses without weights."""
    model, (x, y, weight) = model_of({name: make() for name, make in HEADS.items()}), data()
    options = {"batch_size": BATCH, "verbose": 0}
    model.fit([x, y, weight], epochs=2, shuffle=False, **options)
    losses = model.evaluate([x, y, np.ones_like(weight)], **options)
    return losses, {v.path: v.numpy().tolist() for v in model.trainable_variables}


def classifier():
    """What `evaluate` says of weighted batches, their loss aside."""
    model = Classifier(keras.layers.Dense(D, kernel_initializer="ones"), FullSoftmax(N))
    model.compile("sgd", jit_compile=False)
    x, y, weight = data()
    model.build((None, WIDTH))
    randomize(model.head)
    found = model.evaluate(x[:9], y[:9], sample_weight=weight[:9], batch_size=6, verbose=0)
    return found[1:]


def one_example():
    """The loss of a batch of one, which leaves a replica without any."""
    model = model_of({"full": FullSoftmax(N), "sampled": SampledSoftmax(N, GivenDraws(), 3)})
    return float(model.train_on_batch([a[:1] for a in data()]))


def sampler_states():
    """The variables that differ between the replicas after three steps, and the sums of one."""
    options = {"num_sampled": 3, "use_bias": False, "seed": 0}
    heads = {
        name: SampledSoftmax(N, spec(name, **config), **options)
        for name, config in SAMPLERS.items()
    }
    model = model_of(heads)
    tables = []
    for _ in range(3):
        tables.append(heads["quadratic"].table.kernel.numpy())
        model.train_on_batch([a[:BATCH] for a in data()])
    copies = {v.path: [c.numpy() for c in v.value.values] for v in model.variables}
    different = [path for path, (a, b) in copies.items() if not np.array_equal(a, b)]
    sampler = heads["quadratic"].sampler
    return {
        "different": different,
        "alpha": sampler.features.alpha,
        "kernel": tables[-1].tolist(),
        "steps": int(sampler.steps.numpy()),
        "sums": sampler.blocks.sums[0].numpy().tolist(),
    }


def found(strategy):
    with strategy.scope():
        losses, weights = all_heads()
        return {"losses": losses, "weights": weights, "evaluated": classifier()}


def sampled(sampler, **options):
    return SampledSoftmax(N, sampler, 5, seed=0, **options)


# Each would change a table, or counts, of its own; what keeps no such state trains above.
STATES = {
    "rows": lambda: sampled("uniform", row_optimizer=RowAdam(0.1)),
    "nodes": lambda: HierarchicalSoftmax(N, row_optimizer=RowSGD(0.1)),
    "in_batch": lambda: sampled("in_batch"),
    "memory": lambda: sampled(spec("in_batch", counts=COUNTS, memory=3)),
    "examples": lambda: AugmentReduce(N, "uniform", 5, num_examples=N),
}


def refusal(make, strategy):
    """What `fit` says against a head, and whether the weights are as they were; or None."""
    with strategy.scope():
        model = functional(make(), WIDTH, encoder=keras.layers.Dense(D))
    arrays = [np.ones((8, WIDTH), "float32"), np.arange(8, dtype="int32")]
    before = model.get_weights()
    try:
        model.fit(arrays, batch_size=8, verbose=0)
    except ValueError as error:
        same = all(map(np.array_equal, before, model.get_weights()))
        model.evaluate(arrays, batch_size=8, verbose=0)
        return [str(error), same]
    return None


def main():
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})  # run once each
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    result = {"one": found(tf.distribute.get_strategy()), "two": found(two)}
    result["alone"] = {"one": one_example()}
    with two.scope():
        result["alone"]["two"] = one_example()
        result["states"] = sampler_states()
    result["refused"] = {name: refusal(make, two) for name, make in STATES.items()}
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    result["refused"]["one"] = refusal(STATES["rows"], one)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
