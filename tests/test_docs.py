"""The pages that people write: links, names and files exist, programs run, tables are generated."""

import ast
import builtins
import functools
import json
import math
import os
import pkgutil
import random
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from conftest import thorough_but
from shipped import CONFIGS, ROOT

import softbench
from softbench.datasets import prepared

PAGES = sorted((ROOT / "docs").glob("**/*.md"))
ALL = sorted([*ROOT.glob("*.md"), *PAGES])
PUBLIC = re.compile(r"`(?:softbench\.)?([A-Z]\w+)[(`]")
FILES = re.compile(r"`((?:softbench|tests|configs|docs|results)/[\w./]+)`")
ADDED = {"softbench/samplers/inverse_square.py"}  # by the example of CONTRIBUTING
PROGRAMS = ("heads", "samplers", "options", "item_towers", "language_models", "benchmark")


def name(page):
    return page.relative_to(ROOT).as_posix()


def anchors(page):
    """What `#...` may be in a link to a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@functools.cache
def known():
    """The names of all classes and constants of the library and its tests, and those of Keras."""
    paths = [*(ROOT / "softbench").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    names = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    modules = (builtins, softbench, keras, keras.layers, keras.callbacks, keras.random)
    return names.union(*map(dir, modules))


@pytest.mark.parametrize("page", [*ALL, *(ROOT / "results").glob("**/*.md")], ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        other = page.parent / path if path else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


@pytest.mark.parametrize("page", ALL, ids=name)
def test_names_and_files_exist(page):
    text = page.read_text()
    missing = {path for path in FILES.findall(text) if not (ROOT / path).exists()}
    assert missing == (ADDED if page.name == "CONTRIBUTING.md" else set())
    assert set(PUBLIC.findall(text)) - known() == set()
    assert set(re.findall(r"--config=(\w+)", text)) - set(CONFIGS) == set()


def test_every_public_name_is_in_the_reference():
    """A page of docs/reference names a module, with all that it exports, or a class or function."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    shown = {name for page in pages for name in re.findall("^::: (.*)$", page.read_text(), re.M)}
    for name in shown:
        pkgutil.resolve_name(name)
    homes = softbench._HOME
    public = {name: {homes[name], f"{homes[name]}.{name}"} for name in homes}
    public |= {name: {f"softbench.{name}"} for name in set(softbench.__all__) - {*homes}}
    del public["__version__"]
    assert {name for name, places in public.items() if not places & shown} == set()


IN_MINUTES = ("samplers",) if keras.backend.backend() == "jax" else ("heads", "samplers")


@pytest.mark.parametrize("page", thorough_but(PROGRAMS, *IN_MINUTES))
def test_the_programs_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{page}.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.S)
    assert programs
    exec(compile("\n".join(programs), page, "exec"), {})


