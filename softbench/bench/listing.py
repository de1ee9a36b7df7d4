"""What `softbench --list` prints: the cells of an experiment. Needs no Keras."""

import sys
from pathlib import Path

from softbench.bench import matrix, records
from softbench.bench.matrix import Cell

_HEAD = ("#", "data set", "model", "method", "seed", "backend", "status", "cell")


def show(cells: list[Cell], workdir: Path) -> None:
    """Prints the table; where nobody sees it, the ids alone, one a line, for scripts."""
    is_seen = sys.stdout.isatty()
    print(table(cells, workdir) if is_seen else "\n".join(cell.id for cell in cells))


def table(cells: list[Cell], workdir: Path) -> str:
    """A line for each cell, in columns; the status is that of its record, "-" without one."""
    rows = [_HEAD]
    for number, cell in enumerate(cells, 1):
        config = cell.config
        names = [matrix.name(config[field]) for field in ("dataset", "model")]
        status = records.status(workdir / "runs" / f"{cell.id}.json") or "-"
        columns = [", ".join(config["methods"]), str(config["seed"]), config["backend"], status]
        rows.append((str(number), *names, *columns, cell.id))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([text.ljust(width) for text, width in zip(r, widths, strict=True)] for r in rows)
    return "\n".join("  ".join(row).rstrip() for row in padded)
