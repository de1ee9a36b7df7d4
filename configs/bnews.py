"""Rawat et al. (2019), Figure 4: a language model on BNEWS, 64,000 words, d = 512, m = 100.

    softbench-prepare --dataset=bnews --data_dir=<folder with bnews/> --out=<prepared root>
    softbench --config=configs/bnews.py --data_dir=<prepared root> --backend=jax

The text (One Billion Word) is not part of this project: put its training and held-out sentences,
one a line, into bnews/train and bnews/test (files or folders). Not run here. The paper gives
neither its model beyond d nor its optimizer: an LSTM of one layer, normalised vectors and Adam as
in `configs/ptb_rff.py`. The table of 64,000 words takes row updates in the sampled methods.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    LANGUAGE_COLUMNS,
    NORMALISED,
    SMALL_LANGUAGE,
    SMALL_TIMING,
    adagrad,
    full,
    normalised,
    with_row_updates,
)

ROWS = adagrad(0.1)
MODEL = {
    "name": "lstm",
    "preset": "medium",
    "label": "lstm512",
    "units": 512,
    "num_layers": 1,
    "keep_prob": 1.0,
    "row_optimizer": ROWS,
}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    sampled = {
        "exp": normalised("exp"),
        "uniform": normalised("uniform"),
        "quadratic": normalised("quadratic", absolute=True),
        "rff_d2048": normalised("rff", num_features=2048, nu=4.0),
        "rff_d8192": normalised("rff", num_features=8192, nu=4.0),
    }
    return experiment(
        "bnews",
        title="BNEWS, 64,000 words: Rawat et al. 2019, Figure 4",
        dataset={"name": "bnews"},
        model=MODEL,
        optimizer={"name": "adam", "learning_rate": 1e-3, "global_clipnorm": 5.0},
        method_table={
            "full": full(**NORMALISED),
            **{name: with_row_updates(method, ROWS) for name, method in sampled.items()},
        },
        epochs=10,
        steps_per_epoch=10_000,
        cell_timeout_s=7 * 86_400.0,
        columns=LANGUAGE_COLUMNS,
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "timing": SMALL_TIMING,
                "model": {**MODEL, "units": 16},
                "methods": "full,uniform",
                "epochs": 1,
            },
            "paper": {},
        },
    )
