"""Learning curves of the task "train", one line for each row of its tables. Needs no Keras."""

from collections.abc import Mapping

import pandas as pd

from softbench.report import frame, intervals, measures

ROW = ["method", "variant"]  # the seeds of one row


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: learning curves, unless all columns are of costs."""
    columns = plan["columns"]
    if columns and not any(map(measures.on_curve, columns)):
        return {}
    cells, points = frame.cells(records), frame.points(records)
    names = _line_names(cells)
    found = {}
    for key, measure in measures.drawn().items():
        shown = points.dropna(subset=key) if key in points else points.head(0)
        for group, own in shown.groupby("group", sort=False):
            words = f"validation {measure.words}"
            data = {"x": "training time, s", "y": words, "log": "y" * measure.log}
            lines: dict[str, list] = {}
            for record, line in own.groupby("record", sort=False):
                line = sorted(line[["seconds", key]].to_numpy().tolist())
                lines.setdefault(names[record], []).append(line)
            data["lines"] = {name: intervals.averaged(seeds) for name, seeds in lines.items()}
            found[f"{group}-{key}"] = (f"{group}: {words} against training time", data)
    return found


def _line_names(cells: pd.DataFrame) -> dict[int, str]:
    """Returns {record: name}: the method, and what tells rows of one method apart."""
    rows = cells.drop_duplicates(["group", *ROW])
    several = rows.duplicated(["group", "method"], keep=False)
    digests = rows["cell"].str.rsplit("-", n=1).str[-1].str[:4]
    long = rows["method"] + ", " + rows["backend"] + ", " + digests
    names = rows.assign(name=rows["method"].where(~several, long)).set_index(["group", *ROW])
    keys = pd.MultiIndex.from_frame(cells[["group", *ROW]])
    return dict(zip(cells["record"], names["name"].reindex(keys), strict=True))
