"""README.md: its numbers are those of the records, its code runs, it is short."""

import re

import numpy as np
import pytest
from shipped import ROOT

from softbench.report import markdown, pages

TEXT = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def frames():
    return pages.read_all(ROOT / "results")[0]


def test_every_number_between_markers_is_that_of_its_record(frames):
    assert len(markdown.MARKED.findall(TEXT)) == 7
    assert pages.filled(TEXT, frames) == TEXT


def test_a_number_that_is_wrong_is_put_right(frames):
    first = markdown.MARKED.search(TEXT).group()
    wrong = re.sub(r"-->.*?<!--", "-->12,345<!--", first)
    assert wrong != first and pages.filled(wrong, frames) == first


def test_the_first_code_runs():
    """With fewer classes, so that it takes no time."""
    code = re.search(r"```python\n(.*?)```", TEXT, re.S).group(1)
    assert code.count("\n") <= 12 and TEXT[: TEXT.index("```python")].count("\n") < 20
    code = code.replace("n = 1_000_000", "n = 2_000").replace("labels)", "labels, verbose=0)")
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert np.array(names["ids"]).shape == (2, 5)
    assert set(names["model"].history.history) == {"loss"}


def rows(table):
    """The cells of a Markdown table, as they are shown: no markers, no targets of links."""
    shown = re.sub(r"\]\([^)]*\)", "]", markdown.MARKED.sub(lambda match: match["shown"], table))
    return [line.strip("| ").split("|") for line in shown.strip().split("\n")]


def test_a_reader_needs_no_more_than_a_minute():
    assert TEXT.count("\n") <= 150
    tables = re.findall(r"(?:^\|.*\n)+", TEXT, re.M)
    assert len(tables) >= 2
    for cells in (row for table in tables for row in rows(table)):
        assert all(len(cell.split()) <= 12 for cell in cells), cells
    chapter = TEXT[TEXT.index("## Which one to use") : TEXT.index("## What it has")]
    assert len(re.findall(r"^\|", chapter, re.M)) <= 2 + 6  # as many as softbench has decided


def test_the_commands_are_there():
    """`.ci/run` looks for the second; the configs that commands name are shipped."""
    commands = re.findall(r"^python3 -m venv \.venv && .*$", TEXT, re.M)
    assert [line.split("/bin/")[-1].split()[0] for line in commands] == ["softbench", "python"]
    assert commands[1].endswith(" -m pytest")


WORDS = re.compile(r"\blaws?\b|in the place of", re.I)


def test_plain_words():
    """`law` is the name of a field of nce_efficiency's records, and stays there."""
    allowed = {'"law"', "`law`"}
    pages = [*ROOT.glob("*.md"), *(ROOT / "results").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
    code = [path for name in ("softbench", "configs") for path in (ROOT / name).rglob("*.py")]
    found = []
    for path in sorted(pages) + sorted(code):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            rest = line
            for text in allowed:
                rest = rest.replace(text, "")
            if WORDS.search(rest):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
