"""The quantities that records hold, each said once: words with unit, direction, format.

Adding one is one line of `MEASURES`, and a number of that name in a record's `final`, or in what a
task's page takes from its records. Tables, CSV files, pictures and claims read it from here.
"""

from typing import NamedTuple

LOWER, HIGHER = "lower", "higher"
_CUTS = (1, 3, 5)
_RANKS = (1, 5, 10, 20)  # of recommenders
_BINS = {"head": "frequent", "torso": "middle", "tail": "rare"}  # thirds of the labels


class Measure(NamedTuple):
    """A quantity.

    Attributes:
        words: what it is, with its unit: the heading of a column, the label of an axis.
        better: `LOWER`, `HIGHER`, or "" where neither is.
        form: format of one value; "" for four significant digits.
        error: column with its standard error, of means over examples or draws.
        exact: whether it is calculated, and neither measured nor drawn.
        of_machine: whether it depends on the machine: times and memory.
        log: whether its axis is logarithmic.
    """

    words: str
    better: str = ""
    form: str = ""
    error: str = ""
    exact: bool = False
    of_machine: bool = False
    log: bool = False


def _cost(words: str, better: str = LOWER) -> Measure:
    return Measure(words, better, of_machine=True, log=True)


MEASURES: dict[str, Measure] = {
    # Quality, in records with `test_` or `valid_` before it.
    "perplexity": Measure("perplexity", LOWER, log=True),
    "nll": Measure("nats per label", LOWER),
    "log_likelihood": Measure("log-likelihood, nats", HIGHER),
    "ece": Measure("calibration error", LOWER),
    "accuracy": Measure("accuracy", HIGHER),
    **{f"precision_at_{k}": Measure(f"precision@{k}", HIGHER) for k in _CUTS},
    **{f"ps_precision_at_{k}": Measure(f"PSP@{k}", HIGHER) for k in _CUTS},
    **{f"ndcg_at_{k}": Measure(f"nDCG@{k}", HIGHER) for k in (*_CUTS, 10, 20)},
    **{f"recall_at_{k}": Measure(f"recall@{k}", HIGHER) for k in _RANKS},
    **{f"mrr_at_{k}": Measure(f"MRR@{k}", HIGHER) for k in _RANKS},
    **{f"map_at_{k}": Measure(f"MAP@{k}", HIGHER) for k in _RANKS},
    **{f"coverage_at_{k}": Measure(f"coverage@{k}", HIGHER) for k in _RANKS},
    **{f"novelty_at_{k}": Measure(f"novelty@{k}, bits") for k in _RANKS},
    **{
        f"recall_at_{k}_{b}": Measure(f"recall@{k}, {words}", HIGHER)
        for k in (*_CUTS, 10, 20)
        for b, words in _BINS.items()
    },
    **{f"nll_{b}": Measure(f"nats, {words}", LOWER) for b, words in _BINS.items()},
    # Of training.
    "epochs": Measure("epochs"),
    "step": Measure("training steps"),
    "steps": Measure("steps"),
    "seconds": Measure("training time, s"),
    "reference_steps": Measure("cost of training, steps of the reference"),
    "train_loss": Measure("training loss"),
    "price": Measure("price of a step"),
    "step_ms": _cost("step, ms"),
    "wall_s": Measure("training by price, s", LOWER, ".0f", of_machine=True, log=True),
    "head_ms": _cost("head, ms"),
    "examples/s": _cost("examples/s", HIGHER),
    "tokens/s": _cost("tokens/s", HIGHER),
    "compile_s": _cost("compilation, s"),
    "memory_mb": _cost("memory, MiB"),
    "device_memory_mb": _cost("device memory, MiB"),
    "head_mb": Measure("head, MiB", LOWER, log=True),
    "tree_s": _cost("tree, s"),
    "goal_s": _cost("s to the goal"),
    "tree.valid_log_likelihood": Measure("log p_n of the tree, nats", HIGHER),
    "tree.valid_frequency_log_likelihood": Measure("log p_n of frequencies, nats", HIGHER),
    # Of proposals.
    "mutual_information": Measure("mutual information, nats"),
    **{f"{prefix}kl": Measure("KL(p, q), nats", LOWER) for prefix in ("", "proposal_")},
    **{
        f"{prefix}ess": Measure("effective sample size", HIGHER, ".1%")
        for prefix in ("", "proposal_")
    },
    **{
        f"{prefix}rv": Measure("relative variance", LOWER, log=True) for prefix in ("", "proposal_")
    },
    "rv_median": Measure("relative variance, median", LOWER, log=True),
    "row_rv_median": Measure("row variance, median", LOWER, log=True),
    **{
        f"{prefix}row_rv{kind}_{b}": Measure(f"row variance, {words}", LOWER, log=True)
        for b, words in _BINS.items()
        for prefix, kind in (("proposal_", ""), ("", "_median"))
    },
    "draws": Measure("rows a batch"),
    "draw_ms": _cost("draws, ms"),
    "loss_ms": _cost("loss, ms"),
    "update_ms": _cost("update, ms"),
    "exact_over": Measure("exact draws' time over it", HIGHER, of_machine=True),
    "sums_mb": Measure("sums, MB", LOWER),
    "ranks": Measure("rank by KL and rank by row variance, their sum"),
    "reached": Measure("perplexity reached", LOWER, log=True),
    "reached_over_full": Measure("perplexity reached over full's", LOWER, log=True),
    "worst": Measure("largest bias", LOWER, ".2g", error="error", log=True),
    "upper": Measure("upper bound", form=".2g"),
    "inside": Measure("contexts inside the bounds"),
    # Of the other experiments.
    "resident_mb": _cost("memory while it steps, MB"),
    "peak_mb": _cost("peak memory, MB"),
    "peak_mib": _cost("memory, MiB"),
    "over_products": _cost("time over the products'"),
    "over_keras": _cost("time over Keras'"),
    "over_parts": _cost("time over its parts'"),
    "tflops": _cost("TFLOP/s", HIGHER),
    "table_mib": Measure("table on a device, MiB", LOWER),
    "state_mib": Measure("state on a device, MiB", LOWER),
    "sent_kib": Measure("sent in a step, KiB", LOWER),
    "largest_elements": Measure("numbers in the largest message", LOWER),
    "recall": Measure("recall of the k best", HIGHER),
    "share": _cost("time over the exact one's"),
    "mse": Measure("mean squared error", LOWER, ".2e", log=True),
    "gaussian": Measure("error on the Gaussian kernel", LOWER, ".2e"),
    "scored": Measure("error as the paper scores it", LOWER, ".1e"),
    "published": Measure("the paper's error", form=".1e"),
    "relative": Measure("error over the mean squared target", LOWER, ".2g"),
    "closed_form": Measure("noise over signal", LOWER, exact=True),
    "monte_carlo": Measure("by gradients"),
    "signal": Measure("signal over noise, of the best", HIGHER, exact=True),
    "bound": Measure("InfoNCE bound, nats", HIGHER, error="bound_error"),
    "information": Measure("I(x, y), nats", exact=True),
    "ceiling": Measure("log N", exact=True),
    "local": Measure("loss of local NCE", LOWER, error="local_error"),
    "least": Measure("least loss by the lemma", exact=True),
    "recovered_kl": Measure("KL of p(y given x), nats", LOWER, exact=True),
    "kl_to_truth": Measure("KL to the truth, nats", LOWER, log=True),
    "kl_over_mle": Measure("KL over maximum likelihood's", LOWER),
    "unnormalised": Measure("KL as it is, nats", LOWER),
    "msd": Measure("n MSE / d", LOWER),
    "msd_exact": Measure("exact"),
    "fisher": Measure("Fisher limit", exact=True),
    "distance": Measure("n (estimate - mle)^2 / d", LOWER, log=True),
    "estimate": Measure("estimated ratio"),
    # What runs are told apart by.
    "n": Measure("number of classes", form=",", log=True),
    "num_sampled": Measure("draws m", form=",", log=True),
    "devices": Measure("devices"),
    "inputs": Measure("inputs"),
    "size": Measure("n", form=",", log=True),
    "candidates": Measure("candidates N", log=True),
    "negatives": Measure("K", log=True),
    "tau": Measure("tau"),
    "fraction": Measure("trained", form=".0%"),
    "features": Measure("features D", log=True),
}

