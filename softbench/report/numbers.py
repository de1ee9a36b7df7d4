"""Numbers in a page that a person writes: each is between markers that say where it is from.

    <!--= scaling n=1000000,backend=jax steps.full.step_ms.median as ,.0f -->15,050<!--/-->

names an experiment (`.` in its notes), one record of it, a path in the record and a format.
Two such addresses with ` / ` between them are a ratio, with ` % ` the change from the second to the
first as a fraction; a format that ends in ` %` shows a fraction in percent, and the format `change`
that of each seed with its interval, or says that there is one seed. In a path, a whole
number is an index of a list, and `min`, `max` and `len` are taken over a list:
`curve.min.valid_perplexity`; `argmin=valid_perplexity` is the point of the list where that is
least. A record is named by fields of it, see `_fields`; `among=rff` is of several methods, with
this one; `seed=mean` is the mean over seeds.

    <!--= table quickstart language-lstm method,step_ms -->...<!--/-->

is a table of a page, by the beginning of its title, with some of its columns.

    <!--= verdict normalised -->not decided<!--/-->

is what the records say of a claim of a paper, see `softbench.report.verdicts`.

    <!--= said: measured apart, not kept -->...<!--/-->

is a text whose numbers are in no record, with the reason. In the notes of an experiment every other
number must be one of its config. Needs no Keras.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from softbench.bench import records as records_lib
from softbench.commands import ConfigError
from softbench.report import intervals
from softbench.report import page as page_lib
from softbench.report.markdown import MARKED as MARKED

_NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?!\d|th\b)")
# Code, targets of links, the level of all intervals, and references to a paper.
_NO_NUMBERS = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\b95 %|\b(?:Figures?|Fig\.|Tables?|Theorems?|Lemma|Corollary|Assumption"
    r"|[Ss]ections?|eq\.|et al\.) \(?[\d.]+(?: (?:and|to) \d+(?:\.\d+)?)?"
)
_OF_LIST = {"min": min, "max": max}


def unmarked(text: str, records: Iterable[Mapping], paper: Mapping) -> list[str]:
    """Returns the numbers of an experiment's notes that no marker accounts for.

    Args:
        text: the notes.
        records: of the experiment: numbers of their configs are settings.
        paper: the paper's numbers.
    """
    allowed = set(_numbers(paper))
    for record in records:
        allowed |= {*_numbers(record["config"]), *_numbers(record.get("num_classes"))}
    numbers = _NUMBER.findall(_NO_NUMBERS.sub("", MARKED.sub("", text)))
    return [number for number in numbers if float(number.replace(",", "")) not in allowed]


def _numbers(value: object) -> Iterator[float]:
    """The numbers of a config, those within its texts too."""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, str):
        yield from map(float, re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", value))
    elif isinstance(value, (int, float)):
        yield float(value)


def filled(
    text: str, results: Path, current: str = "", verdicts: Mapping[str, str] | None = None
) -> str:
    """Returns the text with the number that each marker names.

    Args:
        text: a page with markers.
        results: folder of the experiments' folders.
        current: name of the experiment whose notes it is.
        verdicts: {name of a claim: what the records say of it}, for the front page and its notes.

    Raises:
        ConfigError: for a marker that names no record, or no number in it.
    """
    cache: dict[str, list[dict]] = {}

    def read(experiment: str) -> list[dict]:
        experiment = current if experiment == "." else experiment
        if experiment not in cache:
            cache[experiment] = records_lib.read_all(results / experiment)
        return cache[experiment]

    def shown(what: str) -> str:
        if what.startswith("table "):
            return "\n" + _table(*what.split()[1:], results) + "\n"
        if what.startswith("verdict "):
            return (verdicts or {})[what.removeprefix("verdict ")]
        addresses, _, form = what.partition(" as ")
        first, sign, second = re.fullmatch(r"(.*?)(?: ([/%]) (.*))?", addresses).groups()
        numerators = values(first, read)
        denominators = values(second, read) if sign else {}
        if form.strip() == "change":
            change = intervals.change(numerators, denominators)
            return change.percent() + (", single seed" if change.count == 1 else "")
        value = _mean(numerators, first)
        if sign:
            value = value / _mean(denominators, second) - (sign == "%")
        if form.endswith(" %"):
            return f"{100 * value:{form[:-2].strip()}} %"
        return format(value, form.strip())

    def replaced(match: re.Match) -> str:
        if match["what"].startswith("said: "):
            return match.group()
        try:
            text = shown(" ".join(match["what"].split()))
        except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ConfigError(f"Marker `{match['what']}` has no number: {error}") from None
        return f"<!--= {match['what']} -->{text}<!--/-->"

    return MARKED.sub(replaced, text)


def _table(experiment: str, title: str, columns: str, results: Path) -> str:
    page = page_lib.read(results / experiment)
    for table in page.tables():
        if table.title.startswith(title):
            chosen = table._replace(page=table.page[columns.split(",")])
            return chosen.markdown()
    raise LookupError(f"no table begins with {title!r}")


def _mean(values: Mapping[int, float], address: str) -> float:
    if len(values) > 1 and "seed=mean" not in address:
        raise LookupError(f"{len(values)} records are {address.split()[1]}")
    return statistics.mean(values.values())


def values(address: str, read: Callable[[str], list[dict]]) -> dict[int, float]:
    """Returns {seed: number} of an address.

    Args:
        address: experiment, fields of its records, path in them.
        read: experiment -> its records.

    Raises:
        LookupError: where no record, or several of one seed, are meant, or they lack the path.
        TypeError: where it holds no number.
    """
    experiment, wanted, path = address.split()
    filters = dict(field.split("=") for field in wanted.split(",") if field != "seed=mean")
    among = filters.pop("among", None)
    records = [r for r in read(experiment) if filters.items() <= _fields(r).items()]
    records = [r for r in records if among is None or among in r["config"]["methods"]]
    records = [r for r in records if r["status"] == "ok"]
    numbers = {record["config"]["seed"]: _at(record, path) for record in records}
    if not records or len(numbers) < len(records):
        raise LookupError(f"{len(records)} records are {wanted}")
    if not all(isinstance(value, (int, float)) for value in numbers.values()):
        raise TypeError(f"{path} is {next(iter(numbers.values()))!r}")
    return numbers


def _fields(record: Mapping) -> dict[str, str]:
    """What a record can be named by."""
    config = record["config"]
    fields = {"cell": record["cell"], "backend": config["backend"], "seed": config["seed"]}
    fields |= {"n": record.get("num_classes"), "method": "+".join(config["methods"])}
    fields |= {section: _label(config[section]) for section in ("dataset", "model")}
    fields |= {"budget": config.get("max_train_seconds", 0), "epochs": config.get("epochs")}
    fields["preset"] = config["model"].get("preset", "")
    return {name: str(value) for name, value in fields.items()}


def _label(entry: Mapping) -> str:
    return entry.get("label") or entry.get("name", "")


def _at(value: object, path: str) -> float:
    if not path:
        return value
    key, _, rest = path.partition(".")
    if isinstance(value, list):
        if key == "len":
            return len(value)
        if key in _OF_LIST:
            return _OF_LIST[key](_at(item, rest) for item in value)
        if key.startswith("argmin="):
            name = key.removeprefix("argmin=")
            measured = [item for item in value if item.get(name) is not None]
            return _at(min(measured, key=lambda item: item[name]), rest)
        return _at(value[int(key)], rest)
    # A key may hold dots itself.
    names = [name for name in value if path == name or path.startswith(f"{name}.")]
    if not names:
        raise LookupError(f"no {key!r}")
    name = max(names, key=len)
    return _at(value[name], path[len(name) + 1 :])
