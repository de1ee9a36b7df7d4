"""The page that compares methods: what it holds, and in a browser, what it does."""

import html
import json
import math
import re

import pandas as pd
import pytest
from browser import WIDTHS, browser, cut_off, opened  # noqa: F401
from report_records import PLAN, make_record, write_results

from softbench.bench import records
from softbench.report import explorer
from softbench.report import frame as frame_lib
from softbench.report.explorer import Column

pytest.importorskip("altair", reason="needs the extra `report`")
BAD = "<b>x</b></script><script>alert(1)</script>"
SHOWN = {
    "score": Column("score, test"),
    "loss": Column("loss", lower=True, log=True),
    "price": Column("price", "price", lower=True, log=True),
    "never": Column("never measured"),
}
# method, seed, price, score, loss. Of `b` two seeds; `d` has no price. On the frontier of price
# and score are a, b and c; of price and loss a alone.
ROWS = [
    ("a", 0, 1.0, 0.10, 2.0),
    ("b", 0, 2.0, 0.30, 8.0),
    ("b", 1, 2.0, 0.50, 8.0),
    ("c", 0, 9.0, 0.90, 4.0),
    ("slow", 0, 10.0, 0.20, 4.0),
    ("d", 0, None, 1.00, 3.0),
]
COLUMNS = ["method", "seed", "price", "score", "loss"]


def frame():
    first = pd.DataFrame(ROWS, columns=COLUMNS).assign(problem="words", backend="jax")
    other = first.head(2).assign(backend="tensorflow")
    odd = first.head(1).assign(problem=BAD, method=BAD)
    runs = pd.concat([first, other, odd]).assign(experiment="demo")
    runs = pd.concat([runs, first.head(2).assign(experiment="second")])
    return runs.assign(never=float("nan"))


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "report.html"
    path.write_text(explorer.document(frame(), SHOWN))
    return path


def data_of(text):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', text).group(1))


def test_means_and_intervals():
    """Of 0.3 and 0.5: 0.4, and t(0.975, 1) = 12.706 times 0.1 (the standard error)."""
    data = data_of(explorer.fragment(frame(), SHOWN))
    assert list(data["columns"]) == ["score", "loss", "price"]
    groups = {(group["experiment"], group["problem"]): group["rows"] for group in data["groups"]}
    assert list(groups) == [("demo", "words"), ("demo", BAD), ("second", "words")]
    rows = {(row["backend"], row["method"]): row for row in groups["demo", "words"]}
    assert len(rows) == 7
    values = rows["jax", "b"]["values"]
    assert rows["jax", "b"]["seeds"] == 2 and values["price"] == [2.0, 0.0]
    assert values["score"] == pytest.approx([0.4, 12.706 * 0.1], rel=1e-4)
    assert rows["jax", "a"]["values"]["score"] == [0.1, None]
    assert "price" not in rows["jax", "d"]["values"]


def test_no_two_methods_look_alike():
    for group in data_of(explorer.fragment(frame(), SHOWN))["groups"]:
        looks = {row["method"]: (row["path"], row["colour"], row["fill"]) for row in group["rows"]}
        assert len(set(looks.values())) == len(looks)


def test_file_loads_nothing_and_runs_its_own_scripts_alone(document):
    text = document.read_text()
    assert "default-src 'none'" in text and "unsafe-eval" not in text
    assert len(re.findall(r"'sha256-[^']{44}'", html.unescape(text[:2000]))) == 2
    assert not re.search(r"<(?:link|img|iframe)\b|\bsrc=", text[: text.index("<noscript>")])
    assert "alert(1)" in text and "<script>alert" not in text and "<b>x" not in text


