"""The quantities that columns show, each defined once: label, direction, source in a record.

A column of a config is the name of a measure, of quality with `test_` or `valid_` before it. Tables
and CSV files, plots of learning curves, and the front page's choice of a measure read `MEASURES`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

_CUTS = (1, 3, 5)
_RANKS = (1, 5, 10, 20)  # of recommenders
_BINS = ("head", "torso", "tail")  # thirds of the labels by class frequency
# Of recommenders, for all users and by what is behind the name.
_OF_USERS = {"recall": "recall", "ndcg": "nDCG", "mrr": "MRR", "map": "MAP"}
_SLICES = {f"_{name}": name for name in _BINS}
_SLICES |= {f"_of_{size}": f"users with {size} items" for size in ("few", "some", "many")}
_QUANTILES = {"p50": "median", "p20": "p20", "p80": "p80"}


class Measure(NamedTuple):
    """A measure.

    Attributes:
        words: what it is, for the axis of a plot.
        lower: whether less of it is better; None where neither is.
        log: whether its axis is logarithmic.
        of: record -> {column of a DataFrame: number}, None where a record does not have it (the
            first column is shown); or None: of what a record's `final` holds.
        curve: which measure the learning curve has of it, as valid_<name>; None: itself; "" of
            what says nothing of quality.
        drawn: whether its learning curve is drawn, where there is one.
        of_machine: whether it depends on the machine.
    """

    words: str
    lower: bool | None = False
    log: bool = False
    of: Callable[[Mapping], dict[str, float | None]] | None = None
    curve: str | None = None
    drawn: bool = True
    of_machine: bool = False


def times(summary: Mapping | None, name: str) -> dict[str, float | None]:
    """Returns the columns of a measured time {"median", "p20", "p80"}; None where it is missing."""
    return {f"{name}_{suffix}": (summary or {}).get(key) for suffix, key in _QUANTILES.items()}


def _time(name: str) -> Measure:
    return Measure(
        name, True, True, lambda record: times(record.get(name), name), "", of_machine=True
    )


def _cost(
    name: str, of: Callable[[Mapping], object], lower: bool | None = True, of_machine: bool = True
) -> Measure:
    return Measure(name, lower, True, lambda record: {name: of(record)}, "", of_machine=of_machine)


def peak_mb(record: Mapping, where: str) -> float | None:
    """Returns the peak memory of a record's process on its "host" or "device", in MiB."""
    return (record.get("peak_memory_mb") or {}).get(where)


def _steps(record: Mapping) -> int | None:
    """How many steps a record's cell trained."""
    return (record.get("curve") or [{}])[-1].get("step")


