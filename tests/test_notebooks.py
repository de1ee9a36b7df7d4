"""The notebooks run from the first cell to the last, and their models reach what they should.

The site's workflow runs them. Pages of docs/ have the same models as programs.
"""

import json
import os
import re
import sys

import pytest
from shipped import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
# What a notebook's model must reach: a chain of 8 followers, 9 in 10 events that follow an order.
REACHED = {
    "language_model": "assert perplexity['full'] < 20 and perplexity['sampled'] < 20",
    "recommender": "assert recall > 0.5",
}


def test_every_notebook_begins_with_the_installation_and_holds_no_outputs():
    assert {path.stem for path in NOTEBOOKS} == set(REACHED)
    (url,) = re.findall('^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert "".join(code[0]["source"]) == (
            f'%pip install --quiet "softbench[tensorflow] @ git+{url}"'
        )
        assert code[0]["metadata"] == {"tags": ["install"]}
        assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    """In a kernel, as a person runs it, but for the installation."""
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(REACHED[path.stem]))
    client = nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        skip_cells_with_tag="install",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
