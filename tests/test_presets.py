"""Presets: what each shipped config has, and that the command line wins over them."""

import pytest
from shipped import CONFIGS, ROOT, config_path, get_config

from softbench import datasets
from softbench.bench import app, matrix
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.launchers import local
from softbench.bench.tasks import TASKS

TINY = """
from softbench.bench.config import experiment

def get_config(which="a"):
    return experiment(
        "tiny",
        dataset={"name": which, "size": 100},
        seeds=(0, 1),
        epochs=7,
        problems={"p": {"model": {"name": "m", "dim": 8}}, "q": {"model": {"name": "n"}}},
        method_table={"full": {"head": "FullSoftmax"}, "half": {"head": "FullSoftmax"}},
        presets={
            "smoke": {"dataset": {"name": "generated", "num_train": 5}, "epochs": 1,
                      "methods": "full", "problems": {"p": {"model": {"name": "m", "dim": 2}}}},
            "paper": {},
        },
    )
"""


def resolved(name, preset, *selection):
    config = config_lib.plain(get_config(config_path(name), *selection)) | {"preset": preset}
    return config_lib.with_preset(config, {})


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_has_both_presets_and_they_give_cells(name):
    config = resolved(name, "")
    assert set(config["presets"]) - {"accelerator"} == {"smoke", "paper"}
    ids = {}
    for preset in ("", "smoke", "paper"):
        config = resolved(name, preset)
        config_lib.check(config)
        cells = matrix.cells(config)
        ids[preset] = [cell.id for cell in cells]
        assert len(set(ids[preset])) == len(cells) > 0
        assert all(cell.config["methods"] for cell in cells)
        if preset == "smoke":  # which reads no file
            read = [c.config for c in cells if TASKS[c.config["task"]].reads_data]
            assert {config["dataset"]["name"] for config in read} <= set(datasets.GENERATED)
    assert not set(ids["smoke"]) & set(ids[""] + ids["paper"])


@pytest.mark.parametrize(
    ("name", "chosen"), [("xmc", "wikilshtc-325k"), ("adversarial", "amazon-670k")]
)
def test_problems_after_a_colon_are_those_of_every_preset(name, chosen):
    for preset in ("", "smoke", "paper"):
        assert list(resolved(name, preset, chosen)["problems"]) == [chosen]


def test_language_rows_at_equal_time():
    config = resolved("ptb_rff", "", "equal_time")
    assert config["experiment"] == "ptb_equal_time"
    config_lib.check(config)
    cells = matrix.cells(config)
    assert {(c.config["epochs"], c.config["max_train_seconds"]) for c in cells} == {(0, 1260.0)}
    for wrong in ("equal", ""):
        with pytest.raises(config_lib.ConfigError, match="equal_time"):
            get_config(config_path("ptb_rff"), wrong)
    without_seconds = config | {"max_train_seconds": 0.0}
    with pytest.raises(config_lib.ConfigError, match="epochs must be 1 or more, or 0 with"):
        config_lib.check(without_seconds)


def test_a_cell_starts_with_the_environment_of_its_config(monkeypatch, tmp_path):
    config = resolved("ptb_rff", "smoke", "equal_time")
    given = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    cells = matrix.cells(config)
    assert all(cell.config["environment"] == given for cell in cells)
    started = []

    class Process:
        pid = 0

        def __init__(self, command, env, **kwargs):
            started.append(env)

        def poll(self):
            return 0

    monkeypatch.setattr(local.subprocess, "Popen", Process)
    with local._process(tmp_path / "job.json", cells[0]):
        pass
    assert started[0].items() >= {**given, "KERAS_BACKEND": "tensorflow"}.items()
    with pytest.raises(config_lib.ConfigError, match=r"environment must hold strings.*'A': 1"):
        config_lib.check(config | {"environment": {"A": 1}})


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return path


def parsed(path, *arguments):
    argv = app.resolved(["softbench", f"--config={path}", *arguments])
    return app.read_config(app.parse(argv))


def test_a_preset_overrides_fields_and_the_command_line_overrides_it(tiny):
    smoke = parsed(tiny, "--config.preset=smoke")
    assert smoke["dataset"] == {"name": "generated", "num_train": 5}
    assert (smoke["epochs"], smoke["methods"], smoke["seeds"]) == (1, "full", [0, 1])
    assert smoke["problems"] == {"p": {"model": {"name": "m", "dim": 2}}}
    options = ["--config.epochs=3", "--config.preset=smoke", "--config.problems.p.model.dim=4"]
    options += ["--config.methods=half", "--config.presets.smoke.dataset.num_train=6"]
    smoke = parsed(tiny, *options)
    assert (smoke["epochs"], smoke["methods"]) == (3, "half")
    assert smoke["problems"] == {"p": {"model": {"name": "m", "dim": 4}}}
    assert smoke["dataset"] == {"name": "generated", "num_train": 6}
    paper = parsed(f"{tiny}:b", "--config.preset=paper")
    assert paper == parsed(f"{tiny}:b") | {"preset": "paper"}
    assert paper["dataset"] == {"name": "b", "size": 100}


