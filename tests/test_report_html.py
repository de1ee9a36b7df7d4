"""The report as one HTML file: what it holds, and in a browser, where one is installed, its use."""

import re
import shutil
import subprocess

import pytest
from report_records import PLAN, Reader, make_record, write_results

from softbench.bench import records
from softbench.commands import ConfigError
from softbench.report import app as report
from softbench.report import html as report_html

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# Sorts the first table twice by its third column, filters, and leaves what it sees in the title.
ACT = """<script>{
const table = document.querySelector("#demo table");
const shown = (found) => [...found].filter((one) => !one.hidden);
const names = () => shown(table.tBodies[0].rows).map((row) => row.cells[0].textContent);
const seen = [];
const head = table.tHead.rows[0].cells[2];
head.click(); seen.push(names().join(" "));
head.click(); seen.push(names().join(" "));
const box = document.getElementById("filter");
box.value = "JAX full"; box.dispatchEvent(new Event("input")); seen.push(names().join(" "));
seen.push(shown(document.querySelectorAll("section")).map((section) => section.id).join(" "));
box.value = ""; box.dispatchEvent(new Event("input"));
const picker = document.getElementById("method");
picker.value = "exp"; picker.dispatchEvent(new Event("change")); seen.push(names().join(" "));
picker.value = ""; picker.dispatchEvent(new Event("change"));
seen.push(document.getElementById("menu").open);
const marks = [...document.querySelectorAll("#demo svg use")];
const mark = marks.find((one) => one.textContent === "uniform: 7.5 at 20");
mark.scrollIntoView({block: "center"});
const box2 = mark.getBoundingClientRect();
const hit = document.elementFromPoint(box2.x + box2.width / 2, box2.y + box2.height / 2);
seen.push(hit === mark);
seen.push(document.documentElement.scrollWidth <= innerWidth);
document.title = seen.join("|") + "|" + getComputedStyle(document.body).backgroundColor;
}</script>"""


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """A report of one experiment with a front page."""
    root = tmp_path_factory.mktemp("report") / "results"
    made = [
        make_record(perplexity=118.0),
        make_record(method="exp", perplexity=1_200.0),
        make_record(method="uniform", perplexity=7.5),
        make_record(method="lost", status="crashed", error="<b>no</b>"),
    ]
    for point in made[0]["curve"]:
        point["valid_precision_at_1"] = 0.25  # a second plot
    write_results(root / "demo", *made)
    plan = PLAN | {"columns": [*PLAN["columns"], "test_precision_at_1"]}
    records.write_json(root / "demo" / "experiment.json", plan)
    lost = make_record(status="crashed", curve=[], final=None)
    write_results(root / "other", lost)
    (root / "demo" / "NOTES.md").write_text("Note <script>alert(1)</script> & [home](../README.md)")
    (root / "RECORDS.md").write_text("# Records\n\nThe schema.\n")
    path = root.parent / "report.html"
    assert report.main(["softbench-report", f"--results={root}", f"--html={path}"]) == 0
    assert not (root / "README.md").exists() and not (root / "demo" / "README.md").exists()
    return path


def test_file_holds_all_it_needs(document):
    text = document.read_text()
    reader = Reader(text)
    assert reader.loads == [] and "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text
    assert {"link", "img", "iframe"}.isdisjoint(reader.tags)
    assert reader.tags.count("script") == 1
    assert "<script>alert" not in text and "&lt;b&gt;no" in text
    assert len(reader.ids) == len(set(reader.ids))
    assert {"results", "demo", "RECORDS"} <= set(reader.ids)
    inside = {f"#{name}" for name in reader.ids}
    others = {link for link in reader.links if not link.startswith("http")} - inside
    runs = (document.parent / "results").glob("*/runs/*.json")
    assert {document.parent / link for link in others} == set(runs)
    assert reader.tags.count("svg") == 2
    pictures = text[text.index("<svg") :]
    assert "url(#" in pictures and "var(--ink)" in pictures
    for target in re.findall(r'(?:url\(#|xlink:href="#)([^)"]+)', text):
        assert target in reader.ids


def test_hover_shows_values_and_every_table_and_figure_has_an_anchor(document):
    text = document.read_text()
    assert len(re.findall("<use [^>]*><title>exp: 1,200 at 20</title></use>", text)) == 1
    for kind in ("table", "figure"):
        ids = re.findall(f'class="{kind}" id="([^"]+)"', text)
        assert len(ids) == text.count({"table": "<table>", "figure": "<svg"}[kind]) > 0
        assert all(f'href="#{name}"' in text for name in ids)


def test_same_records_same_file(document):
    """Beside the first: links to records are from where the file is."""
    again = document.parent / "again.html"
    report.main(["softbench-report", f"--results={document.parent / 'results'}", f"--html={again}"])
    assert again.read_bytes() == document.read_bytes()


def test_one_experiment_alone(document, tmp_path):
    path = tmp_path / "one.html"
    demo = document.parent / "results" / "demo"
    assert report.main(["softbench-report", f"--results={demo}", f"--html={path}"]) == 0
    assert "A demonstration" in path.read_text()


def test_check_and_html_exclude_each_other(tmp_path):
    options = [f"--results={tmp_path}", "--check", f"--html={tmp_path / 'a.html'}"]
    with pytest.raises(ConfigError, match="exclude each other"):
        report.main(["softbench-report", *options])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("demo/README.md", "#demo"),
        ("../README.md", "#results"),
        ("../demo/README.md", "#demo"),
        ("RECORDS.md", "#RECORDS"),
        ("../../configs/a.py", "../../configs/a.py"),
    ],
)
def test_links_between_pages_stay_in_the_file(target, expected):
    assert report_html._link(target, {"results", "demo", "RECORDS"}) == expected


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
@pytest.mark.parametrize(
    ("scheme", "colour", "width"), [(0, "rgb(23, 24, 28)", 1200), (1, "rgb(254, 254, 254)", 500)]
)
def test_use_in_a_browser(document, tmp_path, scheme, colour, width):
    """On a narrow page the menu is folded, and no table makes the page wider than the window."""
    page = tmp_path / "act.html"
    text = document.read_text().replace("</body>", ACT + "</body>")
    # The page's policy runs its own script alone: this one is let in by its hash.
    page.write_text(text.replace("script-src ", f"script-src '{report_html.script_hash(ACT)}' "))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--window-size={width},800",
        "--dump-dom",
        f"{page.as_uri()}#demo",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.*?)</title>", run.stdout).group(1)
    # Numbers by value (1,200 after 118), the row without a result last in both directions.
    assert title == (
        "uniform full exp lost|exp full uniform lost|full|demo|exp|"
        f"{str(width > 640).lower()}|true|true|{colour}"
    )
