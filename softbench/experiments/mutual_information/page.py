"""Tables and plots of the task "mutual_information", from records alone. Needs no Keras."""

import math
from collections.abc import Mapping

from softbench.report.tables import Table, label, number


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns, for each joint law, the bound against N, local NCE, and what p(y|x) becomes.

    Args:
        plan: the content of `experiment.json`.
        records: all records of a page.
    """
    found = []
    for record in records:
        order = [name for name in plan["methods"] if name in record["critics"]]
        where = f"{label(record['config']['dataset'])}, {record['config']['backend']}"
        where += f", seed {record['seed']}" if record["seed"] else ""
        sizes = sorted(next(iter(record["critics"].values())), key=int)
        information = number(record["mutual_information"])
        found.append(
            Table(
                f"The bound against N: {where}, I = {information} nats",
                ["N", "min(I, log N)", *order, *(f"{name} / I" for name in order)],
                [_bound_row(record, order, size) for size in sizes],
            )
        )
        if "optimal" in order:
            header = [
                "N",
                "least loss",
                "Monte Carlo",
                "z",
                "JSD, nats",
                "trained",
                "rms of critic",
            ]
            rows = [_local_row(record, size) for size in sizes]
            found.append(Table(f"Local NCE: {where}", header, rows))
        if "kl" in record["critics"][order[0]][sizes[0]]:
            trained = [name for name in order if name != "optimal"]
            header = ["N"]
            for name in trained:
                header += [f"{name}: KL, nats", f"{name}: least sum", f"{name}: largest sum"]
            rows = [_recovery_row(record, trained, size) for size in sizes]
            found.append(Table(f"p(y|x) from the critic: {where}", header, rows))
    return found


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)} see `softbench.report.plots`."""
    found = {}
    for record in records:
        name = label(record["config"]["dataset"])
        parts = ["bound", name, record["config"]["backend"]]
        parts += [f"s{record['seed']}"] if record["seed"] else []
        sizes = sorted(int(n) for n in next(iter(record["critics"].values())))
        information = record["mutual_information"]
        corner = math.exp(information)  # between its ends and it the line is straight
        ends = sorted({sizes[0], min(max(corner, sizes[0]), sizes[-1]), sizes[-1]})
        lines = {"min(I, log N)": [[n, min(information, math.log(n))] for n in ends]}
        for critic, values in record["critics"].items():
            lines[critic] = [[n, values[str(n)]["bound"]] for n in sizes]
        data = {"x": "candidates N", "y": "nats", "log": "x", "lines": lines}
        data["dashed"] = ["min(I, log N)"]
        caption = f"InfoNCE bound against N, {name}, I = {number(information)} nats"
        found["-".join(parts)] = (caption, data)
    return found


def _bound_row(record: Mapping, order: list[str], size: str) -> list[str]:
    information = record["mutual_information"]
    found = [record["critics"][name][size] for name in order]
    row = [size, f"{min(information, math.log(int(size))):.4f}"]
    row += [f"{item['bound']:.4f} ± {item['bound_error']:.4f}" for item in found]
    return row + [f"{item['bound'] / information:.3f}" for item in found]


def _local_row(record: Mapping, size: str) -> list[str]:
    """The optimum's loss by Lemma 2.1 and by draws; at N = 2 the JSD that it stands for."""
    found, exact = record["critics"]["optimal"][size], record["local_optimum"].get(size)
    trained = record["critics"].get("binary", {}).get(size)
    loss, error = found["local"], found["local_error"]
    return [
        size,
        "-" if exact is None else f"{exact:.4f}",
        f"{loss:.4f} ± {error:.4f}",
        "-" if exact is None else f"{(loss - exact) / error:+.1f}",
        f"{(math.log(4) - loss) / 2:.4f} ± {error / 2:.4f}" if size == "2" else "-",
        f"{trained['local']:.4f} ± {trained['local_error']:.4f}" if trained else "-",
        number(trained["critic_rms"]) if trained else "-",
    ]


def _recovery_row(record: Mapping, order: list[str], size: str) -> list[str]:
    row = [size]
    for name in order:
        found = record["critics"][name][size]
        row += [number(found["kl"]), *map(number, found["partition"])]
    return row
