"""The exact softmax: time and memory of its step in plain Keras, in softbench, and of its products.

    softbench --config=configs/full_softmax.py
    softbench --config=configs/full_softmax.py --backend=jax

Forward and backward, the gradients of hidden vectors and table, without an optimizer; float32 and
`mixed_bfloat16`. `products` are the three matrix products alone, `keras` a `Dense` layer without
bias and the cross-entropy from logits; `softbench_16` and `softbench_256` have the `class_chunk`
that makes 16 and 256 chunks of n. XLA compiles the steps, as it does in Keras' `fit`; `*_graph`, at
n = 65,536, are TensorFlow's own graphs (`jit_compile=False`). Memory is the peak beyond inputs,
table and gradients, each method in a process of its own; Linux alone tells it.

B = 256, d = 256, n from 16,384 to 262,144, and 2,048 x 131,072 x 512 (B x n x d), of which a step
takes 5 seconds and more: one round of it. About 20 minutes a backend on two processors, 5 GB of
memory.

`--config.preset=accelerator`, JAX on one GPU of 80 GB: 8,192 x 131,072 x 1,024 in bfloat16. With
`--config.model.peak_tflops=<TFLOP/s of the device in bfloat16>` the page shows the fraction of it
that the 6 B n d operations of the three products reach.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import ACCELERATOR, full

WAYS = ("products", "keras", "softbench")


def chunked(**options):
    """A row of softbench without biases; "chunks" of n, and "jit_compile", see the task."""
    return {**full(use_bias=False), **options}


def problems(sizes, dtypes, methods="", **fields):
    """One for each (B, n, d) and dtype policy."""
    return {
        f"b{batch:05}_{dtype}_n{units:07}": {
            "dataset": {"name": "random", "label": f"random{units}", "num_classes": units},
            "model": {
                "name": "table",
                "label": f"b{batch}_d{dim}_{dtype}",
                "batch_size": batch,
                "dim": dim,
                "dtype": dtype,
                "peak_tflops": 0.0,
            },
            "methods": methods,
            **fields,
        }
        for dtype in dtypes
        for batch, units, dim in sizes
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    both = ("float32", "mixed_bfloat16")
    chunks = ",".join([*WAYS, "softbench_16", "softbench_256"])
    growing = problems([(256, 16_384, 256), (256, 262_144, 256)], both, chunks)
    middle = problems([(256, 65_536, 256)], both)
    once = {"rounds": 1, "block": 1, "max_seconds": 1.0}
    large = problems([(2048, 131_072, 512)], both, ",".join(WAYS), timing=once)
    return experiment(
        "full_softmax",
        title="The exact softmax: time and memory",
        model={"peak_tflops": 0.0},  # overridden from the command line in all problems
        task="full_softmax",
        problems=growing | middle | large,
        method_table={
            "products": {"product": True},
            "keras": {"keras": True},
            "softbench": chunked(),
            "softbench_16": chunked(chunks=16),
            "softbench_256": chunked(chunks=256),
            "keras_graph": {"keras": True, "jit_compile": False},
            "softbench_graph": chunked(jit_compile=False),
        },
        timing={"rounds": 20, "block": 2, "max_seconds": 3.0},
        cell_timeout_s=3600.0,
        presets={
            "smoke": {
                "problems": problems([(8, 300, 16), (8, 600, 16)], both),
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
            "accelerator": {
                **ACCELERATOR,
                # The processes that measure memory need the device while the cell's is there.
                "environment": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
                "problems": problems([(8192, 131_072, 1024)], both[1:]),
                "timing": {"rounds": 20, "block": 10, "max_seconds": 10.0},
            },
        },
    )
