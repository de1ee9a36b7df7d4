"""Records whose texts look like markup: pages and the HTML file show them as they are."""

import itertools
import json
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from report_records import CONFIG, PLAN, make_record

from softbench.bench import records
from softbench.report import app as report
from softbench.report import markdown, plots

REMOTE = "![p](http://evil.example/p.png)"
ODD = f"_a_|b `c` ``d`` <script>1</script> {REMOTE} [x](javascript:1) *e* ~~f~~ $g$ &lt; \\| \\"
BACKEND = "jax|../../<b>{{ 1 }}"


def odd_record(place, method, perplexity=118.0, **changes):
    """One whose every text is odd; its cell has a plain name."""
    record = make_record(0, perplexity, method=method, cell=f"cell-{place}")
    dataset = {"name": "x", "label": f"data {REMOTE} <b>|"}
    config = {**CONFIG, "dataset": dataset, "backend": BACKEND, "methods": {method: {}}}
    record |= {"config": config, "command": f"--config={ODD}", "versions": {"keras": ODD}}
    record |= {"device": {"kind": "cpu", "name": ODD, "count": 2}, "git": {"commit": "*c*"}}
    return record | changes


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of one experiment whose name is odd too, and a foreign file among its records."""
    root = tmp_path_factory.mktemp("odd") / "results"
    folder = root / "a [b](c) <i>"
    plan = PLAN | {"methods": ["full", ODD], "columns": ["test_perplexity"], "paper": {}}
    records.write_json(folder / "experiment.json", plan | {"title": f"T\n{REMOTE}"})
    made = [
        odd_record(0, "full"),
        odd_record(1, ODD, 3.0),
        odd_record(2, "lost", status="crashed", error=f"Oh\nsecond | third # {REMOTE}"),
    ]
    for record in made:
        records.write_json(folder / "runs" / f"{record['cell']}.json", record)
    (folder / "runs" / f"`*|{REMOTE[:5]}.json").write_text("{}")
    assert report.main(["softbench-report", f"--results={root}"]) == 0
    return root


@pytest.fixture(scope="module")
def page(results):
    (path,) = results.glob("*/README.md")
    parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
    return parser.parse(path.read_text().split("\n", 4)[4])  # below the title of the config


def shown(token):
    return "".join(child.content for child in token.children or [])


def test_nothing_of_them_is_markup(page):
    inner = [child for token in page for child in token.children or []]
    kinds = {token.type for token in [*page, *inner]}
    assert kinds.isdisjoint({"html_inline", "html_block", "em_open", "s_open"})
    for token in inner:
        if token.type == "image":
            assert token.attrs["src"] == "picture.svg"
        elif token.type == "link_open":
            assert token.attrs["href"] in ("rows.csv", "curves.csv")
    words = [shown(token).replace("\n", " ") for token in page if token.type == "inline"]
    assert any(f"Test CPU (cpu x 2); {ODD}"[-40:] in text for text in words)
    assert f"cell-2: crashed. second | third # {REMOTE}" in words
    assert f"runs/`*|{REMOTE[:5]}.json is no record of a cell." in words


def test_rows_of_tables_are_whole(page):
    rows, row = [], []
    for before, token in itertools.pairwise(page):
        if before.type == "tr_open":
            row = []
            rows.append(row)
        if before.type in ("td_open", "th_open"):
            row.append(shown(token))
    assert rows == [["method", "test perplexity"], ["full", "118"], [ODD, "3"], ["lost", "crashed"]]


def test_files_stay_in_their_folder_under_plain_names(results):
    (folder,) = (path for path in results.iterdir() if path.is_dir())
    written = {path for path in results.parent.rglob("*") if path.is_file()}
    found = written - set((folder / "runs").iterdir()) - {folder / "experiment.json"}
    names = ("README.md", "rows.csv", "curves.csv", "picture.svg")
    assert found == {results / "README.md", *(folder / name for name in names)}
    check = ["softbench-report", f"--results={results}", "--check"]
    assert report.main(check) == 1  # a foreign file


class Reader(HTMLParser):
    """The tags of a document, what they load or link to, and its texts."""

    def __init__(self):
        super().__init__()
        self.tags, self.loads, self.links, self.texts = [], [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        assert not any(key.startswith("on") for key in values)
        self.tags.append(tag)
        self.loads += [values[key] for key in ("src", "srcset", "data") if key in values]
        self.links += [values["href"]] if tag == "a" else []

    def handle_data(self, data):
        self.texts.append(data)


def test_the_html_file_loads_nothing_and_shows_texts_as_they_are(results, tmp_path):
    path = tmp_path / "report.html"
    assert report.main(["softbench-report", f"--results={results}", f"--html={path}"]) == 0
    reader = Reader()
    reader.feed(path.read_text())
    assert {"iframe", "link", "img", "i", "b", "em"}.isdisjoint(reader.tags)
    assert reader.loads == [] and reader.links == []
    (data,) = [text for text in reader.texts if text.startswith('{"plot"')]
    methods = {row["method"] for group in json.loads(data)["groups"] for row in group["rows"]}
    assert methods == {"full", ODD}
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in path.read_text()


def test_pictures_take_no_name_for_mathematics_or_a_hidden_one():
    data = {"x": "$x$", "y": "$\\y", "log": "", "lines": {"_a $\\frac$": [[1, 2]]}}
    svg = plots.svg("$\\caption", data).decode()
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
