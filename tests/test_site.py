"""The site: it builds without a warning, its links lead somewhere, its pages fit their windows.

Thorough tests of the site's workflow, which publishes what they have seen; the links of all pages
that people write are `test_docs.py`'s.
"""

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from browser import WIDTHS, browser, cut_off, opened, served  # noqa: F401
from shipped import ROOT

pytest.importorskip("mkdocs", reason="needs the extra `docs`")
pytestmark = pytest.mark.thorough
# One page of each kind.
KINDS = ["", "docs/choosing/", "docs/reference/heads/", "results/", "results/ptb_rff/"]
KINDS += ["results/compare/", "docs/notebooks/recommender/"]


class Reader(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values.get("id"), values.get("name")} - {None}
        self.links += [values["href"]] if tag == "a" and values.get("href") else []
        self.loads += [values[key] for key in ("src", "data") if values.get(key)]
        self.loads += [values["href"]] if tag == "link" else []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={folder}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """{path of a page: what a reader finds in it}."""
    found = {}
    for path in site.rglob("*.html"):
        found[path.relative_to(site).as_posix()] = reader = Reader()
        reader.feed(path.read_text())
    return found


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site, pages):
    assert len(pages) > 50
    for page, reader in pages.items():
        base = "/" if page == "404.html" else f"/{page}"
        assert [load for load in reader.loads if re.match(r"(\w+:)?//", load)] == []
        for link in [*reader.links, *reader.loads]:
            target, anchor = urldefrag(urljoin(base, link))
            if re.match(r"https?:|mailto:", target):
                continue
            path = unquote(target).lstrip("/")
            path += "index.html" if path.endswith("/") or not path else ""
            assert (site / path).is_file(), f"{page}: {link}"
            anchors = pages[path].ids if path in pages and anchor else {unquote(anchor)}
            assert path == "results/compare/index.html" or unquote(anchor) in anchors, (
                f"{page}: {link}"
            )


def test_styles_load_nothing_from_elsewhere(site):
    for path in site.rglob("*.css"):
        for target in re.findall(r"url\(([^)]*)\)", path.read_text()):
            assert target.strip("\"'").startswith(("data:", "#", "../")), f"{path}: {target}"


def test_every_page_is_in_the_navigation(pages):
    """But for the index, which is the navigation."""
    home = {urljoin("/", link) for link in pages["index.html"].links}
    missing = {page for page in pages if f"/{page.removesuffix('index.html')}" not in home}
    assert missing <= {"404.html", "docs/index.html", "index.html"}


def test_arguments_are_shown_one_by_one_and_formulas_as_they_are_written(site):
    text = (site / "docs/reference/heads/index.html").read_text()
    (shown,) = re.findall(
        r'id="softbench.heads.FullSoftmax".*?id="softbench.heads.Head"', text, re.S
    )
    assert {"temperature", "class_chunk"} <= set(re.findall(r"<b><code>(\w+)</code></b>", shown))
    plain = html.unescape(re.sub("<[^>]*>", "", text))
    assert "sigmoid(+-(<h, w_node> + b_node))" in plain


def look(browser, site, paths, width):  # noqa: F811
    with served(site) as address:
        for path in paths:
            with opened(browser, f"{address}/{path}", width) as page:
                assert cut_off(page) == [], path


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_their_windows(browser, site, width):  # noqa: F811
    look(browser, site, KINDS, width)


def test_all_other_pages_fit_a_telephone(browser, site, pages):  # noqa: F811
    paths = {path.removesuffix("index.html") for path in pages} - {"404.html", *KINDS}
    look(browser, site, sorted(paths), WIDTHS[1])


def test_the_site_compares_methods(browser, site):  # noqa: F811
    with served(site) as address, opened(browser, f"{address}/results/compare/#ptb_nce") as page:
        assert page.locator("[name=problem] option:checked").inner_text() == "ptb-lstm_small"
        page.wait_for_selector(".plot .mark-symbol path")
        rows = page.locator("tbody tr").count()
        page.locator("[name=filter]").fill("binary")
        assert 0 < page.locator("tbody tr").count() < rows


def test_search_and_menu_work(browser, site):  # noqa: F811
    with served(site) as address, opened(browser, f"{address}/", WIDTHS[1]) as page:
        page.locator(".md-header label[for=__drawer]").click()
        page.locator(".md-nav--primary label.md-nav__link:visible", has_text="Use").first.click()
        page.locator(".md-nav__link:visible", has_text="Choosing a method").first.click()
        page.wait_for_url("**/docs/choosing/")
        page.locator("label.md-header__button[for=__search]").click()
        page.locator("[data-md-component=search-query]").fill("codebook")
        page.wait_for_selector(".md-search-result__item", timeout=60_000)
