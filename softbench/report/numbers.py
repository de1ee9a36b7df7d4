"""Numbers in a page that a person writes: each stands between markers that say where it is from.

    <!--= scaling n=1000000,backend=jax steps.full.step_ms.median as ,.0f -->15,050<!--/-->

names an experiment, one record of it, a place in the record and a format. Two such addresses with
` / ` between them are a ratio. In a place, a whole number is an index of a list, and `min`, `max`
and `len` are taken over a list: `curve.min.valid_perplexity`; `argmin=valid_perplexity` is the
point of the list where that is least. A record is named by fields of it, see `_fields`.

    <!--= table quickstart language-lstm method,step_ms -->...<!--/-->

is a table of a page, by the beginning of its title, with some of its columns. Needs no Keras.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from softbench.bench import records as records_lib
from softbench.commands import ConfigError
from softbench.report import page as page_lib

MARKED = re.compile(r"<!--= (?P<what>.*?) -->(?P<shown>.*?)<!--/-->", re.S)
_OF_LIST = {"min": min, "max": max}


def filled(text: str, results: Path) -> str:
    """Returns the text with the number that each marker asks for.

    Args:
        text: a page with markers.
        results: folder of the experiments' folders.

    Raises:
        ConfigError: for a marker that names no record, or no number in it.
    """
    known: dict[str, list[dict]] = {}

    def shown(what: str) -> str:
        if what.startswith("table "):
            return "\n" + _table(*what.split()[1:], results) + "\n"
        addresses, _, form = what.partition(" as ")
        values = [_value(part.split(), results, known) for part in addresses.split(" / ")]
        return format(values[0] if len(values) == 1 else values[0] / values[1], form.strip())

    def replaced(match: re.Match) -> str:
        try:
            text = shown(match["what"])
        except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ConfigError(f"Marker `{match['what']}` has no number: {error}") from None
        return f"<!--= {match['what']} -->{text}<!--/-->"

    return MARKED.sub(replaced, text)


def _table(experiment: str, title: str, columns: str, results: Path) -> str:
    page = page_lib.read(results / experiment)
    for table in page.tables(page.plan["paper"]):
        if table.title.startswith(title):
            chosen = table._replace(page=table.page[columns.split(",")])
            return chosen.markdown()
    raise LookupError(f"no table begins with {title!r}")


def _value(address: list[str], results: Path, known: dict[str, list[dict]]) -> float:
    experiment, wanted, place = address
    if experiment not in known:
        known[experiment] = records_lib.read_all(results / experiment)
    filters = dict(part.split("=") for part in wanted.split(","))
    found = [r for r in known[experiment] if filters.items() <= _fields(r).items()]
    found = [r for r in found if r["status"] == "ok"]
    if len(found) != 1:
        raise LookupError(f"{len(found)} records are {wanted}")
    return _at(found[0], place.split("."))


def _fields(record: Mapping) -> dict[str, str]:
    """What a record can be named by."""
    config = record["config"]
    fields = {"cell": record["cell"], "backend": config["backend"], "seed": config["seed"]}
    fields |= {"n": record.get("num_classes"), "method": "+".join(config["methods"])}
    fields |= {part: _label(config[part]) for part in ("dataset", "model")}
    fields["budget"] = config.get("max_train_seconds", 0)
    return {name: str(value) for name, value in fields.items()}


def _label(part: Mapping) -> str:
    return part.get("label") or part.get("name", "")


def _at(value: object, place: list[str]) -> float:
    for index, key in enumerate(place):
        if isinstance(value, list) and key == "len":
            return len(value)
        if isinstance(value, list) and key.startswith("argmin="):
            name = key.removeprefix("argmin=")
            value = min((v for v in value if v.get(name) is not None), key=lambda v: v[name])
            continue
        if isinstance(value, list) and key in _OF_LIST:
            rest = place[index + 1 :]
            return _OF_LIST[key](_at(item, rest) for item in value)
        value = value[int(key)] if isinstance(value, list) else value[key]
    if not isinstance(value, (int, float)):
        raise TypeError(f"{'.'.join(place)} is {value!r}")
    return value