MEASURES: dict[str, Measure] = {
    "perplexity": Measure("perplexity", lower=True, log=True),
    "precision_at_1": Measure("precision@1"),
    # Their curves would show what those of the two above show.
    "nll": Measure("negative log-likelihood, nats", lower=True, drawn=False),
    "log_likelihood": Measure("log-likelihood, nats", curve="nll", drawn=False),
    "ece": Measure("calibration error", lower=True, drawn=False),
    "accuracy": Measure("accuracy", drawn=False),
    **{f"precision_at_{k}": Measure(f"precision@{k}", drawn=False) for k in (3, 5)},
    **{f"ndcg_at_{k}": Measure(f"nDCG@{k}", drawn=False) for k in _CUTS},
    **{f"ps_precision_at_{k}": Measure(f"PSP@{k}", drawn=False) for k in _CUTS},
    **{
        f"recall_at_{k}_{b}": Measure(f"recall@{k}, {b}", drawn=False) for k in _CUTS for b in _BINS
    },
    **{f"recall_at_{k}": Measure(f"recall@{k}", drawn=False) for k in _RANKS},
    **{f"ndcg_at_{k}": Measure(f"nDCG@{k}", drawn=k == 10) for k in (10, 20)},
    **{f"mrr_at_{k}": Measure(f"MRR@{k}", drawn=False) for k in _RANKS},
    **{f"map_at_{k}": Measure(f"MAP@{k}", drawn=False) for k in _RANKS},
    **{f"coverage_at_{k}": Measure(f"coverage@{k}", drawn=False) for k in _RANKS},
    **{f"novelty_at_{k}": Measure(f"novelty@{k}, bits", None, drawn=False) for k in _RANKS},
    **{
        f"{name}_at_{k}{behind}": Measure(f"{label}@{k}, {words}", drawn=False)
        for name, label in _OF_USERS.items()
        for k in _RANKS
        for behind, words in _SLICES.items()
    },
    **{f"nll_{b}": Measure(f"nll, {b}", lower=True, drawn=False) for b in _BINS},
    "proposal_kl": Measure("KL(p, q), nats", lower=True, curve=""),
    "proposal_ess": Measure("effective sample size", curve=""),
    "proposal_rv": Measure("relative variance", lower=True, curve=""),
    "proposal_row_rv_head": Measure("row variance, frequent", lower=True, curve=""),
    "proposal_row_rv_torso": Measure("row variance, middle", lower=True, curve=""),
    "proposal_row_rv_tail": Measure("row variance, rare", lower=True, curve=""),
    "mutual_information": Measure("mutual information, nats", lower=None, curve=""),
    "epochs": _cost("epochs", lambda record: record["config"].get("epochs"), None, False),
    "steps": _cost("steps", _steps, None, False),
    "price": _cost(
        "price", lambda record: (record.get("price") or {}).get("ratio"), of_machine=False
    ),
    "step_ms": _time("step_ms"),
    "head_ms": _time("head_ms"),
    "examples/s": _cost("examples/s", lambda record: record.get("examples_per_second"), False),
    "tokens/s": _cost("tokens/s", lambda record: record.get("examples_per_second"), False),
    "compile_s": _cost("compile_s", lambda record: record.get("compile_seconds")),
    "memory_mb": _cost("memory_mb", lambda record: peak_mb(record, "host")),
    "device_memory_mb": _cost("device_memory_mb", lambda record: peak_mb(record, "device")),
    "head_mb": _cost("head_mb", lambda record: record.get("head_mb"), of_machine=False),
}


def name(column: str) -> str:
    """Returns a column's name without its prefixes: the split of the data, and the weights."""
    return column.removeprefix("best.").removeprefix("test_").removeprefix("valid_")


def columns(column: str) -> list[str]:
    """Returns the columns of a DataFrame with a column's numbers, the one to show first."""
    measure = MEASURES.get(column)
    return list(measure.of({"config": {}})) if measure and measure.of else [column]


def values(record: Mapping) -> dict[str, float | None]:
    """Returns {column of a DataFrame: number} of all measures of a record, `best.*` among them."""
    numbers = dict(record.get("final") or {})
    numbers |= {f"best.{key}": value for key, value in (record.get("best") or {}).items()}
    for measure in MEASURES.values():
        numbers |= measure.of(record) if measure.of else {}
    return numbers


def on_curve(column: str) -> str | None:
    """Returns where learning curves have a column of quality; None of another one."""
    measure = MEASURES.get(name(column))
    if measure is None or measure.curve == "":
        return None
    return f"valid_{measure.curve or name(column)}"


def lower_is_better(column: str) -> bool:
    """Whether less of a column's measure is better."""
    return bool(MEASURES[name(column)].lower)


def of_machine(column: str) -> bool:
    """Whether a column depends on the machine: times and memory."""
    measure = MEASURES.get(name(column))
    return measure is not None and measure.of_machine


def drawn() -> dict[str, Measure]:
    """Returns {name on the learning curve: measure} of those that plots of them show."""
    shown = {column: measure for column, measure in MEASURES.items() if measure.drawn}
    return {key: measure for column, measure in shown.items() if (key := on_curve(column))}
