"""What MkDocs is told of the site (hooks of mkdocs.yml).

The site has what README.md leads to, each file under its path in the repository, so that a link
that works there works here. `docs/README.md` is the navigation, with all results where it has their
front page. Notebooks are pages too, and one page compares the methods of all records.
"""

import json
import posixpath
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from softbench.report import explorer, pages

ROOT = Path(__file__).parents[1]
INDEX = "docs/README.md"
RESULTS = "results/README.md"
COMPARE = "results/compare.md"
STYLE = "docs/site.css"
FIRST = "sequences"  # the experiment that it shows first
ASSETS = {"assets/vega.js": explorer.bundle, "assets/explorer.js": explorer.script}
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ROW = re.compile(r"^\| (?:\*\*(?P<section>.+?)\*\*|\[.+?\]\((?P<target>.+?)\)) \|", re.M)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    sections: dict[str, list] = {}
    for row in _ROW.finditer((ROOT / INDEX).read_text()):
        if row["section"]:
            entries = sections.setdefault(row["section"], [])
        elif sections and row["target"].endswith((".md", ".ipynb")):
            page = _page(_resolved(INDEX, row["target"]))
            entries += _results() if page == RESULTS else [page]
    config.nav = [
        {"Home": "README.md"},
        *({name: entries} for name, entries in sections.items() if entries),
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    link = {"icon": "fontawesome/brands/git-alt", "link": project["urls"]["Repository"]}
    config.extra["social"] = [link]
    config.watch.append(str(ROOT / "results"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, and ours instead of those that MkDocs has seen in docs/."""
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    for path in [*sorted(_reachable()), STYLE]:
        site.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
        if path.endswith(".ipynb"):
            text = _notebook(ROOT / path)
            site.append(File.generated(config, _page(path), content=text))
    for path, make in ASSETS.items():
        site.append(File.generated(config, path, content=make()))
    text = "---\nhide: [toc]\n---\n\n# Compare methods\n"
    site.append(File.generated(config, COMPARE, content=text))
    return site


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Without the comment above a generated page, behind which MkDocs sees no title."""
    return re.sub(r"^<!--.*?-->\s*", "", markdown, flags=re.S)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri != COMPARE:
        return html
    frames = sorted(
        pages.read_all(ROOT / "results")[0].values(), key=lambda frame: frame.name != FIRST
    )
    fragment = explorer.fragment(*explorer.runs_of(frames))
    sources = [get_relative_url(path, page.url) for path in ASSETS]
    scripts = [f'<script src="{source}"></script>' for source in sources]
    return "\n".join([html, f"<style>{explorer.style()}</style>", fragment, *scripts])


def _resolved(page: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(target)))


def _page(path: str) -> str:
    return re.sub(r"\.ipynb$", ".md", path)


def _reachable() -> set[str]:
    """The files that README.md and the pages behind it link to."""
    seen, left = {"README.md"}, ["README.md"]
    while left:
        page = left.pop()
        targets = _LINK.findall((ROOT / page).read_text()) if page.endswith(".md") else []
        paths = {_resolved(page, target.partition("#")[0]) for target in targets}
        new = {path for path in paths - seen if (ROOT / path).is_file()}
        seen |= new
        left += new
    return seen


def _results() -> list:
    paths = sorted(path for path in _reachable() if re.fullmatch(r"results/.*\.md", path))
    experiments = [{Path(path).parts[1]: path} for path in paths if path.count("/") > 1]
    others = [path for path in paths if path.count("/") == 1 and path != RESULTS]
    return [RESULTS, COMPARE, *others, {"Experiments": experiments}]


def _notebook(path: Path) -> str:
    """The cells of a notebook as Markdown."""
    cells = json.loads(path.read_text())["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if code else text for text, code in texts)