def test_the_command_line_overrides_what_a_problem_sets():
    """xmc's problems have epochs of their own; `--config.epochs` counts nevertheless."""
    path = config_path("xmc")
    assert [p["epochs"] for p in parsed(path)["problems"].values()] == [20, 10, 10, 2]
    config = parsed(path, "--config.epochs=2", "--config.methods=full,rff_rows")
    assert {cell.config["epochs"] for cell in matrix.cells(config)} == {2}
    assert {next(iter(c.config["methods"])) for c in matrix.cells(config)} == {"full", "rff_rows"}


def test_rows_to_ask_for_run_when_they_are_named():
    path = f"{config_path('xmc')}:bibtex"
    assert len(matrix.cells(parsed(path))) == 8
    (cell,) = matrix.cells(parsed(path, "--config.methods=rff_shared_rows"))
    assert "rff_shared_rows" in cell.id and "on_request" not in cell.config
    with pytest.raises(ConfigError, match=r"of the chosen problems\. Received: rff_exact"):
        config = parsed(path, "--config.preset=smoke", "--config.methods=full,rff_exact")
        matrix.cells(config)


def test_a_problem_without_the_chosen_method_has_no_cell():
    config = parsed(config_path("wall_time"), "--config.methods=rff_50_shared")
    (cell,) = matrix.cells(config)
    assert list(cell.config["methods"]) == ["rff_50_shared"]


def test_bad_presets_are_config_errors(tiny):
    allowed = "--config.preset must be empty or one of: "
    with pytest.raises(ConfigError, match=f"{allowed}paper, smoke. Received: 'small'"):
        parsed(tiny, "--config.preset=small")
    with pytest.raises(ConfigError, match=r"Unknown config key of preset 'smoke'.*problems.q"):
        parsed(tiny, "--config.preset=smoke", "--config.problems.q.model.name=x")
    known = r"`presets` may have smoke, paper, accelerator. Received: .'big'"
    with pytest.raises(ConfigError, match=known):
        config_lib.experiment("x", presets={"big": {}})
    with pytest.raises(ConfigError, match=r"A preset may set .*, dataset, .*Received: .'epoch'"):
        config_lib.experiment("x", presets={"smoke": {"epoch": 1}})
    with pytest.raises(ConfigError, match=f"{allowed}none. Received: 'smoke'"):
        config = config_lib.plain(config_lib.experiment("x", preset="smoke"))
        config_lib.with_preset(config, {})


def test_a_task_is_given_what_it_reads(tiny):
    """`options` say what is measured, `timing` how times are; once all stood under `timing`."""
    fields = {"method_table": {"full": {"head": "FullSoftmax"}}, "dataset": {"name": "x"}}

    def check(**more):
        config_lib.check(config_lib.plain(config_lib.experiment("x", **fields, **more)))

    options, times = {"pairs": 50}, {"rounds": 1, "block": 2, "max_seconds": 1.0}
    check(task="kernel_mse", options=options)
    check(task="wall_time", timing=times)
    with pytest.raises(ConfigError, match=r"config.options of task 'train'.*Received: .'pairs'"):
        check(options=options)
    with pytest.raises(ConfigError, match=r"config.options of task 'step_time'.*'pairs'"):
        check(task="step_time", timing=times, options=options)
    with pytest.raises(
        ConfigError, match=r"config.timing of task 'kernel_mse' .config.options.*'pairs'"
    ):
        check(task="kernel_mse", timing=options)
    with pytest.raises(ConfigError, match=r"config.timing of task 'train'.*Received: .'rounds'"):
        check(timing={"warmup_steps": 1, "rounds": 3})
    with pytest.raises(ConfigError, match=r"config.timing of task 'kernel_mse'.*'warmup_steps'"):
        config_lib.check(parsed(tiny, "--config.task=kernel_mse", "--config.timing.warmup_steps=1"))


def bare(*arguments):
    return app.resolved(["softbench", *arguments])[1:]


def test_a_bare_name_is_a_shipped_config(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    quickstart, xmc = config_path("quickstart"), config_path("xmc")
    assert bare("--config=quickstart", "--list") == [f"--config={quickstart}", "--list"]
    assert bare("--config=xmc:bibtex") == [f"--config={xmc}:bibtex"]
    assert bare("--config", "xmc") == [f"--config={xmc}"]
    assert bare("--config", "xmc", "--backend", "jax") == [f"--config={xmc}", "--backend=jax"]
    path = "--config=configs/quickstart.py"
    assert bare(path) == [path] and bare("--config") == ["--config"]
    (tmp_path / "xmc").mkdir()
    assert bare("--config=xmc") == [f"--config={xmc}"]
    assert parsed("xmc:bibtex")["problems"].keys() == {"bibtex"}
    assert app._command(app.resolved(["", "--config=quickstart"])).endswith(f" {path}")


def test_no_name_lists_the_configs(capsys):
    assert app.main(["softbench", "--config="], None) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == CONFIGS
    assert lines[CONFIGS.index("top_k")] == (
        "top_k: The 10 best of a million classes: how many of them an index finds, and how fast"
    )


def test_smoke_results_lie_apart_and_are_not_committed():
    assert str(app.default_workdir({"preset": "", "experiment": "x"})) == "results/x"
    assert str(app.default_workdir({"preset": "paper", "experiment": "x"})) == "results/x"
    assert str(app.default_workdir({"preset": "smoke", "experiment": "x"})) == "smoke_results/x"
    assert "smoke_results/" in (ROOT / ".gitignore").read_text().splitlines()
