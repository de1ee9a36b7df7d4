"""Whether times measured here rank methods as a record of the task "step_time" does.

    python -m softbench.advise.agreement results/scaling/runs/random100000-dense-steps-*-jax-*.json

times the record's methods as `softbench-advise` does, at the record's sizes and on its backend, and
prints both times, and the pairs that are the other way round. On the machine of the record there
should be none. Keras' backend is set by the record.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

SECONDS = 180.0  # for all methods


def contradictions(here: Mapping[str, float], steps: Mapping[str, Mapping]) -> list[tuple]:
    """Returns the pairs (faster, slower) of a record that are the other way round here.

    Only pairs of which the record is sure: the 80th percentile of one is below the 20th of the
    other. Methods without a time here are left out.

    Args:
        here: {method: milliseconds}.
        steps: {method: {"step_ms": {"median", "p20", "p80"}}}, as a record has it.
    """
    times = {n: steps[n]["step_ms"] for n in here if n in steps}
    sure = [(a, b) for a in times for b in times if times[a]["p80"] < times[b]["p20"]]
    return [(a, b) for a, b in sure if here[a] > here[b]]


def main(path: str) -> int:
    """Prints the comparison with a record; returns 1 if a pair is the other way round."""
    record = json.loads(Path(path).read_text())
    config, steps = record["config"], record["steps"]
    os.environ["KERAS_BACKEND"] = config["backend"]
    from softbench.advise import measure  # once the backend is chosen
    from softbench.advise.choices import Problem

    model = config["model"]
    problem = Problem(record["num_classes"], model["dim"], model["batch_size"])
    methods = {n: m for n, m in config["methods"].items() if n in steps and "head" in m}
    measured = measure.measure(problem, methods, np.ones(problem.classes), SECONDS)
    here = {n: m.step_ms["median"] for n, m in measured.items() if m.step_ms}
    for name in sorted(methods, key=lambda n: steps[n]["step_ms"]["median"]):
        shown = f"{here[name]:.4g}" if name in here else measured[name].note
        print(f"{name}: {steps[name]['step_ms']['median']:.4g} ms in the record, {shown} here")
    wrong = contradictions(here, steps)
    for faster, slower in wrong:
        print(f"the other way round: {faster} is faster than {slower} in the record")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(max(map(main, sys.argv[1:2]), default=2))
