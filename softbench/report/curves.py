"""Tables of validation perplexity along the learning curves. Needs no Keras."""

from collections.abc import Mapping

from softbench.report.tables import Table, cell_text, grouped


def curve_tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns validation perplexity along the learning curves.

    One table per data set and model with more than one point and whose page shows the validation
    perplexity: after each epoch, so that equal epochs can be compared, and at the end of a budget
    of seconds; or, where a budget was cut into equal parts, after each of these. With a budget, the
    lowest value and the seconds until it beside it.
    """
    if "valid_perplexity" not in plan["columns"]:
        return []
    found = []
    for group, methods in grouped(records).items():
        rows = [
            (name, row, [_points(record) for record in row])
            for name in plan["methods"]
            for row in methods.get(name, [])
        ]
        header = list(dict.fromkeys(key for *_, curves in rows for c in curves for key in c))
        header.sort(key=lambda key: (key[0] != "epoch", key[1]))
        if len(header) < 2:
            continue
        lines = []
        timed = any(unit == "seconds" for unit, _ in header)
        for method, row, curves in rows:
            points = [[c[key] for c in curves if key in c] for key in header]
            points += zip(*map(_lowest, row), strict=True) if timed else []
            backend = row[0]["config"]["backend"]
            lines.append([method, backend, *(cell_text(values) for values in points)])
        names = [f"epoch {n}" if unit == "epoch" else f"{n:,} s" for unit, n in header]
        names += ["lowest", "after, s"] if timed else []
        when = "epoch" if header[0][0] == "epoch" else "part of the time"
        caption = f"{group}: validation perplexity after each {when}"
        found.append(Table(caption, ["method", "backend", *names], lines))
    return found


def _points(record: Mapping) -> dict[tuple[str, int], float | None]:
    """{("epoch", number) or ("seconds", limit): validation perplexity} along a learning curve."""
    config, curve = record["config"], record.get("curve") or []
    seconds, parts = config.get("max_train_seconds", 0), config["epochs"]
    values = [point.get("valid_perplexity") for point in curve]
    if not seconds:
        return {("epoch", i + 1): value for i, value in enumerate(values)}
    if parts:
        limits = [round(seconds * point["epoch"] / parts) for point in curve]
        return {("seconds", limit): value for limit, value in zip(limits, values, strict=True)}
    whole = {}
    for i, point in enumerate(curve):
        if point["step"] == (i + 1) * record["steps_per_epoch"]:
            whole["epoch", i + 1] = values[i]
    over = bool(curve) and curve[-1]["seconds"] >= seconds
    return whole | ({("seconds", round(seconds)): values[-1]} if over else {})


def _lowest(record: Mapping) -> tuple[float | None, float | None]:
    """The lowest validation perplexity of a learning curve, and the seconds until it."""
    points = [p for p in record.get("curve") or [] if p.get("valid_perplexity") is not None]
    best = min(points, key=lambda point: point["valid_perplexity"], default={})
    return best.get("valid_perplexity"), best.get("seconds")
