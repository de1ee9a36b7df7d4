"""Bamler & Mandt, Figure 1: log-likelihood and accuracy against wall-clock seconds.

    softbench --config=configs/adversarial.py --data_dir=<folder that holds wd50k/> --backend=jax
    softbench --config=configs/adversarial.py:hierarchy --backend=jax
    softbench --config=configs/adversarial.py:wikipedia-500k,amazon-670k --data_dir=<prepared root>

The six methods of the figure: negative sampling from the adversarial tree, from the uniform law and
from the label frequencies, NCE with the tree as its noise, augment and reduce, and one-vs-each, all
with one draw for each example, as in the paper. Where a tree is used, the clock starts after the
seconds that it took to fit.

`hierarchy`: the generated hierarchical set with n = 200,000 classes, one label for each example, an
example's hidden vector the weighted sum of its features' embeddings. `wd50k`: the tail entity of a
Wikidata triple among n = 41,334 from (head, relation), whose embeddings are added up; evaluated on
2,000 validation and 2,000 test triples taken at random. The tree is fitted to 16 principal
components of the same features: the bag, or the two ones.

The sets of the paper, `wikipedia-500k` and `amazon-670k`, have 512 dense features of which scores
are linear functions; their files have to be downloaded by a person and prepared
(`softbench-prepare`). They have not been run.

`GRID` are rates to try on the validation set: `--config.methods=` with the names
`<method>_r<1000 times the rate>`. `RATES` is not chosen by it yet, and the figure not measured.
`<method>_ridge<lambda_n>` have another ridge of the tree than the paper's 0.1: with 0.1 the tree of
`wd50k`, whose features are ones of rare entities, fits its training points and not others.
"""

from softbench.bench.config import SMALL_LABELS, SMALL_TRIPLES, ConfigError, experiment

TREE = {"class_name": "adversarial", "config": {"num_components": 16, "regularization": 0.1}}
# Where Adagrad's sums of squares start. The default 0.1 is far above the squares of a mean loss's
# gradients here, and would leave steps of plain gradient descent at a tiny rate.
ACCUMULATOR = 1e-8
# A class that the noise never draws has probability 0 in prediction.
UNIGRAM = {"class_name": "unigram", "config": {"counts": "train + 1"}}
# Scores of NCE are log-probabilities: a class that no step has touched must not stand at 0.
SELF_NORMALISED = {"class_name": "Constant", "config": {"value": -11.5}}  # about -log n of both
RIDGES = (1, 10)
HERE = "hierarchy,wd50k"
PAPER = ("wikipedia-500k", "amazon-670k")
GRID = (0.03, 0.1, 0.3)
RATES = {
    "adversarial": 0.1,
    "uniform": 0.1,
    "frequency": 0.1,
    "nce": 0.1,
    "augment_reduce": 0.1,
    "one_vs_each": 0.1,
}
HEADS = {
    "adversarial": ("NegativeSampling", {"sampler": TREE, "num_sampled": 1}),
    "uniform": ("NegativeSampling", {"sampler": "uniform", "num_sampled": 1}),
    "frequency": ("NegativeSampling", {"sampler": UNIGRAM, "num_sampled": 1}),
    "nce": (
        "NoiseContrastive",
        {
            "sampler": TREE,
            "num_sampled": 1,
            "objective": "binary",
            "bias_initializer": SELF_NORMALISED,
        },
    ),
    "augment_reduce": ("AugmentReduce", {"sampler": "uniform", "num_sampled": 1}),
    "one_vs_each": ("OneVsEach", {"sampler": "uniform", "num_sampled": 1}),
}


def method(name, rate):
    """A row; Adagrad with this rate updates the class rows and the encoder."""
    head, kwargs = HEADS[name]
    adagrad = {"name": "adagrad", "learning_rate": rate, "initial_accumulator_value": ACCUMULATOR}
    return {
        "head": head,
        "kwargs": {**kwargs, "row_optimizer": adagrad, "kernel_initializer": "zeros"},
        "optimizer": adagrad,
    }


def problems():
    """The data sets."""
    adagrad = {
        "name": "adagrad",
        "learning_rate": 0.1,
        "initial_accumulator_value": ACCUMULATOR,
    }
    model = {"dim": 128, "batch_size": 512, "row_optimizer": adagrad}
    hierarchy = {
        "name": "synthetic_xmc",
        "label": "hierarchy",
        "num_classes": 200_000,
        "num_features": 20_000,
        "num_train": 400_000,
        "num_valid": 1_000,
        "num_test": 2_000,
        "labels_per_example": 1.0,
    }
    return {
        "hierarchy": {"dataset": hierarchy, "model": {"name": "bag", **model}},
        "wd50k": {
            "dataset": {"name": "wd50k"},
            "model": {"name": "pair", "held_out_rows": 2_000, **model},
        },
        **{
            name: {
                "dataset": {"name": f"xmc/{name}", "first_label": True},
                "model": {"name": "linear", "batch_size": 512},
            }
            for name in PAPER
        },
    }


def small(problem):
    """The problem on a generated set of a few examples."""
    pairs, one_label = problem["model"]["name"] == "pair", {"labels_per_example": 1.0}
    return {**problem, "dataset": SMALL_TRIPLES if pairs else {**SMALL_LABELS, **one_label}}


def get_config(which=None):
    """Returns the experiment; every value can be overridden on the command line."""
    known = problems()

    def some(names):
        return {name: known[name] for name in names}

    chosen = (HERE if which is None else which).split(",")
    unknown = set(chosen) - set(known)
    if unknown:
        raise ConfigError(
            f"The data sets after the colon must be among {', '.join(known)}. Received: {which!r}"
        )
    table = {name: method(name, rate) for name, rate in RATES.items()}
    table |= {
        f"{name}_r{round(1000 * rate)}": method(name, rate) for name in HEADS for rate in GRID
    }
    for ridge in RIDGES:
        for name in ("adversarial", "nce"):
            row = method(name, RATES[name])
            row["kwargs"]["sampler"] = {
                **TREE,
                "config": {**TREE["config"], "regularization": ridge},
            }
            table[f"{name}_ridge{ridge}"] = row
    return experiment(
        "adversarial",
        title="The adversarial softmax approximation (Bamler & Mandt, Figure 1)",
        problems=some(chosen),
        methods=",".join(HEADS),
        method_table=table,
        epochs=10,
        max_train_seconds=300.0,
        timing={"head_repetitions": 0},
        cell_timeout_s=3600.0,
        reach={"method": "uniform", "metric": "valid_accuracy"},
        columns=(
            "log_likelihood",
            "test_accuracy",
            "test_perplexity",
            "step_ms",
            "examples/s",
        ),
        presets={
            "smoke": {
                "problems": {
                    name: small(problem)
                    for name, problem in some(chosen if which else (*chosen, PAPER[0])).items()
                },
                "methods": "adversarial,augment_reduce",
                "epochs": 2,
                "max_train_seconds": 2.0,
            },
            # The text of the paper does not say how many hours its curves are long.
            "paper": {
                "problems": some(chosen if which else PAPER),
                "max_train_seconds": 4 * 3600.0,
                "cell_timeout_s": 86_400.0,
            },
        },
    )
