"""Ma & Collins, sections 4.3 and 4.4: efficiency of NCE against K, and the counterexample.

    softbench --config=configs/nce_efficiency.py

N MSE / d of maximum likelihood, ranking and binary NCE (gamma learned) for K = 1 to 64, over many
data sets, beside the exact asymptotic values and Tr(I^-1) / d. The paper gives theorems here and no
experiment, so the models are ours; in both, Z(x; theta*) is the same for all x, as binary
NCE needs:

* `cyclic`: s = theta_{(y - x) mod 4}, theta_0 = 0, 4 inputs: at every theta.
* `offset`: s = f(x, y)' theta - log Z(x; theta*), 8 inputs, 4 classes, f normal: at theta*
  alone.

Noise (0.4, 0.3, 0.2, 0.1), N = 4000, 300 data sets for each of 8 seeds; a seed is one cell.
`counterexample`: the four-cell table of section 4.3 with N up to 100,000; truth and ranking give
theta_1 / theta_2 = 1/3, binary NCE 3/7. About six minutes on one core.
"""

from softbench.bench.config import experiment


def model(name, num_inputs):
    """A problem of section 4.4 with 4 classes and 3 parameters."""
    options = {"model": name, "num_inputs": num_inputs, "num_classes": 4, "dim": 3}
    noise = {"noise": (4, 3, 2, 1), "scale": 1.0, "problem_seed": 0}
    return {"dataset": {"name": "nce", "label": name, **options, **noise}}


def counterexample(sizes, negatives):
    """The problem of section 4.3."""
    return {
        "dataset": {"name": "nce", "label": "counterexample", "model": "counterexample"},
        "options": {"sizes": sizes, "negatives": negatives},
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "nce_efficiency",
        title="Efficiency of noise-contrastive estimation: Ma & Collins, sections 4.3 and 4.4",
        task="nce_efficiency",
        model={"name": "exact"},
        problems={
            "cyclic": model("cyclic", 4),
            "offset": model("offset", 8),
            "counterexample": counterexample((100, 1000, 10_000, 100_000), (1, 5, 25)),
        },
        method_table={
            "mle": {"objective": "likelihood"},
            "ranking": {"objective": "ranking"},
            "binary": {"objective": "binary"},
        },
        options={"size": 4000, "data_sets": 300, "negatives": (1, 2, 4, 8, 16, 32, 64)},
        seeds=tuple(range(8)),
        presets={
            "smoke": {
                "problems": {
                    "cyclic": model("cyclic", 4),
                    "offset": model("offset", 8),
                    "counterexample": counterexample((100, 1000), (1, 5)),
                },
                "options": {"size": 1000, "data_sets": 20, "negatives": (1, 4)},
                "seeds": (0,),
            },
            "paper": {},
        },
    )
