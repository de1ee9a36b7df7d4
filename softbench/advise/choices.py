"""The methods that are tried for a problem, and the Keras lines for each. Needs no Keras."""

import math
from typing import NamedTuple

from softbench.bench.methods import adagrad, biases, full, noise, row, sampled, sampler

ROWS_FROM = 50_000  # classes, from which on the head updates the touched rows alone
MANY = 1000  # draws for the batch
RATE = 0.1
# What a head's scores are at prediction; `prediction_scores` has what must be added.
_PREDICTION = {
    "FullSoftmax": "Probabilities: the softmax of its scores",
    "SampledSoftmax": "Probabilities: the softmax of its scores, without a correction",
    "NoiseContrastive": "Probabilities: the softmax of its scores, off which the loss takes log q",
    "NegativeSampling": "Probabilities: the softmax of its scores plus log p_n, which it adds",
}
_RANKS = "No probabilities, and no correction makes them so: the order of its scores"
# Arguments of a head that are its table's, and those that only a `ClassTable` takes.
_RARE = {"absolute", "kernel_initializer", "bias_initializer", "table_dtype"}
_OF_TABLE = ("use_bias", "normalize", "temperature", "row_optimizer", *sorted(_RARE))
_UNIGRAM = {"counts": "train", "power": 0.75, "share_draws": True}


class Problem(NamedTuple):
    """Sizes and needs of the user's problem.

    Attributes:
        classes, dim: n, d.
        batch: rows of a batch.
        positives: labels of a row; each is a separate example.
        need: "calibrated" or "ranking".
        inputs: "words", "labels", "items", or "" where not specified.
        has_counts: whether the user has class counts.
    """

    classes: int
    dim: int
    batch: int
    positives: int = 1
    need: str = "calibrated"
    inputs: str = ""
    has_counts: bool = False

    @property
    def examples(self) -> int:
        """Labels of a batch."""
        return self.batch * self.positives


class Choice(NamedTuple):
    """A method.

    Attributes:
        method: as in a config.
        why: what speaks for it and what it needs, in a sentence.
        baseline: whether others with records as good go before it, however quick it is.
    """

    method: dict
    why: str
    baseline: bool = False


def choices(problem: Problem) -> dict[str, Choice]:
    """Returns {name: choice} for a problem, in the order in which they are timed."""
    count = max(1, min(MANY, problem.classes - 1))
    rows = {"row_optimizer": adagrad(RATE)} if problem.classes > ROWS_FROM else {}
    in_batch = min(count, problem.examples)
    top = min(256, max(1, problem.classes // 4))
    methods = {
        "full": Choice(full(), "exact: nothing to tune, no bias of sampling"),
        "unigram": Choice(
            sampled("unigram", count, rows, unique=True, **_UNIGRAM),
            "one set of draws by class frequency, without replacement: cheapest where frequencies "
            "say much, as for words",
        ),
        "in_batch": Choice(
            sampled("in_batch", in_batch, rows),
            "the other labels of the batch are the negatives, corrected by their frequencies; "
            "needs no counts, wants large batches",
        ),
        "codebook": Choice(
            sampled("codebook", count, rows, share_draws=True),
            "draws that follow the model at a cost that n does not change; needs no counts",
        ),
        "top_and_tail": Choice(
            sampled("top_and_tail", count, rows, counts="train", num_top=top),
            "the classes that matter most to groups of similar examples for certain, a unigram "
            "sample for the others",
        ),
        "nce_binary": Choice(
            noise(
                "binary",
                count,
                {**rows, **biases(-round(math.log(problem.classes), 3))},
                share_draws=True,
            ),
            "its scores are log-probabilities without a partition: cheap to evaluate one class",
        ),
        "uniform": Choice(
            sampled("uniform", count, rows, share_draws=True),
            "needs nothing, and learns least from a draw where classes are unequal",
            baseline=True,
        ),
    }
    if problem.need == "ranking":
        options = {"sampler": sampler("uniform", share_draws=True), "num_sampled": count, **rows}
        hinge = row("SampledHinge", **options)
        methods["hinge"] = Choice(hinge, "a margin; its scores rank and are no probabilities", True)
    return methods


def prediction(method: dict) -> str:
    """Returns what the scores of a method's head are, and which correction they have."""
    return _PREDICTION.get(method["head"], _RANKS)


def lines(problem: Problem, method: dict) -> list[str]:
    """Returns the Keras lines of a method."""
    arguments = dict(method.get("kwargs", {}))
    what = "ids of the classes"
    if problem.positives > 1:
        arguments["multi_label"] = "mean"
        what += f", (rows, {problem.positives}), padded with -1"
    first = f"{problem.classes}"
    if _RARE & set(arguments):
        options = {key: arguments.pop(key) for key in _OF_TABLE if key in arguments}
        first = f"table=softbench.ClassTable({', '.join([first, *_named(options)])})"
    return [
        f"head = softbench.{method['head']}({', '.join([first, *_named(arguments)])})",
        "model = softbench.Classifier(encoder, head)",
        'model.compile("adam")',
        f"model.fit(x, y)  # y: {what}",
    ]


def _named(arguments: dict) -> list[str]:
    return [f"{name}={_shown(value)}" for name, value in arguments.items()]


def _shown(value: object) -> str:
    """Returns Python's text of an argument; counts as the variable that holds them."""
    if isinstance(value, dict) and "learning_rate" in value:
        return f"softbench.RowAdagrad({value['learning_rate']})"
    if isinstance(value, dict) and "class_name" in value and not value["config"]:
        return repr(value["class_name"])
    if isinstance(value, dict):
        items = (f"{k!r}: {'counts' if v == 'train' else _shown(v)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    return repr(value)
