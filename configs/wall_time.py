"""Wall time of draws, of the sampled softmax loss and of updates (Rawat et al. 2019, Table 2).

    softbench --config=configs/wall_time.py
    softbench --config=configs/wall_time.py --backend=jax

Batch 10, m = 10, d = 64, normalised, temperature 0.09, n from 10,000 to 2,000,000; at n = 500,000
also m = 100, and a batch of 256 that shares m = 100 draws. The paper's numbers are the time of the
loss; it does not say on what hardware. Draw, loss and update are separate compiled calls with their
results awaited, and all methods of a problem take turns inside one process.

`codebook` has no counts here, so that its k-means has no weights: its times are also those of MIDX
(arXiv 2501.08563) with classes drawn uniformly within a cell.

`exp_product` is the yardstick of `exp`: one product of the batch with the normalised table, and the
log-sum-exp of the scores.

About 12 minutes a backend on the two hardware threads of one core, 12 GB of memory. Measured there
at n = 500,000, loss of exp over that of the method: RFF with D = 50 57x on JAX and 27x on
TensorFlow (paper: 20x), D = 1000 9.5x and 8.1x (13.5x), with exact shares in blocks of 32 classes
18x and 12x; quadratic 24x and 9.5x (3.9x).

`--config.preset=accelerator`, JAX on one GPU of 80 GB: n to 10,000,000, and a batch of 4,096 that
shares 100 draws. Bytes at n = 10,000,000: the table 2.6 GB; sums of `quadratic` 1.7 GB, `rff_50`
4.3, `rff_200` 8.5, `rff_1000` 13.3; `codebook` 0.3. A cell keeps at most 22 GB, and as much again
as its largest sums while these are computed. `exp` for a batch of 10 holds scores of 0.4 GB,
several times; for one of 4,096 they would be 164 GB, so it is not there.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import ACCELERATOR, sampler

FEATURES = (50, 200, 500, 1000)
# (D, classes in a block) of the rows whose share within a block is the softmax's own.
EXACT_BLOCKS = ((50, 128), (1000, 32), (1000, 128), (1000, 512))


def problem(units, methods, batch_size=10, num_sampled=10, part=""):
    """One process: n = `units`."""
    return {
        "dataset": {"name": "random", "label": f"random{units}{part}", "num_classes": units},
        "model": {
            "name": "table",
            "label": f"b{batch_size}_m{num_sampled}",
            "dim": 64,
            "temperature": 0.09,
            "batch_size": batch_size,
            "num_sampled": num_sampled,
        },
        "methods": ",".join(methods),
    }


def timed(name, **config):
    """A row of the table."""
    return {"sampler": sampler(name, **config)}


def on_accelerator(exact, kernels, shared):
    """Problems for one GPU, largest last; see above for what fits beside what."""
    large, batch = 10_000_000, {"batch_size": 4096, "num_sampled": 100}
    few = ["quadratic_shared", "rff_50_shared", "rff_1000_shared", "codebook_shared"]
    return {
        "1_n10000": problem(10_000, exact + kernels),
        "2_n500000": problem(500_000, [*exact, *kernels, "codebook"]),
        "3_n10000000a": problem(large, ["exp", "quadratic", "rff_50", "rff_200"], part="a"),
        "4_n10000000b": problem(large, ["exp", "rff_1000", "codebook"], part="b"),
        "5_batch": problem(100_000, [*exact, *shared, "codebook_shared"], **batch),
        "6_batch": problem(large, few, **batch),
        "7_n1000000": problem(1_000_000, exact + kernels),
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    kernels = ["quadratic", *(f"rff_{count}" for count in FEATURES)]
    exact = ["exp", "exp_product"]
    shared = ["exp_shared", "quadratic_shared", *(f"rff_{count}_shared" for count in FEATURES)]
    table = {"exp": timed("exp"), "quadratic": timed("quadratic"), "exp_product": {"product": True}}
    table |= {f"rff_{count}": timed("rff", num_features=count) for count in FEATURES}
    blocks = {
        f"rff_{count}_exact{size}": timed(
            "rff", num_features=count, within_block="exact", block_size=size
        )
        for count, size in EXACT_BLOCKS
    }
    table |= blocks
    codebooks = {"codebook": {}, "codebook_k256": {"num_codewords": 256}}
    table |= {name: timed("codebook", **config) for name, config in codebooks.items()}
    table |= {
        f"{name}_shared": timed(name, share_draws=True) for name in ("exp", "quadratic", "codebook")
    }
    table |= {
        f"rff_{count}_shared": timed("rff", num_features=count, share_draws=True)
        for count in FEATURES
    }
    # Cells run in the order of these names.
    problems = {
        "1_n500000": problem(500_000, exact + kernels),
        "2_n10000": problem(10_000, exact + kernels),
        "3_batch256": problem(500_000, exact + shared, batch_size=256, num_sampled=100),
        # in two processes, for the memory
        "4_n2000000a": problem(2_000_000, [*exact, *kernels[:3]], part="a"),
        "5_n2000000b": problem(2_000_000, [*exact, *kernels[3:]], part="b"),
        "6_m100": problem(500_000, exact + kernels, num_sampled=100),
        "7_n100000": problem(100_000, exact + kernels),
        "8_n1000000": problem(1_000_000, exact + kernels),
        "9_exact": problem(500_000, [*exact, *blocks], part="exact"),
        "a_codebook": problem(500_000, [*exact, "rff_1000", *codebooks], part="codebook"),
        "b_codebook": problem(10_000, [*exact, *codebooks], part="codebook"),
        "c_codebook": problem(2_000_000, ["exp_product", *codebooks], part="codebook"),
        "d_codebook": problem(
            500_000,
            ["exp_product", "rff_1000", "codebook"],
            batch_size=256,
            num_sampled=100,
            part="codebook",
        ),
    }
    return experiment(
        "wall_time",
        title="Wall time of adaptive samplers (Rawat et al. 2019, Table 2)",
        task="wall_time",
        problems=problems,
        method_table=table,
        timing={"rounds": 6, "block": 4, "max_seconds": 2.0},
        cell_timeout_s=3600.0,
        presets={
            "smoke": {
                "problems": {
                    "1_n300": problem(300, [*exact, "quadratic", "rff_50"]),
                    "2_shared": problem(300, ["rff_50_shared"], part="shared"),
                },
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
            "accelerator": {
                **ACCELERATOR,
                "problems": on_accelerator(exact, kernels, shared),
                "timing": {"rounds": 20, "block": 10, "max_seconds": 2.0},
            },
        },
        paper={
            f"random{units}-b10_m10-{method}": {"loss_ms": value}
            for units, values in (
                (10_000, (1.4, 6.5, 0.5, 0.6, 1.2, 1.4)),
                (500_000, (32.3, 8.2, 1.6, 1.7, 2.0, 2.4)),
            )
            for method, value in zip(["exp", *kernels], values, strict=True)
        },
    )
