"""The report as one HTML file: no network, tables that sort and filter, light and dark.

Texts are escaped, a picture is one of the report's plots or its words, and the page's policy
lets a browser run the page's script alone and load nothing.
"""

import base64
import functools
import hashlib
import html
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from string import Template
from urllib.parse import quote, unquote

from softbench.report import extra
from softbench.report import markdown as md
from softbench.report import plots as plots_lib

_TEMPLATE = Path(__file__).with_name("template.html")
_INKS = {
    plots_lib.INK: "var(--ink)",
    plots_lib.GRID: "var(--rule)",
    plots_lib.PAPER: "var(--paper)",
}
_FRONT = "results"


def document(
    texts: Mapping[str, str], plots: Mapping[str, tuple[str, dict]], base: str = "."
) -> str:
    """Returns the document.

    Args:
        texts: {path: content}; those in Markdown become sections, a front page first.
        plots: {path without ending: (caption, data)}, drawn into the sections that show them.
        base: path of the report's folder from that of the document; links to records need it.
    """
    pages = [path for path in texts if path.endswith(".md")]
    pages.sort(key=lambda path: (path != "README.md", "/" not in path, path))
    names = {path: _name(path) for path in pages}
    nav, sections = [], []
    for path in pages:
        name, folder = names[path], Path(path).parent
        links = functools.partial(_link, names=set(names.values()), base=f"{base}/{folder}")
        body = _anchored(_render(texts[path], folder, plots, links, name), name)
        nav.append(f'<a href="#{quote(name)}">{html.escape(name)}</a>')
        sections.append(f'<section id="{html.escape(name)}">\n{body}</section>')
    title = texts[pages[0]].splitlines()[0].removeprefix("# ")
    template = _TEMPLATE.read_text()
    return Template(template).substitute(
        title=html.escape(title),
        nav="\n".join(nav),
        pages="\n".join(sections),
        script=script_hash(template),
    )


def script_hash(page: str) -> str:
    """Returns the hash of a page's last script, as a Content-Security-Policy names it."""
    script = re.findall("<script>(.*?)</script>", page, flags=re.S)[-1]
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _name(path: str) -> str:
    """A section's id: the folder of a page, `results` of the front page, `RECORDS` of that file."""
    name = Path(path).parent.name or Path(path).stem
    return _FRONT if name == "README" else name


def _path(folder: Path, target: str) -> str:
    """A picture's path from the report's folder, without its ending."""
    return (folder / unquote(target)).as_posix().removesuffix(".svg")


def _render(text: str, folder: Path, plots: Mapping, links: Callable[[str], str], name: str) -> str:
    """Returns a page's Markdown as HTML, its pictures within it and its links inside the file."""
    with extra("--html"):
        from markdown_it import MarkdownIt
        from markdown_it.token import Token
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for token in tokens:
        for index, child in enumerate(token.children or []):
            if child.type == "image":
                plot = plots.get(_path(folder, child.attrs["src"]))
                prefix = f"{md.file_name(folder.name)}-{index}-{token.map[0]}"
                kind, content = "text", f"{child.content} ({child.attrs['src']})"
                if plot is not None:
                    slug = md.file_name(f"{name}--{Path(_path(folder, child.attrs['src'])).name}")
                    content = f'<span class="figure" id="{slug}">{_svg(*plot, prefix)}'
                    kind, content = "html_inline", f"{content}{_anchor(slug, 'figure')}</span>"
                token.children[index] = Token(kind, "", 0, content=content)
            elif child.type == "link_open":
                child.attrs["href"] = links(child.attrs["href"])
    return parser.renderer.render(tokens, parser.options, {}).replace("</table>", "</table></div>")


def _anchor(slug: str, what: str) -> str:
    return f'<a class="anchor" href="#{quote(slug)}" aria-label="Link to this {what}">#</a>'


def _anchored(body: str, name: str) -> str:
    """Gives the headings and tables within a page ids, and a link to each."""
    seen: dict[str, int] = {}

    def heading(match: re.Match) -> str:
        level, text = match.groups()
        slug = md.file_name(f"{name}--{html.unescape(re.sub('<[^>]*>', '', text))}")
        seen[slug] = seen.get(slug, 0) + 1
        slug += f"-{seen[slug]}" if seen[slug] > 1 else ""
        return f'<h{level} id="{html.escape(slug)}">{text}{_anchor(slug, "part")}</h{level}>'

    def table(match: re.Match) -> str:
        seen["table"] = seen.get("table", 0) + 1
        slug = md.file_name(f"{name}--table--{seen['table']}")
        caption = f"<caption>{_anchor(slug, 'table')}</caption>"
        return f'<div class="table" id="{html.escape(slug)}"><table>{caption}'

    body = re.sub(r"<h([23])>(.*?)</h\1>", heading, body)
    return re.sub("<table>", table, body)


def _link(target: str, names: set[str], base: str = "") -> str:
    """A link to another page becomes one to its section, one to a record is from `base`."""
    name = _name("/".join(piece for piece in Path(unquote(target)).parts if piece != ".."))
    if target.endswith(".md") and name in names:
        return f"#{quote(name)}"
    is_record = base and target.startswith("runs/")
    return os.path.normpath(f"{quote(base)}/{target}") if is_record else target


def _svg(caption: str, data: Mapping, prefix: str) -> str:
    """A plot as an SVG element in the colours of the page, with unique ids."""
    picture = plots_lib.pictures(caption, data)["svg"].decode()
    picture = _titled(picture[picture.index("<svg") :], data)
    picture = re.sub(r"<metadata>.*?</metadata>", "", picture, flags=re.S)
    picture = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", picture)
    picture = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", picture, count=1)
    picture = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", picture, count=1)
    for ink, variable in _INKS.items():
        picture = picture.replace(ink, variable)
    label = html.escape(caption, quote=True)
    return picture.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _titled(picture: str, data: Mapping) -> str:
    """Gives lines and points what a browser shows when the pointer is over them."""
    for line_id, name, points in _lines(data):
        start = picture.index(f'<g id="{line_id}">') + len(f'<g id="{line_id}">')
        end = picture.index('<g id="', start)
        group = picture[start:end]
        if group.count("<use ") == len(points):  # a point off the axes has no mark
            pieces = re.split(r"<use ([^>]*)/>", group)
            pieces[1::2] = [
                _use(attributes, name, p)
                for attributes, p in zip(pieces[1::2], points, strict=True)
            ]
            group = "".join(pieces)
        picture = f"{picture[:start]}<title>{html.escape(name)}</title>{group}{picture[end:]}"
    return picture


def _use(attributes: str, name: str, point: list[float]) -> str:
    from softbench.report.tables import number  # which needs the extra

    x, y, *half = point
    interval = f" ± {number(half[0])}" if half and half[0] else ""
    text = html.escape(f"{name}: {number(y)}{interval} at {number(x)}")
    return f"<use {attributes}><title>{text}</title></use>"


def _lines(data: Mapping) -> Iterator[tuple[str, str, list]]:
    """(id in the picture, name, points) of all lines of a plot."""
    if "panels" in data:
        for index, panel in enumerate(data["panels"]):
            for line, (name, values) in enumerate(panel["lines"].items()):
                yield f"line-{index}-{line}", name, values["points"]
    else:
        for index, (name, points) in enumerate(data["lines"].items()):
            yield f"line-{index}", name, points
