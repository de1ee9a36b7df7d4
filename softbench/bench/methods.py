"""What configs have in common: rows of a method table, and sizes of smoke runs. Needs no Keras.

A row is {"head": class of softbench, "kwargs": its arguments}; `training.build.head` makes the head
and says what "train", "log frequencies" and the like mean there. With "optimizer" it overrides that
of the config, and with "excluded": E so many items that a user has had are no negatives of theirs,
in matrix factorisation.
"""

from collections.abc import Mapping

# Rawat et al.: logits tau <h, c> of normalised vectors, 1 / tau the temperature, and no bias.
NORMALISED = {"normalize": True, "temperature": 0.09, "use_bias": False}
# The same with biases that begin at the log frequencies: one model that suits every method.
NORMALISED_FREQUENCIES = {
    "normalize": True,
    "temperature": 0.09,
    "bias_initializer": "log frequencies",
}
FLAT_COUNTS = {"counts": "train", "power": 0.75}
FLAT_PRIOR = {"prior": "train", "prior_power": 0.75}
LOG_FREQUENCIES = "log frequencies"  # as `bias_initializer`
AT_MOST = "at most "  # before a number of draws, where n is not known
MOST, MOST_OWN = f"{AT_MOST}1024", f"{AT_MOST}32"  # shared by the batch, and for each example

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# What the presets `accelerator` have in common. JAX takes three quarters of a GPU by itself.
ACCELERATOR = {"backend": "jax", "environment": {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95"}}
LANGUAGE_COLUMNS = ("valid_perplexity", "test_perplexity", "step_ms", "head_ms", "tokens/s")

# `timing` of configs for user data: a small file has few steps an epoch, and diagnostics of all
# points take as long as they do.
FIRST_RUN = {"warmup_steps": 2, "head_repetitions": 0, "diagnose_last": True}
SMALL_TIMING = {"warmup_steps": 1, "head_repetitions": 2}
SMALL_SIZES = {"num_classes": 300, "num_train": 2_000, "num_valid": 500, "num_test": 500}
SMALL_LANGUAGE = {"name": "synthetic_language", **SMALL_SIZES}
SMALL_LABELS = {"name": "synthetic_xmc", "num_features": 64, **SMALL_SIZES}
SMALL_TRIPLES = {"name": "synthetic_triples", **SMALL_SIZES}
SASREC = {"name": "sasrec", "dim": 64, "length": 50, "num_blocks": 1, "num_heads": 1}
SMALL_HISTORIES = {"name": "synthetic_interactions", "num_classes": 300, "num_users": 400}


def ranking_columns(k: int) -> tuple[str, ...]:
    """Columns of recommenders: how the first k of the items that a user has not had are."""
    whole = [f"test_{metric}_at_{k}" for metric in ("recall", "ndcg", "mrr", "coverage")]
    return (*whole, *(f"test_recall_at_{k}_{bucket}" for bucket in ("head", "torso", "tail")))


def random_classes(*sizes: int) -> dict[str, dict]:
    """Problems whose batches are random, one for each number of classes."""
    return {
        f"n{units}": {
            "dataset": {"name": "random", "label": f"random{units}", "num_classes": units}
        }
        for units in sizes
    }


def at_most(text: str, num_classes: int) -> int:
    """The number that "at most 512" is: the smaller of 512 and n / 4."""
    return max(1, min(int(text.removeprefix(AT_MOST)), num_classes // 4))


def row(head: str, **kwargs: object) -> dict:
    """A row of any head."""
    return {"head": head, "kwargs": kwargs} if kwargs else {"head": head}


def full(**kwargs: object) -> dict:
    """A row of the exact softmax."""
    return row("FullSoftmax", **kwargs)


def sampler(name: str, **config: object) -> dict:
    """A sampler as plain data."""
    return {"class_name": name, "config": config}


def sampled(
    name: str,
    num_sampled: int | str,
    kwargs: Mapping[str, object] | None = None,
    **config: object,
) -> dict:
    """A `SampledSoftmax` row.

    Args:
        name: of the sampler.
        num_sampled: m.
        kwargs: further arguments of the head.
        **config: arguments of the sampler.
    """
    draws = {"sampler": sampler(name, **config), "num_sampled": num_sampled}
    return row("SampledSoftmax", **draws, **(kwargs or {}))


def ranked(objective: str, method: Mapping, **parameters: object) -> dict:
    """A `SampledSoftmax` row with a loss that ranks instead of the softmax loss.

    Args:
        objective: "psl" or "sl_at_k", or "bsl", whose scores get no bias.
        method: the row.
        **parameters: of the objective.
    """
    loss = sampler(objective, **parameters) if parameters else objective
    kwargs = {**method["kwargs"], "objective": loss}
    if objective == "bsl":
        kwargs = {**kwargs, "use_bias": False}
        kwargs.pop("bias_initializer", None)
    return {**method, "kwargs": kwargs}


def normalised(name: str, num_sampled: int = 100, absolute: bool = False, **config: object) -> dict:
    """A `SampledSoftmax` row of Rawat et al., on normalised vectors; arguments as `sampled`."""
    return sampled(name, num_sampled, {**NORMALISED, "absolute": absolute}, **config)


def noise(
    objective: str,
    num_sampled: int | str,
    kwargs: Mapping[str, object] | None = None,
    **config: object,
) -> dict:
    """A `NoiseContrastive` row whose noise are the class frequencies; arguments as `sampled`."""
    draws = {"sampler": sampler("unigram", **{"counts": "train", "power": 1.0, **config})}
    draws |= {"objective": objective, "num_sampled": num_sampled}
    return row("NoiseContrastive", **draws, **(kwargs or {}))


def gbce(kwargs: Mapping[str, object], num_sampled: int | str = MOST, t: float = 0.75) -> dict:
    """A row of gBCE on uniform draws that the batch shares; arguments as `comparison`."""
    draws = {"sampler": sampler("uniform", share_draws=True), "num_sampled": num_sampled}
    loss = {"objective": "gbce", "t": t, "remove_accidental_hits": True}
    return row("NegativeSampling", **draws, **loss, **kwargs)


def one_tail(counts: str = "train") -> dict:
    """The default tail of top_and_tail, of which all groups share one set of draws."""
    return sampler("unigram", counts=counts, power=0.75, unique=True, share_draws=True)


def biases(value: float) -> dict:
    """Arguments of a head whose biases begin at a number.

    Binary NCE wants log Z near 0 from the start, which biases of -log n give.
    """
    return {"bias_initializer": {"class_name": "Constant", "config": {"value": value}}}


def adagrad(rate: float, accumulator: float | None = None) -> dict:
    """Adagrad, of rows or of a whole model; its sums of squares start at `accumulator`."""
    start = {} if accumulator is None else {"initial_accumulator_value": accumulator}
    return {"name": "adagrad", "learning_rate": rate, **start}


def comparison(
    kwargs: Mapping[str, object], num_sampled: int | str = MOST, own: int | str = MOST_OWN
) -> dict[str, dict]:
    """A table of methods of every kind on one head model: those of configs/decisions.py.

    Args:
        kwargs: arguments of every head.
        num_sampled: m, draws shared by the batch.
        own: draws for each example, of `codebook_own`.
    """
    m, shared, seen = num_sampled, {"share_draws": True}, {"counts": "train + 1"}
    half = max(1, m // 2) if isinstance(m, int) else f"{AT_MOST}{int(m.removeprefix(AT_MOST)) // 2}"
    flat = {**seen, "power": 0.75, "unique": True, **shared}
    both = {"first": sampler("in_batch", counts="train"), "second": sampler("unigram", **flat)}
    return {
        "full": full(**kwargs),
        "uniform": sampled("uniform", m, kwargs, **shared),
        "unigram": sampled("unigram", m, kwargs, **flat),
        "in_batch": sampled("in_batch", m, kwargs, counts="train"),
        "mixed": sampled("mixed", m, kwargs, **both),
        "codebook": sampled("codebook", m, kwargs, **seen, **shared),
        "codebook_own": sampled("codebook", own, kwargs, **seen),
        "top_and_tail": sampled("top_and_tail", half, kwargs, num_top=half, **seen, **shared),
        "rff": sampled("rff", m, kwargs, **shared),
        "exp": sampled("exp", m, kwargs, **shared),
        "nce_binary": noise("binary", m, kwargs, **seen, **shared),
        "nce_ranking": noise("ranking", m, kwargs, **seen, **shared),
    }


def with_rows(table: Mapping[str, dict]) -> dict[str, dict]:
    """A `comparison`, and `unigram_rows` and `in_batch_rows`: these again with row updates."""
    again = ("unigram", "in_batch")
    return {**table, **{f"{m}_rows": with_row_updates(table[m], adagrad(0.1)) for m in again}}


def with_row_updates(method: Mapping, row_optimizer: Mapping) -> dict:
    """A row whose head updates the touched rows of its table alone."""
    return {**method, "kwargs": {**method["kwargs"], "row_optimizer": row_optimizer}}
