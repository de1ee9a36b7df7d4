"""The commands: what they say of mistakes, their help and version, names that no record has."""

import re
import sys

import pytest
from shipped import ROOT, config_path
from small_runs import SMALL, arguments, cli, mistake

from softbench import __main__ as command
from softbench import advise, commands
from softbench.bench import config, matrix
from softbench.bench.config import ConfigError
from softbench.datasets import prepare_app
from softbench.report import app as report_app

COMMANDS = {
    "softbench": command.main,
    "softbench-advise": advise.main,
    "softbench-prepare": prepare_app.main,
    "softbench-report": report_app.main,
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--config.no_such_key=1"], "Unknown config key. --config has: backend, budget, "),
        (["--config.epoch=1"], "did you mean --config.epochs? Received: --config.epoch"),
        (["--config.timing.nope=1"], "--config.timing has: head_repetitions, warmup_steps. Rec"),
        (["--config.methods=full,nope"], "--config.methods must name methods of this config: full"),
        (["--data_dir=/no/such/folder"], "--data_dir must be an existing folder. Received: /no/"),
        (["--workdir=/proc/nowhere"], "--workdir must be a folder that can be written. Received:"),
        (["--config.epochs=three"], "--config.epochs=three"),
        (["--backend=torch"], "--backend must be `tensorflow` or `jax`. Received: 'torch'"),
        (["--config.seeds=()"], "--config.seeds must hold integers"),
        (["--config.seeds='(0,1)'"], "--config.seeds must hold integers"),
        (["--nonsense=1"], "Unknown command line flag 'nonsense'"),
        (["stray"], "Only flags are expected. Received: ['stray']"),
        (["--workdir"], "Missing value for flag --workdir"),
        (["--config=no/where.py"], "--config must be given once. Received: --config=/"),
        (["-config", "no/where.py"], "quickstart.py --config=no/where.py"),
    ],
)
def test_bad_input_is_one_line(options, expected):
    assert expected in mistake("softbench", f"--config={config_path('quickstart')}", *options)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("no_such_name", "--config must be a path or one of: adversarial, bnews, "),
        ("xmc:nope", "Received: 'nope'"),
        ("adversarial:nope", "Received: 'nope'"),
        ("ptb_rff:nope", "Received: 'nope'"),
        ("no/where.py", "--config must name a readable file. Received: no/where.py"),
    ],
)
def test_a_config_that_is_none_is_named(config, expected):
    assert expected in mistake("softbench", f"--config={config}")
    assert expected in mistake("softbench", "-config", config)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_help_and_version_and_refuses_what_is_no_flag(name, capsys):
    for line in (["--nonsense=1"], [], ["stray"]):
        mistake(name, *line, main=COMMANDS[name])
    version = re.search(r'__version__ = "(.+)"', (ROOT / "softbench" / "__init__.py").read_text())
    for flag, shown in (("--help", f"{name} --"), ("-h", f"{name} --"), ("--version", version[1])):
        with pytest.raises(SystemExit) as ended:
            COMMANDS[name]([name, flag])
        assert ended.value.code == 0 and shown in capsys.readouterr().out


def test_a_process_ends_with_the_line_and_status_2():
    said = "softbench: error: --config must name an experiment; --config= lists them.\n"
    assert cli("softbench", "--list") == (2, "", said)


def test_several_mistakes_are_a_line_each(capsys, monkeypatch):
    def main(argv):
        raise ConfigError("first\nsecond")

    monkeypatch.setattr(sys, "argv", ["softbench"])
    with pytest.raises(SystemExit) as ended:
        commands.run("softbench", main, "")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "softbench: error: first\nsoftbench: error: second\n"


def test_an_unknown_field_of_an_experiment_is_an_error():
    with pytest.raises(ConfigError, match=r"Unknown config key.*Received: .'epoch'"):
        config.experiment("x", epoch=1)


def cells(method="full", label="data"):
    space: dict = {}
    exec(SMALL, space)
    made = config.plain(space["get_config"]())
    dataset = {**made["dataset"], "label": label}
    table = {"method_table": {method: {"head": "FullSoftmax"}}, "method_order": [method]}
    return matrix.cells(made | table | {"dataset": dataset})


@pytest.mark.parametrize("names", [("a/b",), ("x" * 250,), ("a\nb",), ("full", ".hidden")])
def test_a_name_that_is_no_file_name_is_an_error(names):
    with pytest.raises(ConfigError, match="must be the name of a file: without / or control"):
        cells(*names)


@pytest.mark.parametrize("names", [("a|b",), ("full", "xmc/own"), ("é" * 70,)])
def test_other_names_are_as_before(names):
    (cell,) = cells(*names)
    assert cell.id == matrix.cell_id(cell.config)


def test_a_bad_name_is_found_before_the_folder_is_made(tmp_path):
    line = arguments(tmp_path, "")
    (tmp_path / "small.py").write_text(SMALL.replace('"broken"', '"a/b"'))
    assert "synthetic_xmc-bag-a/b-s0-" in mistake(*line) and not (tmp_path / "out").exists()
