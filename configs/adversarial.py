"""Bamler & Mandt, Figure 1: log-likelihood and accuracy against wall-clock seconds.

    softbench --config=configs/adversarial.py --backend=jax
    softbench --config=configs/adversarial.py:wd50k --backend=jax --data_dir=<folder with wd50k/>
    softbench --config=configs/adversarial.py:eltec --backend=jax --data_dir=<with states/eltec-hun>
    softbench --config=configs/adversarial.py:wikipedia-500k --data_dir=<prepared root>

The six methods of the figure: negative sampling from the adversarial tree, from the uniform
distribution and from the label frequencies, NCE with the tree as its noise, augment and reduce, and
one-vs-each, all with one draw for each example, as in the paper. Where a tree is used, the clock
starts after the seconds that it took to fit.

`hierarchy`, the default: the generated hierarchical set with n = 200,000 classes, one label for
each example, an example's hidden vector the weighted sum of its features' embeddings. `wd50k`: the
tail entity of a Wikidata triple among n = 41,334 from (head, relation), whose embeddings are added
up; evaluated on 2,000 validation and 2,000 test triples taken at random. The tree is fitted to 16
principal components of the same features: the bag, or the two ones.

`eltec`, the setting of the paper on real text: fixed features of 200 numbers, the states of an LSTM
that is trained and frozen by `configs/states.py`, and scores that are linear functions of them; the
word that follows, among n = 197,030. `codebook` and `in_batch` are rows of ours: a sampled softmax
with 512 draws that the batch shares.

The sets of the paper, `wikipedia-500k` and `amazon-670k`, have 512 dense features of which scores
are linear functions; their files have to be downloaded by a person and prepared
(`softbench-prepare`). They have not been run.

The rates of `SETS` were chosen among 0.03, 0.1, 0.3 (hierarchy: and 1.0) by the validation
accuracy after a short run: on `wd50k` 20 s of every method (36 with the tree; not NCE, which has
the rate of the others), on `hierarchy` 60 s of uniform and 90 s of adversarial noise, the other
methods have the same; there 1.0 gave uniform noise 0.012 more and a far worse likelihood:
`uniform_r1000` has been run beside. `<method>_r<1000 times the rate>` are rows of this grid. They
are the rates of the class rows; the rows of the encoder have 0.1. On `eltec` rates, the strength of
the paper's regulariser (eq. 6; rows `<method>_l<1e6 times it>`) were chosen by the validation
likelihood after two passes, as its accuracies differ by less than their error; the ridge is that of
a first trial, within 0.01 of the best of four:

    softbench --config=configs/adversarial.py:eltec --config.max_train_seconds=0 \\
        --config.epochs=2 --config.methods=frequency_r30,frequency_r100,frequency_r300 ...
"""

from softbench.bench.config import ConfigError, experiment
from softbench.bench.methods import (
    LOG_FREQUENCIES,
    SMALL_LABELS,
    SMALL_TRIPLES,
    adagrad,
    biases,
    row,
    sampled,
    sampler,
)

# Where Adagrad's sums of squares start. The default 0.1 is far above the squares of a mean loss's
# gradients here, and would leave steps of plain gradient descent at a tiny rate.
ACCUMULATOR = 1e-8
# A class that the noise never draws has probability 0 in prediction.
UNIGRAM = sampler("unigram", counts="train + 1")
# Scores of NCE are log-probabilities: a class that no step has touched must not stand at 0.
SELF_NORMALISED = biases(-11.5)  # about -log n of both
GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SETS = {
    # rates of the methods, in the order of METHODS; ridge of the tree; seconds of training
    # Held-out mean log p_n with a ridge of 30, 100, 300, 1,000: -7.94, -7.92, -7.91, -7.97; label
    # frequencies -8.35.
    "eltec": ((0.1, 0.1, 0.1, 0.1, 0.01, 0.1, 0.1, 0.1), 100.0, 90.0),
    "hierarchy": ((0.3,) * 6, 0.1, 300.0),
    # The paper's ridge of 0.1 fits a tree of one-hot features of rare entities to its training
    # points alone: held-out mean log p_n -9.67 where label frequencies have -9.10, and 10 -7.68.
    "wd50k": ((0.03, 0.03, 0.03, 0.03, 0.03, 0.1), 10.0, 60.0),
    # The text of the paper does not say how many hours its curves are long.
    "wikipedia-500k": ((0.3,) * 6, 0.1, 4 * 3600.0),
    "amazon-670k": ((0.3,) * 6, 0.1, 4 * 3600.0),
}
METHODS = ("adversarial", "uniform", "frequency", "nce", "augment_reduce", "one_vs_each")
SOFTMAX = ("codebook", "in_batch")  # rows of ours on `eltec`
# Of eq. 6 on `eltec`.
LAMBDAS = {"adversarial": 1e-4, "uniform": 1e-4, "frequency": 1e-3}
GRID_OF_LAMBDAS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2)


