"""Ma & Collins, section 5.1: Figures 2 and 3, KL divergence of exact NCE estimates.

    softbench --config=configs/nce_simulation.py

As the paper says: d = 4, 100 classes, s = x' theta_y, x uniform on |X| points, those and theta from
separate mixtures of Gaussians; |X| = 200 against (n, K), and |X| = 100 to 400 at n = 16,000 and
K = 32; binary NCE with a bias b_x for each x, and without. As it does not say, and we chose: both
mixtures have 4 components of equal weight, centres N(0, I), points N(centre, I); every seed draws
its own; p_N is uniform; KL is the mean over x of KL(p(y|x) || estimate), the estimate normalised as
in the paper's figure 1 and, for binary NCE with b_x, also as it is; without b_x the one gamma of
figure 1 stays.

Every estimate is the minimum of its objective, by L-BFGS in float64. Each seed is a cell of both
problems. About seven minutes on one core.
"""

from softbench.bench.config import experiment


def problem(label, num_inputs, options, methods):
    """A problem: its |X|, its n and K, and what is estimated."""
    sizes = {"num_inputs": num_inputs, "num_classes": 100, "dim": 4, "components": 4}
    points = {"centre": 1.0, "spread": 1.0, "noise": "uniform"}
    dataset = {"name": "mixtures", "label": label, **sizes, **points}
    return {"dataset": dataset, "options": options, "methods": methods}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "nce_simulation",
        title="NCE by exact optimisation: Ma & Collins, Figures 2 and 3",
        task="nce_simulation",
        model={"name": "linear"},
        problems={
            "n_and_k": problem(
                "n_and_k",
                (200,),
                {"sizes": (4000, 8000, 16_000, 32_000, 64_000), "negatives": (1, 2, 4, 8, 16, 32)},
                "mle,ranking,binary",
            ),
            "inputs": problem(
                "inputs",
                (100, 200, 300, 400),
                {"sizes": (16_000,), "negatives": (32,)},
                "",
            ),
        },
        method_table={
            "mle": {"objective": "likelihood"},
            "ranking": {"objective": "ranking"},
            "binary": {"objective": "binary", "bias": "input"},
            "binary_without_b_x": {"objective": "binary", "bias": "shared"},
        },
        # The text gives these four numbers; the figures' are not printed.
        paper={
            "inputs-linear-binary_without_b_x": {"100": 0.19, "200": 0.21, "300": 0.24, "400": 0.26}
        },
        seeds=tuple(range(10)),
        presets={
            "smoke": {
                "problems": {
                    "n_and_k": problem(
                        "n_and_k",
                        (20,),
                        {"sizes": (2000, 4000), "negatives": (4, 8)},
                        "mle,ranking,binary",
                    ),
                    "inputs": problem(
                        "inputs", (10, 20), {"sizes": (2000,), "negatives": (8,)}, ""
                    ),
                },
                "seeds": (0,),
            },
            "paper": {},
        },
    )
