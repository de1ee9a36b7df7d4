"""The report as one HTML file: no network, tables that sort and filter, light and dark."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from softbench.report import extra
from softbench.report import plots as plots_lib

_TEMPLATE = Path(__file__).with_name("template.html")
_INKS = {
    plots_lib.INK: "var(--ink)",
    plots_lib.GRID: "var(--rule)",
    plots_lib.PAPER: "var(--paper)",
}
_FRONT = "results"


def document(texts: Mapping[str, str], plots: Mapping[str, tuple[str, dict]]) -> str:
    """Returns the document.

    Args:
        texts: {path: content}; those in Markdown become sections, a front page first.
        plots: {path without ending: (caption, data)}, drawn into the sections that show them.
    """
    pages = [path for path in texts if path.endswith(".md")]
    pages.sort(key=lambda path: (path != "README.md", "/" not in path, path))
    names = {path: _name(path) for path in pages}
    nav, sections = [], []
    for path in pages:
        name, folder = names[path], Path(path).parent
        own = {p: plot for p, plot in plots.items() if p in _pictures(texts[path], folder)}
        body = _render(texts[path], folder, own, set(names.values()))
        nav.append(f'<a href="#{name}">{html.escape(name)}</a>')
        sections.append(f'<section id="{name}">\n{body}</section>')
    title = texts[pages[0]].splitlines()[0].removeprefix("# ")
    return Template(_TEMPLATE.read_text()).substitute(
        title=html.escape(title), nav="\n".join(nav), pages="\n".join(sections)
    )


def _name(path: str) -> str:
    """A section's id: the folder of a page, `results` of the front page, `RECORDS` of that file."""
    name = Path(path).parent.name or Path(path).stem
    return _FRONT if name == "README" else name


def _path(folder: Path, target: str) -> str:
    """A picture's path from the report's folder, without its ending."""
    return (folder / target).as_posix().removesuffix(".svg")


def _pictures(text: str, folder: Path) -> set[str]:
    return {_path(folder, target) for target in re.findall(r"!\[.*?\]\((.+?)\)", text)}


def _render(text: str, folder: Path, plots: Mapping, names: set[str]) -> str:
    """Returns a page's Markdown as HTML, its pictures within it and its links inside the file."""
    with extra("--html"):
        from markdown_it import MarkdownIt
        from markdown_it.token import Token
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for token in tokens:
        for index, child in enumerate(token.children or []):
            if child.type == "image" and _path(folder, child.attrs["src"]) in plots:
                caption, data = plots[_path(folder, child.attrs["src"])]
                place = f"{folder.name}-{index}-{token.map[0]}"
                token.children[index] = Token(
                    "html_inline", "", 0, content=_svg(caption, data, place)
                )
            elif child.type == "link_open":
                child.attrs["href"] = _link(child.attrs["href"], names)
    body = parser.renderer.render(tokens, parser.options, {})
    return body.replace("<table>", '<div class="table"><table>').replace(
        "</table>", "</table></div>"
    )


def _link(target: str, names: set[str]) -> str:
    """A link to another page becomes one to its section."""
    name = _name("/".join(part for part in Path(target).parts if part != ".."))
    return f"#{name}" if target.endswith(".md") and name in names else target


def _svg(caption: str, data: Mapping, place: str) -> str:
    """A plot as an SVG element in the colours of the page, with ids of its own."""
    picture = plots_lib.pictures(caption, data)["svg"].decode()
    picture = picture[picture.index("<svg") :]
    picture = re.sub(r"<metadata>.*?</metadata>", "", picture, flags=re.S)
    picture = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{place}-", picture)
    picture = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", picture, count=1)
    picture = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", picture, count=1)
    for ink, variable in _INKS.items():
        picture = picture.replace(ink, variable)
    label = html.escape(caption, quote=True)
    return picture.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
