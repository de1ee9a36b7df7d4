"""README.md: its numbers are those of the records, its code runs, its names and links exist."""

import re

import numpy as np
import pytest
from shipped import CONFIGS, ROOT

from softbench.commands import ConfigError
from softbench.report import numbers

TEXT = (ROOT / "README.md").read_text()
BEFORE_REFERENCE = TEXT[: TEXT.index("\n# Reference")]


def test_every_number_between_markers_is_that_of_its_record():
    assert len(numbers.MARKED.findall(TEXT)) > 10
    assert numbers.filled(TEXT, ROOT / "results") == TEXT


@pytest.mark.parametrize(
    ("marker", "error"),
    [
        ("scaling n=7,backend=jax steps.full.step_ms.median as .0f", "0 records are n=7"),
        ("scaling backend=jax steps.full.step_ms.median as .0f", "3 records are backend=jax"),
        ("scaling n=10000,backend=jax steps.none.step_ms.median as .0f", "'none'"),
        ("scaling n=10000,backend=jax steps.full.step_ms as .0f", "steps.full.step_ms is"),
        ("table quickstart no-such-table method", "no-such-table"),
    ],
)
def test_a_marker_without_a_number_is_an_error_that_names_it(marker, error):
    with pytest.raises(ConfigError, match=re.escape(marker)) as caught:
        numbers.filled(f"<!--= {marker} -->1<!--/-->", ROOT / "results")
    assert error in str(caught.value)


def test_a_number_that_is_wrong_is_put_right():
    (first,) = re.findall(r"<!--= scaling n=10000\S* \S+ as \S+ -->.*?<!--/-->", TEXT)[:1]
    wrong = re.sub(r"-->.*?<!--", "-->12,345<!--", first)
    assert numbers.filled(wrong, ROOT / "results") == first


def test_the_first_code_runs():
    """With fewer classes, so that it takes no time."""
    code = re.search(r"```python\n(.*?)```", TEXT, re.S).group(1)
    assert TEXT[: TEXT.index("```python")].count("\n") < 40
    code = code.replace("n = 1_000_000", "n = 2_000").replace(".fit(", ".fit(verbose=0, x=")
    code = code.replace(".evaluate(", ".evaluate(verbose=0, x=").replace(
        '.save("scores.keras")', ""
    )
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert np.array(names["ids"]).shape == (2, 5)


def test_readers_meet_the_use_before_the_reference():
    assert BEFORE_REFERENCE.count("\n") <= 120
    table = re.search(r"## Which one to use\n\n(.*?)\n\n", TEXT, re.S).group(1)
    assert len(table.split("\n")) - 2 <= 8
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", BEFORE_REFERENCE)
    assert len(pictures) == 3 and all((ROOT / path).is_file() for path in pictures)


def test_links_and_configs_exist():
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert targets and all((ROOT / target).exists() for target in targets)
    names = {name for name in re.findall(r"--config=(\w+)", TEXT)}
    assert names and names <= set(CONFIGS)


WORDS = re.compile(r"\blaws?\b|in the place of", re.I)


def test_plain_words():
    """`law` is the name of a field of nce_efficiency's records, and stays there."""
    allowed = {'"law"', "`law`"}
    pages = [ROOT / name for name in ("README.md", "BUILD.md", "CHANGELOG.md")]
    pages += sorted((ROOT / "results").glob("**/*.md")) + sorted((ROOT / "docs").glob("**/*.md"))
    code = sorted((ROOT / "softbench").rglob("*.py")) + sorted((ROOT / "configs").glob("*.py"))
    found = []
    for path in pages + code:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            rest = line
            for text in allowed:
                rest = rest.replace(text, "")
            if WORDS.search(rest):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
