"""Experiments that are neither plain training nor in the harness: a folder each.

A folder `softbench/experiments/<task>/` holds `run.py`, whose `run(job)` fills the record of a
cell (it may import Keras), and `page.py`, free of Keras, which shows its records:

    tables(plan, records) -> list of `softbench.report.tables.Table`
    plots(plan, records) -> {file name: (caption, data)}, see `softbench.report.plots`; optional

`plan` is the content of `experiment.json`; `records` are those of the task that ended well, by cell
id, which `softbench.report.frame.long` turns into a DataFrame.

One line in `softbench.bench.tasks.TASKS` registers it: by that name the bench and the report load
it. What several experiments share is next to them: `library`, `trained`, and `nce/`.
"""