def test_runs_of_records(tmp_path):
    """A page's measures and the costs; no time that other programs made longer; failures out."""
    busy = {"count": 2, "own": 1.9, "others": 0.5}
    made = [
        make_record(perplexity=118.0, step=60.0),
        make_record(seed=1, perplexity=120.0, step=80.0, processors=busy),
        make_record(method="exp", status="crashed", error="no"),
    ]
    made[1]["cell"] = made[1]["cell"].replace("-s0-", "-s1-")
    made[2]["cell"] = made[2]["cell"].replace("-full-", "-exp-")
    write_results(tmp_path / "demo", *made)
    records.write_json(tmp_path / "demo" / "experiment.json", PLAN)
    runs, shown = explorer.runs_of([frame_lib.read(tmp_path / "demo")])
    assert runs["method"].tolist() == ["full", "full"]
    assert runs["problem"].tolist() == ["ptb-lstm_small"] * 2
    assert runs["test_perplexity"].tolist() == [118.0, 120.0]
    assert runs["step_ms"][0] == 60.0 and math.isnan(runs["step_ms"][1])
    assert shown == {
        "test_perplexity": Column("test perplexity", "quality", lower=True, log=True),
        "step_ms": Column("step, ms", "price", lower=True, log=True),
        "price": Column("price of a step", "price", lower=True),
    }


def names(page):
    return page.locator("tbody tr td:first-child").all_inner_texts()


def drawn(page, points, named=None):
    """Waits until the plot has the points of these methods, and names those."""
    page.wait_for_function(
        """([points, named]) => {
          const of = (query, text) => [...document.querySelectorAll(query)].map(text).sort().join();
          const said = (one) => one.textContent;
          const method = (one) => /method: ([^;]*)/.exec(one.getAttribute("aria-label"))[1];
          return of(".plot .mark-symbol path", method) === points &&
            (named === null || of(".plot .mark-text.role-mark text", said) === named);
        }""",
        arg=[points, named],
        timeout=60_000,
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_filters_filter_and_columns_sort(browser, document, width):  # noqa: F811
    with opened(browser, document.as_uri(), width) as page:
        assert page.locator("[name=problem] option").count() == 3
        assert names(page) == ["d", "c", "b", "slow", "a"]  # the best score first
        drawn(page, "a,b,c,slow", "a,b,c")
        assert "1 not in the plot" in page.locator(".status").inner_text()
        assert cut_off(page) == []
        page.locator("thead button", has_text="method").click()
        assert names(page) == ["a", "b", "c", "d", "slow"]
        page.locator("thead button", has_text="price").click()
        assert names(page)[-1] == "d"  # what was not measured is last in both directions
        page.locator("thead button", has_text="price").click()
        assert names(page) == ["slow", "c", "b", "a", "d"]
        assert page.locator("th[aria-sort=descending]").inner_text().strip().startswith("price")

        page.locator("[name=quality]").select_option("loss")
        drawn(page, "a,b,c,slow", "a")
        page.locator("[name=filter]").fill("B slow")
        assert sorted(names(page)) == ["b", "slow"]
        drawn(page, "b,slow")
        page.locator("[name=filter]").fill("")
        page.locator(".methods button", has_text="slow").click()
        assert "slow" not in names(page)
        drawn(page, "a,b,c")
        page.locator("[name=backend]").select_option("tensorflow")
        assert sorted(names(page)) == ["a", "b"]
        drawn(page, "a,b")
        assert "0.4" not in page.locator("tbody").inner_text()  # one seed there: 0.3
        assert page.locator("thead th").count() == 4
        page.locator("[name=all]").check()
        assert page.locator("thead th").count() == 5
        page.locator("[name=problem]").select_option("1")
        assert names(page) == [BAD]
        assert cut_off(page) == []


def test_a_link_names_an_experiment_and_dark_is_dark(browser, document):  # noqa: F811
    with opened(browser, f"{document.as_uri()}#second", color_scheme="dark") as page:
        assert page.locator("[name=problem]").input_value() == "2"
        # A cell that stays in sight while others scroll has the page's colour behind it.
        colour = page.locator("tbody td").first.evaluate(
            "one => getComputedStyle(one).backgroundColor"
        )
        assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 200
