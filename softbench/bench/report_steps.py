"""Tables of the task "step_time" from records. Needs neither Keras nor a plotting library."""

from softbench.bench.report_tables import Table, number


def step_tables(records: list[dict]) -> list[Table]:
    """Returns tables of step times against n, one per backend and device.

    Columns: median (p20-p80) at each n, the growth from the smallest to the largest n, and the
    peer's median divided by the row's at the largest n, for each peer in the run.
    """
    places: dict[tuple, dict[int, dict]] = {}
    for record in sorted(records, key=lambda item: item["cell"]):
        if record["status"] == "ok":
            key = (record["config"]["backend"], record["device"]["name"])
            places.setdefault(key, {})[record["num_classes"]] = record["steps"]
    return [_step_table(*key, sizes) for key, sizes in sorted(places.items())]


def _step_table(backend: str, device: str, sizes: dict[int, dict]) -> Table:
    order = sorted(sizes)
    first, last = order[0], order[-1]
    names = list(dict.fromkeys(name for n in order for name in sizes[n]))
    peers = [name for name in names if name.startswith("peer_")]

    def median(n: int, name: str) -> float | None:
        return sizes[n].get(name, {}).get("step_ms", {}).get("median")

    def ratio(above: float | None, below: float | None) -> str:
        return f"{above / below:.3g}" if above and below else "-"

    rows = []
    for name in names:
        row = [name]
        for n in order:
            times = sizes[n].get(name, {}).get("step_ms", {})
            low, high = times.get("p20"), times.get("p80")
            row.append(
                f"{number(times['median'])} ({number(low)}-{number(high)})"
                if times.get("median")
                else "-"
            )
        row.append(ratio(median(last, name), median(first, name)))
        row += [ratio(median(last, peer), median(last, name)) for peer in peers]
        rows.append(row)
    header = ["method", *(f"n = {n:,}, ms (p20-p80)" for n in order), "growth"]
    header += [f"{peer} / this" for peer in peers]
    return Table(f"{backend}, {device}", header, rows)
