"""Writes the tables of the reference pages from the library: names, first lines, arguments.

    python docs/reference.py

after a change of an argument or a docstring. A page of this folder takes the table `heads` between
the markers `<!--= heads -->` and `<!--/-->`; `TABLES` has what they may name.
"""

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

import softbench
from softbench import samplers
from softbench.heads import Head
from softbench.report.markdown import MARKED, code, message, one_line
from softbench.rows import RowOptimizer
from softbench.samplers import Sampler

FOLDER = Path(__file__).resolve().parent
HEADS = {
    name: item
    for name in sorted(softbench.__all__)
    if inspect.isclass(item := getattr(softbench, name)) and issubclass(item, Head)
}
SAMPLERS = dict(sorted(samplers.REGISTRY.items()))
ROWS = {name: getattr(softbench, name) for name in ("RowSGD", "RowAdagrad", "RowAdam")}
TABLE = {"ClassTable": softbench.ClassTable}
_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# An entry of "Args:": a name, or several, and a text whose further lines are indented more.
_ENTRY = re.compile(r"^    (?P<names>[\w*, ]+): (?P<text>.*(?:\n {5,}\S.*)*)", re.M)


def meanings(cls: type) -> dict[str, str]:
    """{argument: what the docstring of the class says of it}, its base classes' left out."""
    _, _, rest = inspect.cleandoc(vars(cls).get("__doc__") or "").partition("\nArgs:\n")
    entries = _ENTRY.finditer(re.split(r"\n\n?(?=\S)", rest)[0])
    return {
        name.strip(): " ".join(entry["text"].split())
        for entry in entries
        for name in entry["names"].split(",")
    }


def arguments(cls: type) -> dict[str, str]:
    """{argument: its default, "-" for none} of the constructor that the class itself has."""
    if "__init__" not in vars(cls):
        return {}
    parameters = inspect.signature(vars(cls)["__init__"]).parameters.values()
    named = [p for p in parameters if p.kind not in _SEVERAL and p.name != "self"]
    return {p.name: "-" if p.default is p.empty else code(repr(p.default)) for p in named}


def lineage(cls: type, base: type) -> list[type]:
    """The class and those that it is derived from, from `base` on."""
    return [c for c in reversed(cls.__mro__) if issubclass(c, base)]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    cells = [[one_line(text).replace("|", r"\|") for text in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def name_table(classes: dict[str, type]) -> str:
    """What each class is: the first paragraph of its docstring."""
    rows = [
        [code(name), message(inspect.getdoc(cls).split("\n\n")[0])] for name, cls in classes.items()
    ]
    return table(("name", "what it is"), rows)


def argument_tables(classes: dict[str, type], base: type) -> str:
    """The arguments of the classes: a table for each set of them that take the same ones.

    An argument that a class takes from another is in a table of that class alone if it has another
    default there.
    """
    heirs = {
        cls: tuple(name for name, other in classes.items() if issubclass(other, cls))
        for member in classes.values()
        for cls in lineage(member, base)
    }
    rows: dict[tuple[str, ...], list] = {}
    for cls in sorted(heirs, key=lambda cls: -len(heirs[cls])):
        *bases, _ = lineage(cls, base)
        before = {name: value for c in bases for name, value in arguments(c).items()}
        texts = {name: text for c in (*bases, cls) for name, text in meanings(c).items()}
        rows.setdefault(heirs[cls], []).extend(
            [code(name), default, message(texts[name])]
            for name, default in arguments(cls).items()
            if before.get(name) != default
        )
    tables = []
    for names, lines in rows.items():
        of = "All" if len(names) == len(classes) > 1 else ", ".join(map(code, names))
        tables += [f"{of}:", table(("argument", "default", "meaning"), lines)] if lines else []
    return "\n\n".join(tables)


TABLES = {
    "heads": lambda: name_table(HEADS),
    "arguments of heads": lambda: argument_tables(HEADS, Head),
    "samplers": lambda: name_table(SAMPLERS),
    "arguments of samplers": lambda: argument_tables(SAMPLERS, Sampler),
    "arguments of ClassTable": lambda: argument_tables(TABLE, softbench.ClassTable),
    "row optimizers": lambda: name_table(ROWS),
    "arguments of row optimizers": lambda: argument_tables(ROWS, RowOptimizer),
}


def filled(text: str) -> str:
    """The text of a page with its tables as the library has them."""
    return MARKED.sub(
        lambda match: f"<!--= {match['what']} -->\n\n{TABLES[match['what']]()}\n\n<!--/-->", text
    )


def main() -> None:
    for path in sorted(FOLDER.glob("*.md")):
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    main()
