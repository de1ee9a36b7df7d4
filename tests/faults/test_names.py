"""Names that no record can have are refused before any cell runs."""

import pytest
from faults import SMALL, arguments, cli

from softbench.bench import matrix
from softbench.bench.config import ConfigError, plain


def cells(method="full", label="data"):
    space: dict = {}
    exec(SMALL, space)
    config = plain(space["get_config"]())
    row = {method: {"head": "FullSoftmax"}}
    dataset = {**config["dataset"], "label": label}
    config |= {"method_table": row, "method_order": [method], "dataset": dataset}
    return matrix.cells(config)


@pytest.mark.parametrize("names", [("a/b",), ("x" * 250,), ("a\nb",), ("full", ".hidden")])
def test_a_name_that_is_no_file_name_is_an_error(names):
    with pytest.raises(ConfigError, match="must be the name of a file: without / or control"):
        cells(*names)


@pytest.mark.parametrize("names", [("a|b",), ("full", "xmc/own"), ("é" * 70,)])
def test_other_names_are_as_before(names):
    (cell,) = cells(*names)
    assert cell.id == matrix.cell_id(cell.config)


def test_the_command_says_so_in_one_line(tmp_path):
    argv = arguments(tmp_path, "")
    path = tmp_path / "small.py"
    path.write_text(SMALL.replace('"broken"', '"a/b"'))
    code, _, errors = cli(*argv)
    assert (code, len(errors.splitlines())) == (2, 1)
    assert "synthetic_xmc-bag-a/b-s0-" in errors and not (tmp_path / "out").exists()
