"""The adversarial tree: seconds of its fit, its likelihood, and the cost of a draw against n.

    softbench --config=configs/tree_fit.py
    softbench --config=configs/tree_fit.py --backend=jax

Generated hierarchical data with one label each (synthetic_xmc), k = 16, lambda_n = 0.1: N = 20,000
and n = 2,000; N = 200,000 and n = 20,000 (to be fitted in 60 s on 2 cores); N = 1,600,000 and
n = 217,000 (20 minutes, below 8 GB). Then draws of m = 100 for each of 256 examples from trees
with random nodes, n from 1,000 to 1,000,000.

Measured on two hardware threads: 17 s at N = 200,000, 229 s at N = 1,600,000; draws at
n = 1,000,000 cost 2.1 times those at n = 1,000 on JAX. The tree is fitted in NumPy, so the backend
matters for draws only.
"""

from softbench.bench.config import experiment


def fits(num_train, num_classes, methods="", **fields):
    """A generated data set of N points and n classes."""
    return {
        "dataset": {
            "name": "synthetic_xmc",
            "label": f"xmc{num_train}",
            "num_train": num_train,
            "num_test": max(num_train // 20, 2000),
            "num_classes": num_classes,
            "labels_per_example": 1.0,
            **fields,
        },
        "methods": methods,
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    draws = {
        "dataset": {"name": "random", "sizes": (1_000, 10_000, 100_000, 1_000_000)},
        "model": {"name": "tree", "dim": 16, "batch_size": 256, "num_sampled": 100},
        "methods": "default",
    }
    return experiment(
        "tree_fit",
        title="The adversarial tree: fit and draws (Bamler & Mandt 2020, section 3)",
        task="tree_fit",
        problems={
            "1_draws": draws,
            "2_small": fits(20_000, 2_000),
            "3_medium": fits(200_000, 20_000),
            "4_large": fits(1_600_000, 217_000, methods="default", num_features=100_000),
        },
        model={"name": "tree", "num_components": 16},
        method_table={
            "default": {},
            "alternations_1": {"max_alternations": 1},
            "alternations_3": {"max_alternations": 3},
            "alternations_10": {"max_alternations": 10},
            "points_20000": {"max_points_per_node": 20_000},
            "points_5000": {"max_points_per_node": 5_000},
            "lambda_003": {"regularization": 0.03},
            "lambda_03": {"regularization": 0.3},
        },
        timing={"rounds": 4, "block": 10, "max_seconds": 10.0},
        presets={
            "smoke": {
                "problems": {
                    "1_draws": {**draws, "dataset": {"name": "random", "sizes": (100, 1_000)}},
                    "2_tiny": fits(2_000, 200, methods="default,lambda_03", num_features=500),
                },
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            # N and n of the paper's Wikipedia-500K and Amazon-670K.
            "paper": {
                "problems": {
                    "1_amazon": fits(490_449, 213_874, methods="default", num_features=100_000),
                    "2_wikipedia": fits(
                        1_646_302, 217_240, methods="default", num_features=100_000
                    ),
                },
            },
        },
        cell_timeout_s=7200.0,
    )
