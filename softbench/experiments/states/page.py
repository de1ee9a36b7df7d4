"""The task "states" trains as "train" does, and its records are shown as those are."""

from softbench.report.training import VIEW as VIEW
