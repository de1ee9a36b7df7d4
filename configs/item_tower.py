"""Cost of a training step on an item tower, against free rows and against the number of items.

    softbench --config=configs/item_tower.py
    softbench --config=configs/item_tower.py --backend=jax

64 numbers are known of an item, the tower has a hidden layer of 256 units and rows of d = 128;
batch 256, 1,000 uniform draws that the batch shares. `rows` is the same head with free rows, of
which it updates those that the step touched. `products` is the tower on 1,256 distinct items,
gathered features, forward, backward and update, without a head. The step of `tower` is also given
over the sum of both.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import HUGE_PAGES, adagrad, random_classes, sampled

ADAGRAD = adagrad(0.05)
TOWER, M = {"features": 64, "hidden": 256}, 1000


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    head = sampled("uniform", M, share_draws=True)
    return experiment(
        "item_tower",
        title="Cost of a training step on an item tower",
        task="step_time",
        problems=random_classes(10_000, 100_000, 1_000_000),
        model={"name": "dense", "dim": 128, "batch_size": 256},
        optimizer=ADAGRAD,
        method_table={
            "tower": {**head, "tower": TOWER, "parts": ("rows", "products")},
            "rows": sampled("uniform", M, {"row_optimizer": ADAGRAD}, share_draws=True),
            "products": {"products": TOWER, "num_sampled": M},
        },
        timing={"rounds": 60, "block": 5, "max_seconds": 30.0},
        cell_timeout_s=1200.0,
        environment=HUGE_PAGES,
        columns=("step_ms", "over_parts"),
        presets={
            "smoke": {
                "problems": random_classes(3000),
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
        },
    )
