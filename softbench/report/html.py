"""The comparison and the pages as one HTML file: it loads nothing, pictures are within it."""

import base64
import html
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from softbench.report import explorer, extra, plots, tables
from softbench.report.frame import Frame


def document(
    texts: Mapping[str, str], pictures: Mapping[str, tuple[str, dict]], frames: Mapping[str, Frame]
) -> str:
    """Returns the document.

    Args:
        texts: {path: content}; those in Markdown become sections, a front page first.
        pictures: {path: (caption, data)}, drawn into the sections that show them.
        frames: {experiment: its frame}, whose rows follow its page.
    """
    paths = sorted(
        (path for path in texts if path.endswith(".md") and not path.startswith("..")),
        key=lambda path: (path != "README.md", "/" not in path, path),
    )
    names = {path: _name(path) for path in paths}
    nav, sections = [], []
    for path, name in names.items():
        body = _render(texts[path], Path(path).parent, pictures, set(names.values()))
        if len(paths) == 1 or "/" in path:
            frame = frames.get(name) or next(iter(frames.values()))
            body += _rows(frame)
        nav.append(f'<a href="#{quote(name)}">{html.escape(name)}</a>')
        sections.append(f'<section id="{html.escape(name)}">\n{body}</section>')
    title = re.search(r"^# (.*)", texts[paths[0]], re.M).group(1)
    runs, columns = explorer.runs_of(frames.values())
    return explorer.document(title, runs, columns, "\n".join(nav), "\n".join(sections))


def _name(path: str) -> str:
    """A section's id: the folder of a page, `results` of the front page, `CLAIMS` of that one."""
    name = Path(path).parent.name or Path(path).stem
    return "results" if name == "README" else name


def _render(text: str, folder: Path, pictures: Mapping, names: set[str]) -> str:
    """A page's Markdown as HTML, its pictures within it and its links inside the file."""
    with extra("--html"):
        from markdown_it import MarkdownIt
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(re.sub(r"^<!--.*?-->\s*", "", text))
    for child in (child for token in tokens for child in token.children or []):
        if child.type == "image":
            picture = pictures.get((folder / unquote(child.attrs["src"])).as_posix())
            if picture is None:
                child.type, child.content = "text", f"{child.content} ({child.attrs['src']})"
            else:
                data = base64.b64encode(plots.svg(*picture)).decode()
                child.attrs["src"] = f"data:image/svg+xml;base64,{data}"
        elif child.type == "link_open" and child.attrs["href"].endswith(".md"):
            target = _name(
                "/".join(x for x in Path(unquote(child.attrs["href"])).parts if x != "..")
            )
            child.attrs["href"] = f"#{quote(target)}" if target in names else "#"
        elif child.type == "link_open" and child.attrs["href"] in ("rows.csv", "curves.csv"):
            child.attrs["href"] = f"#{quote(folder.name or 'results')}-rows"
    body = parser.renderer.render(tokens, parser.options, {})
    return body.replace("<table>", '<div class="table"><table>').replace(
        "</table>", "</table></div>"
    )


def _rows(frame: Frame) -> str:
    """All rows of a frame, folded."""
    rows = frame.runs.drop(columns=["command", "hardware", "software", "commit"], errors="ignore")
    shown = tables.visible(rows).convert_dtypes()
    table = shown.to_html(index=False, na_rep="", border=0, float_format="{:.6g}".format)
    slug = html.escape(f"{frame.name}-rows")
    summary = f"<summary>All {len(rows)} rows</summary>"
    return f'<details id="{slug}">{summary}<div class="table">{table}</div></details>'
