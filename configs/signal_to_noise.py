"""Bamler & Mandt, Theorem 2: the gradient's signal-to-noise ratio for noise from uniform to p_D.

    softbench --config=configs/signal_to_noise.py

p_D(y|x) of 20 inputs is the softmax of independent normal scores, times a sharpness of 1 or 3, over
10 or 100 classes. The noise is a mixture of the uniform distribution and p_D, a power of p_D, or
the frequency of the classes. Closed form (eq. 15) beside a Monte Carlo estimate from gradients of
the objective itself; with several negatives, our extension of eq. 15. About two minutes.
"""

from softbench.bench.config import experiment


def mixture(t):
    """(1 - t) uniform + t p_D."""
    return {"noise": "mixture", "t": t}


def table(num_classes, sharpness):
    """A problem: p_D over this many classes."""
    label = f"n{num_classes}_sharpness{sharpness}"
    shape = {"num_inputs": 20, "num_classes": num_classes}
    return {"dataset": {"name": "table", "label": label, "sharpness": sharpness, **shape}}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "signal_to_noise",
        title="Signal-to-noise ratio of negative sampling: Bamler & Mandt, Theorem 2",
        task="signal_to_noise",
        model={"name": "scores"},
        problems={f"n{n}_{s}": table(n, s) for n, s in ((10, 1), (10, 3), (100, 1), (100, 3))},
        method_table={
            "uniform": mixture(0.0),
            "mixture_025": mixture(0.25),
            "mixture_050": mixture(0.5),
            "mixture_075": mixture(0.75),
            "data": mixture(1.0),
            "frequency": {"noise": "frequency"},
            "power_050": {"noise": "power", "s": 0.5},
            "power_150": {"noise": "power", "s": 1.5},
        },
        options={"negatives": (1, 5), "samples": 1_000_000},
        presets={
            "smoke": {
                "problems": {"n10_1": table(10, 1)},
                "options": {"negatives": (1, 5), "samples": 10_000},
            },
            "paper": {},
        },
    )
