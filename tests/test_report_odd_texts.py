"""Records whose texts look like markup: pages and the HTML file show them as they are."""

import base64
import hashlib
import itertools
import re
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from report_records import CONFIG, PLAN, Reader, make_record, step_record

from softbench.bench import records
from softbench.report import app as report
from softbench.report import markdown, plots

REMOTE = "![p](http://evil.example/p.png)"
ODD = f"_a_|b `c` ``d`` <script>1</script> {REMOTE} [x](javascript:1) *e* ~~f~~ $g$ &lt; \\| \\"
LINES = f"first\nsecond | third\n\n```\n# {REMOTE}"
ONE_LINE = f"first second | third ``` # {REMOTE}"
BACKEND = "jax|../../<b>"
NOTES = f"A note {REMOTE}, <img src=x onerror=alert(1)> and [h](http://a.example)"


def odd_record(place, method, perplexity=118.0, **changes):
    """One whose every text is odd; its cell has a plain name."""
    record = make_record(0, perplexity, method=method, cell=f"cell-{place}")
    dataset = {"name": "x", "label": f"data {REMOTE} <b>|"}
    config = {**CONFIG, "dataset": dataset, "backend": BACKEND, "methods": {method: {}}}
    record |= {"config": config, "command": LINES, "versions": {"keras": ODD}}
    record |= {"device": {"kind": "cpu", "name": ODD, "count": 2}, "git": {"commit": "*c*"}}
    alone = {"count": 2, "own": 1.9, "others": 0.0}
    return record | {"head_ms": {"median": 30.0}, "processors": alone} | changes


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of one experiment whose name is odd too: its records, notes and a foreign file."""
    root = tmp_path_factory.mktemp("odd") / "results"
    folder = root / "a [b](c) <i>"
    plan = PLAN | {"methods": ["full", ODD], "columns": ["test_perplexity"], "paper": {}}
    records.write_json(folder / "experiment.json", plan)
    steps = step_record(100, 1.0, 2.0) | {"cell": "steps"}
    steps["config"]["methods"] = {ODD: {}, f"peer {ODD}": {"peer": "tf"}}
    steps["steps"] = dict(zip(steps["config"]["methods"], steps["steps"].values(), strict=True))
    error = f"Oh\n{LINES}"
    made = [
        odd_record(0, "full"),
        odd_record(1, ODD, 3.0),
        odd_record(2, "lost", status="crashed", error=error),
        steps,
    ]
    for record in made:
        records.write_json(folder / "runs" / f"{record['cell']}.json", record)
    (folder / "runs" / f"`*|{REMOTE[:5]}.json").write_text("{}")
    (folder / "NOTES.md").write_text(NOTES)
    assert report.main(["softbench-report", f"--results={root}"]) == 0
    return root


@pytest.fixture(scope="module")
def folder(results):
    return next(path for path in results.iterdir() if path.is_dir())


def parsed(text):
    parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
    return parser.parse(text.replace(NOTES, ""))


def shown(token):
    return "".join(child.content for child in token.children or [])


def test_nothing_of_them_is_markup(results, folder):
    pages = [(results / "README.md").read_text(), (folder / "README.md").read_text()]
    blocks = [token for page in pages for token in parsed(page)]
    inner = [child for token in blocks for child in token.children or []]
    own = {path.name for path in results.rglob("*.svg")}
    kinds = {token.type for token in blocks + inner}
    assert kinds.isdisjoint({"html_inline", "html_block", "em_open", "s_open"})
    for strong, text in itertools.pairwise(inner):  # the report's own: a word and best values
        if strong.type == "strong_open":
            assert re.fullmatch(r"Bold|[\d.,]+", text.content)
    for token in inner:
        if token.type == "image":
            assert token.attrs["src"].rsplit("/", 1)[-1] in own
        elif token.type == "link_open":
            own_pages = ("RECORDS.md", "a%20%5Bb%5D%28c%29%20%3Ci%3E/README.md")
            href = token.attrs["href"]
            assert href in own_pages or folder / href in (folder / "runs").iterdir()
    words = [shown(token) for token in blocks if token.type == "inline"]
    assert f"Device: Test CPU (cpu x 2); {ODD} (cpu x 2)" in words
    assert f"cell-2: crashed. # {REMOTE}" in words
    assert f"runs/`*|{REMOTE[:5]}.json is no record of a cell." in words
    assert f"{ONE_LINE}\n" in [
        token.content.splitlines(True)[0] for token in blocks if token.content
    ]


def test_rows_of_tables_are_whole(folder):
    tokens = parsed((folder / "README.md").read_text())
    rows, row = [], []
    for before, token in itertools.pairwise(tokens):
        if before.type == "tr_open":
            row = []
            rows.append(row)
        if before.type in ("td_open", "th_open"):
            row.append(shown(token))
    assert [ODD, BACKEND, "3", "s0"] in rows
    assert ["method", "n = 100, ms (p20-p80)", "growth", f"peer {ODD} / this"] in rows
    assert [ODD, "1 (0.5-2)", "1", "2"] in rows


def test_files_stay_in_their_folder_under_plain_names(results, folder):
    written = {path for path in results.parent.rglob("*") if path.is_file()}
    found = written - set((folder / "runs").iterdir())
    assert {path.parent for path in found} == {results, folder}
    names = [path.stem for path in found]
    assert all(name == markdown.file_name(name) for name in names)
    assert any(name.startswith("frontier-a__b__c___i_-data") for name in names)
    assert (
        report.main(["softbench-report", f"--results={results}", "--check"]) == 1
    )  # a foreign file


def test_the_html_file_loads_nothing_and_runs_its_own_script_alone(results, folder, tmp_path):
    path = tmp_path / "report.html"
    assert report.main(["softbench-report", f"--results={results}", f"--html={path}"]) == 0
    text = path.read_text()
    reader = Reader(text)
    assert reader.loads == [] and reader.tags.count("script") == 1
    assert {"img", "iframe", "link", "i", "b", "em"}.isdisjoint(reader.tags)
    others = {link for link in reader.links if "#" not in link}
    runs = {link for link in others if "/runs/" in link}
    assert others - runs == {"RECORDS.md", "http://a.example"}
    assert all((tmp_path / unquote(link)).resolve().parent == folder / "runs" for link in runs)
    assert all((tmp_path / unquote(link)).is_file() for link in runs) and len(runs) > 2
    assert folder.name in reader.ids and ODD in reader.texts
    assert reader.tags.count("svg") == 5  # the curve and the steps on both pages, the frontier
    script = text.split("<script>")[-1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = text.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_plots_take_no_name_for_mathematics_or_a_hidden_one():
    data = {"x": "$x$", "y": "$\\y", "log": "", "lines": {"_a $\\frac$": [[1, 2]]}}
    svg = plots.pictures("$\\caption", data)["svg"].decode()
    for text in ("_a $\\frac$", "$x$", "$\\y", "$\\caption"):
        assert f"{text}<" in svg


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rff_nu4, m = 100", "rff_nu4, m = 100"),
        ("a & b", "a & b"),
        ("_a_", "\\_a\\_"),
        ("<b>&amp;", "\\<b>\\&amp;"),
        (REMOTE, "!\\[p\\](http://evil.example/p.png)"),
    ],
)
def test_literal(text, expected):
    assert markdown.literal(text) == expected
    assert markdown.literal(markdown.literal(text)) == expected


def test_an_error_keeps_the_names_in_backticks():
    text = f"`units` [*] ``two`` `{REMOTE}` ` {REMOTE}"
    (token,) = [token for token in parsed(markdown.message(text)) if token.type == "inline"]
    found = [(child.type, child.content) for child in token.children]
    assert found == [
        ("code_inline", "units"),
        ("text", " [*] ``two`` "),
        ("code_inline", REMOTE),
        ("text", f" ` {REMOTE}"),
    ]
