"""Cost of a whole training step against the number of classes: forward, backward, update.

    softbench --config=configs/scaling.py
    softbench --config=configs/scaling.py --backend=jax

d = 128, batch 256, 100 samples; n = 1,000,000 took 12 GB of
memory. Every step is one compiled call with its result awaited, Python overhead the same for
all. The methods take turns inside one process, in blocks, the order of each round random.

Cells run with huge pages (`glibc.malloc.hugetlb`): with draws per example a step of JAX holds 53 MB
for a moment, which the allocator gives back after each and gets again page by page. At n =
1,000,000 that was half of its time.

Measured from n = 10,000 to n = 1,000,000: the rows of `rows_*` (the head updates the touched rows)
grow by up to 1.3x with shared draws and up to 3.2x with draws per example; with Keras' own Adagrad
by 82x on TensorFlow and 125x on JAX.

`peer_*` exist on TensorFlow: `tf.nn.sampled_softmax_loss` with its default log-uniform draws,
then `tf.raw_ops.ResourceSparseApplyAdagradV2` on the touched rows, duplicates added up before
(`peer_tf`) or not (`peer_tf_raw`, cheaper, and another update where ids repeat).

`--config.preset=accelerator`, JAX on one GPU of 80 GB: batch 4,096, n to 10,000,000. A table with
biases and Adagrad's sums has 1,032 bytes a class, 10.3 GB at the largest n, where three methods at
most share a process: 31 GB, or 26 GB beside Keras' Adagrad and its dense gradient. `full` ends at n
= 1,000,000: its scores and their gradient are 33 GB there, and would be 328 GB.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import ACCELERATOR, HUGE_PAGES, adagrad, full, random_classes, sampled

ADAGRAD = adagrad(0.05)
# The rows of row updates that run at every n on an accelerator.
ROWS = (
    "rows_uniform_shared",
    "rows_log_uniform_shared",
    "rows_codebook_shared",
    "rows_uniform_per_example",
    "rows_log_uniform_per_example",
    "rows_codebook_per_example",
)


def drawn(name, share_draws, row_optimizer=ADAGRAD, **config):
    """A row of 100 draws."""
    return sampled(name, 100, {"row_optimizer": row_optimizer}, share_draws=share_draws, **config)


def peer(deduplicate):
    """A row of TensorFlow's own functions."""
    return {"peer": "tf_sampled_softmax", "deduplicate": deduplicate, "num_sampled": 100}


def on_accelerator(rows):
    """Problems for one GPU; at the largest n the methods are divided over processes."""
    shared, each = ([name for name in rows if name.endswith(end)] for end in ("shared", "example"))
    twins = ["rows_log_uniform_shared", "keras_log_uniform_shared"]
    parts = {"a": shared, "b": each, "c": twins}
    sizes = random_classes(10_000, 100_000, 1_000_000)
    found = {n: {**sizes[n], "methods": ",".join([*rows, twins[1], "full"])} for n in sizes}
    for part, names in parts.items():
        dataset = {"name": "random", "label": f"random10000000{part}", "num_classes": 10_000_000}
        found[f"n10000000{part}"] = {"dataset": dataset, "methods": ",".join(names)}
    return found


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "scaling",
        title="Cost of a training step against the number of classes",
        task="step_time",
        problems=random_classes(10_000, 100_000, 1_000_000),
        model={"name": "dense", "dim": 128, "batch_size": 256},
        optimizer=ADAGRAD,
        method_table={
            "rows_uniform_shared": drawn("uniform", True),
            "rows_uniform_per_example": drawn("uniform", False),
            "rows_log_uniform_shared": drawn("log_uniform", True),
            "rows_log_uniform_shared_unique": drawn("log_uniform", True, unique=True),
            "rows_log_uniform_per_example": drawn("log_uniform", False),
            "rows_codebook_per_example": drawn("codebook", False),
            "rows_codebook_shared": drawn("codebook", True),
            "keras_log_uniform_shared": drawn("log_uniform", True, row_optimizer=None),
            "full": full(),
            "peer_tf": peer(deduplicate=True),
            "peer_tf_raw": peer(deduplicate=False),
        },
        timing={"rounds": 30, "block": 5, "max_seconds": 15.0},
        cell_timeout_s=1200.0,
        environment=HUGE_PAGES,
        presets={
            "smoke": {
                "problems": random_classes(200),
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
            "accelerator": {
                **ACCELERATOR,
                "problems": on_accelerator(ROWS),
                "model": {"name": "dense", "dim": 128, "batch_size": 4096},
            },
        },
    )
