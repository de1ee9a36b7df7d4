"""Tables and plots of the task "mutual_information". Needs no Keras."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from softbench.report import frame
from softbench.report.tables import Table, number, table

_WITH_ERROR = "{:.4f} ± {:.4f}"
_LOCAL = {
    "N": ("{}", "candidates"),
    "least loss": ("{:.4f}", "least"),
    "Monte Carlo": (_WITH_ERROR, "optimal_local", "optimal_local_error"),
    "z": ("{:+.1f}", "z"),
    "JSD, nats": (_WITH_ERROR, "jsd", "jsd_error"),
    "trained": (_WITH_ERROR, "binary_local", "binary_local_error"),
    "rms of critic": "binary_critic_rms",
}


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each N, with what each critic has there: `<critic>_<field>`."""
    information = record["mutual_information"]
    sizes = sorted(map(int, next(iter(record["critics"].values()))))
    for size in sizes:
        row = {"candidates": size, "largest_bound": min(information, math.log(size))}
        row["least"] = record["local_optimum"].get(str(size))
        for name, critic in record["critics"].items():
            fields = dict(critic[str(size)])
            fields["least_sum"], fields["largest_sum"] = fields.pop("partition", (None, None))
            fields["share"] = fields["bound"] / information
            row |= {f"{name}_{field}": value for field, value in fields.items()}
        yield row


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns, for each joint distribution, the bound against N, local NCE, and what p(y|x) is."""
    result = []
    for record in records:
        rows = frame.long([record], _rows)
        order = [name for name in plan["methods"] if name in record["critics"]]
        where = f"{rows['dataset'].iloc[0]}, {rows['backend'].iloc[0]}"
        where += f", seed {record['seed']}" if record["seed"] else ""
        result.append(_bound_table(where, rows, order, record["mutual_information"]))
        if "optimal" in order:
            result.append(table(f"Local NCE: {where}", _local(rows), _LOCAL))
        if f"{order[0]}_kl" in rows:
            columns = {"N": ("{}", "candidates")}
            for name in [name for name in order if name != "optimal"]:
                columns[f"{name}: KL, nats"] = f"{name}_kl"
                columns[f"{name}: least sum"] = f"{name}_least_sum"
                columns[f"{name}: largest sum"] = f"{name}_largest_sum"
            result.append(table(f"p(y|x) from the critic: {where}", rows, columns))
    return result


def _bound_table(where: str, rows: pd.DataFrame, order: list[str], information: float) -> Table:
    columns = {"N": ("{}", "candidates"), "min(I, log N)": ("{:.4f}", "largest_bound")}
    columns |= {name: (_WITH_ERROR, f"{name}_bound", f"{name}_bound_error") for name in order}
    columns |= {f"{name} / I": ("{:.3f}", f"{name}_share") for name in order}
    title = f"The bound against N: {where}, I = {number(information)} nats"
    return table(title, rows, columns)


def _local(rows: pd.DataFrame) -> pd.DataFrame:
    """The optimum's loss by Lemma 2.1 and by draws; at N = 2 the JSD that it gives."""
    loss, error = rows["optimal_local"], rows["optimal_local_error"]
    pair = rows["candidates"] == 2
    return rows.assign(
        z=(loss - rows["least"]) / error,
        jsd=((math.log(4) - loss) / 2).where(pair),
        jsd_error=(error / 2).where(pair),
    )


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, see `softbench.report.plots`."""
    figures = {}
    for record in records:
        rows = frame.long([record], _rows)
        name = rows["dataset"].iloc[0]
        words = ["bound", name, rows["backend"].iloc[0]]
        words += [f"s{record['seed']}"] if record["seed"] else []
        sizes, information = rows["candidates"].tolist(), record["mutual_information"]
        corner = math.exp(information)  # between its ends and it the line is straight
        ends = sorted({sizes[0], float(np.clip(corner, sizes[0], sizes[-1])), sizes[-1]})
        lines = {"min(I, log N)": [[n, min(information, math.log(n))] for n in ends]}
        for critic in record["critics"]:
            lines[critic] = list(map(list, zip(sizes, rows[f"{critic}_bound"], strict=True)))
        data = {"x": "candidates N", "y": "nats", "log": "x", "lines": lines}
        data["dashed"] = ["min(I, log N)"]
        caption = f"InfoNCE bound against N, {name}, I = {number(information)} nats"
        figures["-".join(words)] = (caption, data)
    return figures
