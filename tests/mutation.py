"""Mutation testing: a sample of small changes to the library, and whether a test notices each.

    python tests/mutation.py trace WORK [pytest arguments]  # which test runs which line
    python tests/mutation.py run WORK SIZE [WORKERS]        # tries SIZE mutants

The mutants are those of cosmic-ray's operators; `tests/mutation.toml` has the modules and the seed.
A place of the source is drawn at random, a share of the sample for each file by its number of
places, then one of the operators that fit there. Each mutant runs in a fork of this process, which
has Keras loaded; no file changes. It runs the tests that ran its lines in the traces, one case of
each test first, the quick ones before the slow, and stops at the first failure. WORK gets a JSON
file for each mutant; a second run continues the first.
"""

import ast
import difflib
import hashlib
import importlib.machinery
import json
import os
import pathlib
import random
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from typing import NamedTuple

import coverage
import keras  # noqa: F401
import pytest
import scipy.stats
from cosmic_ray import modules, mutating, plugins
from cosmic_ray.ast import ast_nodes, get_ast

CONFIG = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text())
# These make an error of most floats and shapes: too easy to count.
EASY = ("_BitOr", "_BitAnd", "_BitXor", "_LShift", "_RShift", "_Invert", "USub_Not", "/NoOp")


class Mutant(NamedTuple):
    path: str
    first: int
    last: int
    operator: str
    occurrence: int

    def key(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    def source(self) -> str:
        """The file with the change."""
        old, operator = pathlib.Path(self.path).read_text(), plugins.get_operator(self.operator)()
        return mutating.mutate_code(old, operator, self.occurrence)

    def change(self) -> list[str]:
        lines = pathlib.Path(self.path).read_text().splitlines(), self.source().splitlines()
        return list(difflib.unified_diff(*lines, n=0, lineterm=""))[3:]


def unions(source: str) -> set[tuple[int, int]]:
    """Places (line, column) of | in type annotations: no operation of the program."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            for part in ast.walk(getattr(node, name, None) or ast.Pass()):
                if isinstance(part, ast.BinOp):
                    columns = range(part.left.end_col_offset, part.right.col_offset)
                    found |= {(part.left.end_lineno, column) for column in columns}
    return found


def places(path: str) -> list[list[Mutant]]:
    """The mutants of a file, together where they change the same place."""
    source = pathlib.Path(path).read_text()
    tree, skipped, found = get_ast(source), unions(source), defaultdict(list)
    for name in plugins.operator_names():
        operator = plugins.get_operator(name)
        if operator.arguments() or name.endswith(EASY):
            continue
        spans = [s for node in ast_nodes(tree) for s in operator().mutation_positions(node)]
        for occurrence, (start, end) in enumerate(spans):
            if tuple(start) not in skipped:
                found[start, end].append(Mutant(path, start[0], end[0], name, occurrence))
    return [found[place] for place in sorted(found)]


def sample(size: int) -> list[Mutant]:
    """`size` mutants, about; any first part of them is a sample too."""
    paths = sorted(str(p) for p in modules.find_modules(map(pathlib.Path, CONFIG["modules"])))
    every = {path: places(path) for path in paths}
    total = sum(map(len, every.values()))
    draw = random.Random(CONFIG["seed"])
    drawn = []
    for own in every.values():
        share = size * len(own) / total
        count = int(share) + (draw.random() < share - int(share))
        drawn += [draw.choice(place) for place in draw.sample(own, min(count, len(own)))]
    draw.shuffle(drawn)
    print(f"{len(drawn)} of {total} places in {len(every)} files")
    return drawn


class Trace:
    """Tells coverage which test runs; results that tests keep are made anew for each."""

    def __init__(self) -> None:
        self.cover = coverage.Coverage(None, config_file=False, include=["softbench/*"])
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self.cover.switch_context(item.nodeid)
        start = time.perf_counter()
        yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        for value in list(vars(item.module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
        self.cover.switch_context("")


def trace(work: pathlib.Path, arguments: list[str]) -> None:
    plugin = Trace()
    plugin.cover.start()
    pytest.main(["-n0", "-q", "-p", "no:cacheprovider", *arguments], plugins=[plugin])
    plugin.cover.stop()
    data = plugin.cover.get_data()
    lines = {os.path.relpath(f): data.contexts_by_lineno(f) for f in data.measured_files()}
    work.mkdir(parents=True, exist_ok=True)
    found = {"tests": plugin.seconds, "lines": lines}
    (work / f"trace-{os.getpid()}.json").write_text(json.dumps(found))


def runs_at_import(source: str, line: int) -> bool:
    """Whether a line is in the body of no function: a default, a constant, a decorator."""
    kinds = ast.FunctionDef, ast.Lambda
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    bodies = [f.body if isinstance(f.body, list) else [f.body] for f in functions]
    return not any(body[0].lineno <= line <= body[-1].end_lineno for body in bodies)


class Tests:
    """Which tests to run for a mutant, from the traces."""

    def __init__(self, work: pathlib.Path) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict = defaultdict(lambda: defaultdict(set))
        for path in work.glob("trace-*.json"):
            found = json.loads(path.read_text())
            self.seconds |= found["tests"]
            for name, own in found["lines"].items():
                for line, tests in own.items():
                    self.lines[name][int(line)] |= set(tests)

    def of(self, mutant: Mutant) -> list[str]:
        """Those that ran its lines; of a line that runs at import, those of the whole file."""
        own = self.lines[mutant.path]
        at_import = runs_at_import(pathlib.Path(mutant.path).read_text(), mutant.first)
        lines = own if at_import else range(mutant.first, mutant.last + 1)
        found = set().union(*(own[line] for line in lines))
        cases: Counter = Counter()
        order = []
        for test in sorted(found & set(self.seconds), key=self.seconds.__getitem__):
            function = test.split("[")[0]
            order.append((cases[function], self.seconds[test], test))
            cases[function] += 1
        chosen, total = list(CONFIG["of_imports"]) if at_import else [], 0.0
        for _, seconds, test in sorted(order):
            if total + seconds <= CONFIG["most_seconds"] or not chosen:
                chosen.append(test)
                total += seconds
        return chosen


def run_tests(mutant: Mutant, source: str, tests: list[str], log: pathlib.Path) -> None:
    """Runs the tests on the mutant; ends this process, with 0 if all passed."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    target, original = os.path.abspath(mutant.path), importlib.machinery.SourceFileLoader.get_code

    def get_code(loader, name):
        own = os.path.abspath(loader.path) == target
        return compile(source, target, "exec", dont_inherit=True) if own else original(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code
    code = 1
    try:
        code = pytest.main(["-n0", "-x", "-q", "-p", "no:cacheprovider", *tests])
    finally:
        os._exit(int(code))


class Trial:
    """A mutant whose tests are running."""

    def __init__(self, mutant: Mutant, work: pathlib.Path, tests: Tests) -> None:
        self.path, self.process, self.begin = work / f"{mutant.key()}.json", 0, time.time()
        chosen = tests.of(mutant)
        self.limit = 120 + 5 * sum(tests.seconds.get(test, 0.0) for test in chosen)
        self.record = {**mutant._asdict(), "change": mutant.change(), "tests": len(chosen)}
        source = mutant.source()
        try:
            compile(source, mutant.path, "exec")
        except SyntaxError:
            self.record["outcome"] = "no Python"
            return
        self.record["outcome"] = "survived"
        if chosen:
            self.process = os.fork()
            if not self.process:
                run_tests(mutant, source, chosen, self.path.with_suffix(".log"))

    def ended(self) -> bool:
        """Whether the tests have ended or their time is over; then the record is written."""
        if self.process:
            ended, status = os.waitpid(self.process, os.WNOHANG)
            if not ended:
                if time.time() < self.begin + self.limit:
                    return False
                os.killpg(self.process, signal.SIGKILL)
                os.waitpid(self.process, 0)
                status = signal.SIGKILL
            self.record["outcome"] = "survived" if status == 0 else "killed"
        self.record["seconds"] = round(time.time() - self.begin, 1)
        self.path.write_text(json.dumps(self.record, indent=1))
        place = f"{self.record['path']}:{self.record['first']}"
        print(self.record["outcome"], place, *self.record["change"], sep="  ", flush=True)
        return True


def run(work: pathlib.Path, size: int, workers: int) -> None:
    drawn, tests, trials = sample(size), Tests(work), []
    waiting = [m for m in drawn if not (work / f"{m.key()}.json").exists()]
    while waiting or trials:
        while waiting and len(trials) < workers:
            trials.append(Trial(waiting.pop(0), work, tests))
        trials = [trial for trial in trials if not trial.ended()]
        time.sleep(0.1)
    found = Counter(json.loads((work / f"{m.key()}.json").read_text())["outcome"] for m in drawn)
    killed, tried = found["killed"], found["killed"] + found["survived"]
    interval = scipy.stats.binomtest(killed, tried).proportion_ci(method="wilson")
    print(f"killed {killed} of {tried}: {killed / tried:.3f}", *map("{:.3f}".format, interval))


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    if command == "trace":
        trace(pathlib.Path(folder), rest)
    else:
        run(pathlib.Path(folder), int(rest[0]), int(rest[1]) if rest[1:] else 1)
