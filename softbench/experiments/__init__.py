"""Experiments that are neither plain training nor in the harness: a folder each.

A folder `softbench/experiments/<task>/` holds `run.py`, whose `run(job)` fills the record of a
cell (it may import Keras), and `page.py`, free of Keras, whose `VIEW` says how its records are
shown, see `softbench.report.frame.View`: the rows of a record, and the columns of its table. The
measures in these rows are declared in `softbench.report.measures`; what a page says of committed
records is a template next to them, `results/<experiment>/page.jinja`.

One line in `softbench.bench.tasks.TASKS` registers it: by that name the bench and the report load
it. What several experiments share is next to them: `library`, `trained`, and `nce/`.
"""