_PREFIXES = {"best.": "best ", "test_": "test ", "valid_": "validation "}


def _split(column: str) -> tuple[list[str], str]:
    words = []
    for prefix, word in _PREFIXES.items():
        if column.startswith(prefix):
            column = column.removeprefix(prefix)
            words.append(word)
    return words, column


def of(column: str) -> Measure:
    """Returns the measure of a column; one that is not declared has its name for words."""
    return MEASURES.get(_split(column)[1], Measure(column))


def is_declared(column: str) -> bool:
    """Whether a column is one of the measures."""
    return _split(column)[1] in MEASURES


def words(column: str) -> str:
    """Returns the heading of a column: `validation perplexity`, `best test nDCG@10`."""
    if column.endswith(".paper"):
        return f"paper's {of(column.removesuffix('.paper')).words}"
    return "".join(_split(column)[0]) + of(column).words


def on_curve(column: str) -> str:
    """Returns the name that a measure of quality has on learning curves."""
    return f"valid_{_split(column)[1]}"


def lower_is_better(column: str) -> bool:
    """Whether less of a column's measure is better."""
    return of(column).better == LOWER


def is_quality(column: str) -> bool:
    """Whether a column says how good a model is: the best row of it is marked."""
    measure = of(column)
    return bool(measure.better) and not measure.of_machine