def test_every_program_of_a_page_is_run():
    """The tests below have the others."""
    others = {page.stem for page in PAGES if "```python" in page.read_text()} - set(PROGRAMS)
    assert others == {"distributed", "own_data", "serving"}


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="layouts are JAX's")
def test_the_program_for_several_devices_runs(tmp_path):
    text = (ROOT / "docs" / "distributed.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "n = 10_000_000" in program
    (tmp_path / "program.py").write_text(program.replace("n = 10_000_000", "n = 10_000"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PJRT_NPROC": "32"}
    devices = "--xla_force_host_platform_device_count=8"
    environment["XLA_FLAGS"] = f"{os.environ['XLA_FLAGS']} {devices}"
    command = [sys.executable, tmp_path / "program.py"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def test_the_sampler_that_is_added_draws_what_it_says():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (program,) = re.findall(r"   ```python\n(.*?)   ```", text, re.S)
    names = {}
    exec(compile(program.replace("\n   ", "\n").removeprefix("   "), "added", "exec"), names)
    head = softbench.SampledSoftmax(3, names["InverseSquare"](), 4)
    head.build((None, 2))
    log_q = head.sampler.log_prob(head.table, np.zeros((1, 2), "float32"))
    weights = np.array([1, 1 / 4, 1 / 9])
    np.testing.assert_allclose(np.exp(np.array(log_q[0])), weights / weights.sum(), rtol=1e-5)


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    others = [page for page in PAGES if page.name != "README.md"]
    others += [*(ROOT / "docs" / "examples").glob("*.py"), *(ROOT / "docs").glob("notebooks/*")]
    for page in others:
        assert f"({page.relative_to(ROOT / 'docs')})" in index


OF_SAMPLERS = [(name, False) for name in ("in_batch", "unigram", "codebook", "top_and_tail")]


@pytest.mark.parametrize(
    ("name", "half"),
    thorough_but([("uniform", False), ("uniform", True), *OF_SAMPLERS], ("uniform", True)),
)
def test_bytes_of_a_class(name, half):
    """Variables of heads of 500 and 1,000 classes differ by those of 500 classes."""
    text, dim, sizes = (ROOT / "docs" / "scale.md").read_text(), 8, []
    (of_sampler,) = re.findall(rf"^\| `{name}` \| ([\d.]+) \|$", text, re.M)
    row = "2 d + 12" if half else "8 d + 8"
    assert f"| {row} |" in text
    for units in (500, 1_000):
        config = {} if name == "uniform" else {"counts": np.ones(units)}
        optimizer = softbench.RowAdagrad(0.1, per_row=half)
        table = softbench.ClassTable(
            units, row_optimizer=optimizer, table_dtype="bfloat16" if half else None
        )
        sampler = {"class_name": name, "config": config}
        head = softbench.SampledSoftmax(table=table, sampler=sampler, num_sampled=20)
        head.build((None, dim))
        sizes.append(sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in head.variables))
    expected = eval(row.replace("d", "* dim")) + float(of_sampler)
    assert (sizes[1] - sizes[0]) / 500 == pytest.approx(expected, abs=0.5)


SERVER = f"""
import http.client, json, runpy, sys, threading
server = runpy.run_path({str(ROOT / "docs" / "examples" / "server.py")!r})
recommend = server["recommender"]("service", json.load(open("items.json")))
http_server = server["server"](0, recommend)
threading.Thread(target=http_server.serve_forever, daemon=True).start()
def ask(body):
    connection = http.client.HTTPConnection("127.0.0.1", http_server.server_port)
    connection.request("POST", "/", json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read()
assert ask({{"no": 1}})[0] == ask([1])[0] == 400
status, answer = ask({{"history": ["p7", "p8", "nothing", "p9"]}})
assert status == 200 and "softbench" not in sys.modules
print(answer.decode())
"""


def check_server(items, expected):
    """What the server answers, without softbench, is what the service does."""
    shown = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr[-2000:]
    answer = json.loads(shown.stdout)
    assert [row["item"] for row in answer] == [items[i] for i in expected["ids"][0]]
    scores = [row["score"] for row in answer]
    np.testing.assert_allclose(scores, expected["scores"][0], rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_from_a_file_to_a_service(tmp_path, monkeypatch):
    """The programs of both pages on this backend, and the server: by rows, and by an item tower.

    What a customer took next is among ten of fifty products.
    """
    monkeypatch.chdir(tmp_path)
    texts = [(ROOT / "docs" / name).read_text() for name in ("own_data.md", "serving.md")]
    of_data = re.findall(r"```python\n(.*?)```", texts[0], re.S)
    assert [program.count("\n") for program in of_data] == [9, 15]
    other = "On TensorFlow" if keras.backend.backend() == "jax" else "On JAX"
    texts[1] = re.sub(rf"^## {other}\n.*?^(?=## )", "", texts[1], flags=re.S | re.M)
    programs = [
        compile(program.replace("fit(", "fit(verbose=0, x="), "serving.md", "exec")
        for text in texts
        for program in re.findall(r"```python\n(.*?)```", text, re.S)
    ]
    *of_rows, export, load, make_products, train, serve = programs
    assert len(of_rows) == 2 + 3
    names = {}
    random.seed(0)
    for program in of_rows[:2]:
        exec(program, names)
    taken = names["data"].items[names["labels"][0, 0]]
    assert len(set(names["best"])) == 10 and taken in names["best"]
    summary = prepared.summary(prepared.prepare("interactions", "events.csv", "out"))
    assert all(f"    {line}\n" in texts[0] for line in summary)
    for program in (*of_rows[2:], export, load):
        exec(program, names)
    assert names["scores"]["users"] == 300 and names["scores"]["recall_at_10"] > 0.5
    items, row = names["data"].items, np.array([names["row"]])
    expected = names["service"].predict(row, verbose=0)
    np.testing.assert_array_equal(np.asarray(names["answer"]["ids"]), expected["ids"])
    assert not np.isin(row, expected["ids"]).any() and items.index("p10") in expected["ids"][0, :3]
    check_server(items, expected)
    for program in (make_products, train, serve, export):
        exec(program, names)
    assert names["tower"].width == 32 and names["features"].shape == (50, 10 + 5 + 1)
    by_features = names["service"].predict(row, verbose=0)
    assert items.index("p10") in by_features["ids"][0, :3]
    assert not np.allclose(by_features["scores"], expected["scores"])
    check_server(items, by_features)
