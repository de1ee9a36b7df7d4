"""The task "states" trains as "train" does, and its records are shown as those are."""

from softbench.report.training import plots as plots
from softbench.report.training import tables as tables
