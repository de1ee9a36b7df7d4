"""Rawat et al. (2019), Figure 4: a language model on BNEWS, 64,000 words, d = 512, m = 100.

    softbench-prepare --dataset=bnews --data_dir=<folder with bnews/> --out=<prepared root>
    softbench --config=configs/bnews.py --data_dir=<prepared root> --backend=jax

The text (One Billion Word) is not part of this project: put its training and held-out sentences,
one a line, into bnews/train and bnews/test (files or folders). Not run here. The paper gives
neither its model beyond d nor its optimizer: an LSTM of one layer, normalised vectors and Adam as
in `configs/ptb_rff.py`. The table of 64,000 words takes row updates in the sampled methods.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import SMALL_LANGUAGE, SMALL_TIMING

NORMALISED = {"normalize": True, "temperature": 0.09, "use_bias": False}
ROWS = {"name": "adagrad", "learning_rate": 0.1}
MODEL = {
    "name": "lstm",
    "preset": "medium",
    "label": "lstm512",
    "units": 512,
    "num_layers": 1,
    "keep_prob": 1.0,
    "row_optimizer": ROWS,
}


def sampled(name, absolute=False, **sampler):
    """A `SampledSoftmax` row on normalised vectors, with row updates."""
    kwargs = {"sampler": {"class_name": name, "config": sampler}, "num_sampled": 100}
    kwargs |= {**NORMALISED, "absolute": absolute, "row_optimizer": ROWS}
    return {"head": "SampledSoftmax", "kwargs": kwargs}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "bnews",
        title="BNEWS, 64,000 words: Rawat et al. 2019, Figure 4",
        dataset={"name": "bnews"},
        model=MODEL,
        optimizer={"name": "adam", "learning_rate": 1e-3, "global_clipnorm": 5.0},
        method_table={
            "full": {"head": "FullSoftmax", "kwargs": NORMALISED},
            "exp": sampled("exp"),
            "uniform": sampled("uniform"),
            "quadratic": sampled("quadratic", absolute=True),
            "rff_d2048": sampled("rff", num_features=2048, nu=4.0),
            "rff_d8192": sampled("rff", num_features=8192, nu=4.0),
        },
        epochs=10,
        steps_per_epoch=10_000,
        cell_timeout_s=7 * 86_400.0,
        columns=("valid_perplexity", "test_perplexity", "step_ms", "head_ms", "tokens/s"),
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
