"""The command `softbench-advise`: which method, for a problem's size, on this machine."""

import contextlib
import importlib.util
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import flags, logging

from softbench import commands
from softbench.advise import choices as choices_lib
from softbench.advise import kinds, ranking, trials
from softbench.advise import quality as quality_lib
from softbench.advise.choices import Problem
from softbench.commands import ConfigError
from softbench.common import BACKENDS
from softbench.report.evidence import kind

NEEDS = tuple(quality_lib.MEASURES)
INPUTS = ("", "words", "labels", "items")
_USAGE = """softbench-advise --classes=1000000 --dim=128 --batch=512 --need=calibrated --minutes=3

Times heads and samplers on generated vectors of these sizes on this machine, adds what the
benchmark's records say of their quality, and prints a ranked table with the lines to paste.

softbench-advise --data=my.txt --need=calibrated --minutes=10

Trains the same methods on your data instead, each for an equal part of the minutes: a text,
interactions (user, item, time), rows of the XMC repository, triples, or a data set of softbench."""


def _define() -> flags.FlagValues:
    values = flags.FlagValues()

    def integer(name: str, default: int, words: str) -> None:
        flags.DEFINE_integer(name, default, words, lower_bound=1, flag_values=values)

    integer("classes", 100_000, "n.")
    integer("dim", 128, "Features of the encoder's output, d.")
    integer("batch", 512, "Rows of a batch.")
    integer("positives", 1, "Labels of a row; each counts as an example.")
    flags.DEFINE_enum("need", "calibrated", NEEDS, "Probabilities, or ranks.", flag_values=values)
    words = "What the problem is like, to choose records."
    flags.DEFINE_enum("inputs", "", INPUTS, words, flag_values=values)
    words = "Time for all measurements."
    flags.DEFINE_float("minutes", 3.0, words, lower_bound=0.0, flag_values=values)
    flags.DEFINE_string("counts", None, "A .npy file of class counts (n,).", flag_values=values)
    words = "Instead of --classes, --dim, --batch, --positives, --counts: a path, or a listed name."
    flags.DEFINE_string("data", None, words, flag_values=values)
    words = "What the file of --data holds; without it, its first lines tell."
    flags.DEFINE_enum("kind", "", ["", *kinds.CONFIGS], words, flag_values=values)
    words = "Folder of the data sets of softbench, for --data=<name>."
    flags.DEFINE_string("data_dir", None, words, flag_values=values)
    words = "Folder that keeps the records of --data; default: none are kept."
    flags.DEFINE_string("workdir", None, words, flag_values=values)
    flags.DEFINE_list("methods", [], "Only these rows.", flag_values=values)
    words = "Default: KERAS_BACKEND, or the one that is installed."
    flags.DEFINE_enum("backend", None, list(BACKENDS), words, flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Prints the advice for a command line; returns the exit status."""
    logging.set_verbosity(logging.WARNING)  # hides the backends' messages
    start = time.perf_counter()
    options = commands.parse(_define(), argv, _USAGE)
    if options.data is not None:
        return _on_data(options, start)
    counts = _counts(options.counts, options.classes)
    problem = Problem(
        options.classes,
        options.dim,
        options.batch,
        options.positives,
        options.need,
        options.inputs,
        options.counts is not None,
    )
    tried = _chosen(choices_lib.choices(problem), options.methods)
    backend = os.environ["KERAS_BACKEND"] = _backend(options.backend)
    from softbench.advise import measure  # once the backend is chosen
    from softbench.bench import environment

    device = environment.device(backend)
    methods = {name: choice.method for name, choice in tried.items()}
    measured = measure.measure(problem, methods, counts, 60.0 * options.minutes)
    entries = quality_lib.evidence()
    qualities = {n: quality_lib.quality(problem, kind(m), entries) for n, m in methods.items()}
    memory = _memory_mb() if device["kind"] == "cpu" else None
    rows = ranking.ranked(problem, tried, measured, qualities, memory)
    where = f"{backend} on {device['name']} ({device['count']} {device['kind']})"
    print(ranking.text(problem, rows, where, time.perf_counter() - start))
    return 0


def _on_data(options: flags.FlagValues, start: float) -> int:
    """As `main`, of `--data`."""
    sizes = ("classes", "dim", "batch", "positives", "counts", "inputs")
    excluded = [f"--{name}" for name in sizes if options[name].present]
    if excluded:
        raise ConfigError(
            f"--data has sizes and counts of its own. Received: {', '.join(excluded)}"
        )
    backend = os.environ["KERAS_BACKEND"] = _backend(options.backend)
    folder = contextlib.nullcontext(options.workdir)
    with folder if options.workdir else tempfile.TemporaryDirectory() as path:
        workdir = Path(path)
        what = options.data, options.kind, options.need, backend, options.data_dir
        question = trials.question(*what, workdir)
        tried = _chosen(choices_lib.choices(question.problem), options.methods)
        rows = trials.train(question, tried, 60.0 * options.minutes, workdir)
        cells = len(rows)
    where = f"{backend}, {cells} processes one after the other"
    print("\n" + trials.text(question, rows, where, time.perf_counter() - start))
    return 0 if rows[0].nll is not None else 1


def _counts(path: str | None, classes: int) -> np.ndarray:
    """The counts of a file, or some that fall as 1 / rank."""
    if path is None:
        return np.ceil(1e6 / np.arange(1, classes + 1))
    try:
        counts = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--counts must be a .npy file. Received: {path} ({error})") from None
    fits = counts.shape == (classes,) and np.issubdtype(counts.dtype, np.number)
    if not fits or not np.all(np.isfinite(counts)) or counts.min() < 0 or not counts.any():
        raise ConfigError(
            f"--counts must hold {classes} finite numbers of 0 or more, as --classes says. "
            f"Received: shape {counts.shape}, {counts.dtype}"
        )
    return counts.astype(float)


def _chosen(tried: dict, names: list[str]) -> dict:
    unknown = sorted(set(names) - set(tried))
    if unknown:
        raise ConfigError(f"--methods must be of: {', '.join(tried)}. Received: {unknown}")
    return {name: choice for name, choice in tried.items() if not names or name in names}


def _backend(wanted: str | None) -> str:
    """The backend's name; it must be installed."""
    installed = [b for b in BACKENDS if importlib.util.find_spec(b)]
    wanted = wanted or os.environ.get("KERAS_BACKEND") or next(iter(installed), "tensorflow")
    if wanted not in installed:
        line = f"pip install 'softbench[{wanted}]'"
        raise ConfigError(f"--backend must be installed: {line}. Received: {wanted}")
    return wanted


def _memory_mb() -> float | None:
    """Of the machine, None if it does not say."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return pages * size / 1e6


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench-advise", main, "run it again")


if __name__ == "__main__":
    run()
