"""Tables of the task "tree_fit" from records. Needs no Keras."""

from collections.abc import Mapping

from softbench.report.tables import Table, number


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns a table of fits for each data set and backend, then one of draws for each backend.

    Args:
        plan: the content of `experiment.json`.
        records: all records of a page.
    """
    fits = sorted((r for r in records if "fits" in r), key=lambda r: (r["num_points"], r["cell"]))
    draws = sorted((r for r in records if "draws" in r), key=lambda r: r["cell"])
    return [_fit_table(plan, r) for r in fits] + [_draw_table(r) for r in draws]


def _fit_table(plan: Mapping, record: Mapping) -> Table:
    """A row for the label frequencies (each count one more), then one for each method."""
    splits, frequency = ("train", "test"), record["frequency"]
    rows = [["label frequency", "-", "-", *(number(frequency[name]) for name in splits), "-", "-"]]
    for name in [name for name in plan["methods"] if name in record["fits"]]:
        found = record["fits"][name]
        levels = found["levels"]
        settled = sum(level["settled"] for level in levels)
        row = [name, number(found["seconds"]), number(found["processor_seconds"])]
        row += [number(found["log_likelihood"][name]) for name in splits]
        row += [str(max((level["alternations"] for level in levels), default=0))]
        rows.append([*row, f"{settled} of {len(levels)}"])
    header = ["tree", "seconds", "processor seconds", "log p_n, train", "log p_n, test"]
    header += ["most alternations", "levels settled"]
    sizes = f"N = {record['num_points']:,}, n = {record['num_classes']:,}"
    where = f"{record['config']['backend']}, seed {record['seed']}"
    return Table(f"Fit, {sizes}: {record['config']['dataset']['name']}, {where}", header, rows)


def _draw_table(record: Mapping) -> Table:
    model, draws = record["config"]["model"], record["draws"]
    sizes = sorted(draws, key=int)
    first = draws[sizes[0]]["step_ms"]
    rows = []
    for size in sizes:
        ms = draws[size]["step_ms"]
        times = [number(ms[key]) for key in ("median", "p20", "p80")]
        rows.append([f"{int(size):,}", *times, f"{ms['median'] / first['median']:.3g}"])
    header = ["n", "draw, ms (median)", "p20", "p80", f"over n = {int(sizes[0]):,}"]
    options = f"B = {model['batch_size']}, m = {model['num_sampled']}, k = {model['dim']}"
    backend, device = record["config"]["backend"], record["device"]["name"]
    return Table(f"Draws against n, {options}: {backend}, {device}", header, rows)