def method(name, ridge, rate):
    """A row of the table; trees have this ridge, class rows and encoder this rate."""
    tree = sampler(
        "adversarial",
        num_components=16,
        regularization=ridge,
        max_points_per_node=20_000,
        # of 10: on `hierarchy` mean log p_n falls by about 0.06, and the time by a quarter
        max_alternations=3,
    )
    head, drawn, kwargs = {
        "adversarial": ("NegativeSampling", tree, {}),
        "uniform": ("NegativeSampling", "uniform", {}),
        "frequency": ("NegativeSampling", UNIGRAM, {}),
        "nce": ("NoiseContrastive", tree, {"objective": "binary", **SELF_NORMALISED}),
        "augment_reduce": ("AugmentReduce", "uniform", {}),
        "one_vs_each": ("OneVsEach", "uniform", {}),
    }[name]
    optimizer = adagrad(rate, ACCUMULATOR)
    kwargs |= {"num_sampled": 1, "row_optimizer": optimizer, "kernel_initializer": "zeros"}
    return {**row(head, sampler=drawn, **kwargs), "optimizer": optimizer}


def on_states(name, ridge, rate, strength=None):
    """A row of `eltec`: with a regulariser, and biases at the frequencies where they help."""
    if name in METHODS:
        made = method(name, ridge, rate)
        strength = LAMBDAS.get(name) if strength is None else strength
        if strength:
            made["kwargs"]["regularization"] = strength
        if name == "nce":
            made["kwargs"]["bias_initializer"] = LOG_FREQUENCIES
        return made
    optimizer = adagrad(rate, ACCUMULATOR)
    own = {"counts": "train"}
    if name == "codebook":
        own = {"counts": "train + 1", "share_draws": True}
    start = {"kernel_initializer": "zeros", "bias_initializer": LOG_FREQUENCIES}
    made = sampled(name, 512, {"row_optimizer": optimizer, **start}, **own)
    return {**made, "optimizer": optimizer}


def method_table(name):
    """The rows of a set, and those of its grids."""
    rates, ridge, _ = SETS[name]
    make, names = (on_states, METHODS + SOFTMAX) if name == "eltec" else (method, METHODS)
    table = {m: make(m, ridge, rate) for m, rate in zip(names, rates, strict=True)}
    table |= {f"{m}_r{round(1000 * r)}": make(m, ridge, r) for m in names for r in GRID}
    for m, rate in zip(METHODS[:3], rates[:3], strict=True) if name == "eltec" else ():
        for strength in GRID_OF_LAMBDAS:
            table[f"{m}_l{round(1e6 * strength)}"] = on_states(m, ridge, rate, strength)
    return table


def problem(name):
    """Data set and model."""
    bag = {"dim": 128, "batch_size": 512, "row_optimizer": adagrad(0.1, ACCUMULATOR)}
    if name == "hierarchy":
        dataset = {
            "name": "synthetic_xmc",
            "label": "hierarchy",
            "num_classes": 200_000,
            "num_features": 20_000,
            "num_train": 400_000,
            "num_valid": 1_000,
            "num_test": 2_000,
            "labels_per_example": 1.0,
        }
        return {"dataset": dataset, "model": {"name": "bag", **bag}}
    if name == "wd50k":
        model = {"name": "pair", "held_out_rows": 2_000, **bag}
        return {"dataset": {"name": "wd50k"}, "model": model}
    dataset = {"name": f"xmc/{name}", "first_label": True}
    if name == "eltec":
        dataset = {"name": "states/eltec-hun"}
    model = {"name": "linear", "batch_size": 512}
    return {"dataset": dataset, "model": model}


def small(name):
    """The problem on a generated set of a few examples."""
    if name == "wd50k":
        return SMALL_TRIPLES
    return {**SMALL_LABELS, "labels_per_example": 1.0}


def get_config(name=None):
    """Returns the experiment; every value can be overridden on the command line."""
    chosen, name = name, name or "hierarchy"
    if name not in SETS:
        raise ConfigError(
            f"The data set after the colon must be one of {', '.join(SETS)}. Received: {name!r}"
        )
    table, seconds = method_table(name), SETS[name][2]
    return experiment(
        "adversarial",
        title="The adversarial softmax approximation (Bamler & Mandt, Figure 1)",
        problems={name: problem(name)},
        max_train_seconds=seconds,
        methods=",".join(METHODS + (SOFTMAX if name == "eltec" else ())),
        method_table=table,
        epochs=6 if name == "eltec" else 10,
        timing={"head_repetitions": 0, "diagnose_last": True},
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
                    n: {"dataset": small(n), "model": problem(n)["model"]}
                    for n in ([chosen] if chosen else ("hierarchy", "wd50k", "wikipedia-500k"))
                },
                "methods": "adversarial,augment_reduce",
                "epochs": 2,
                "max_train_seconds": 2.0,
            },
            "paper": {
                "problems": {
                    n: problem(n)
                    for n in ([chosen] if chosen else ("wikipedia-500k", "amazon-670k"))
                },
                "max_train_seconds": SETS["amazon-670k"][2],
                "cell_timeout_s": 86_400.0,
            },
        },
    )
