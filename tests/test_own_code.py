"""Models, samplers, heads and callbacks of the user's own, and what is said of mistakes."""

import importlib.util
import json
import sys

import pytest
from shipped import CONFIGS, config_path
from small_runs import BACKEND, cli

from softbench import __main__ as command
from softbench.bench import app, environment, listing, matrix, records, runner
from softbench.bench.config import ConfigError
from softbench.bench.training import checks

MODULE = """
import pathlib

import keras
import numpy as np

import softbench
from softbench.samplers import StaticSampler


def make_encoder(data, batch_size, num_steps, units, seed):
    tokens = keras.Input(batch_shape=(batch_size, num_steps), dtype="int32")
    return keras.Model(tokens, keras.layers.Embedding(data.num_classes, units)(tokens))


def make_nothing(data):
    return None


@keras.saving.register_keras_serializable("mine")
class InverseSquare(StaticSampler):
    def class_weights(self, units):
        return np.arange(1.0, units + 1) ** -2


class MyHead(softbench.SampledSoftmax):
    pass


class Counting(keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self.path, self.steps = pathlib.Path(path), 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self.path.write_text(str(self.steps))
"""
CONFIG = """
from softbench.bench.config import experiment

def get_config():
    sampler = {{"class_name": "my_code:InverseSquare", "config": {{"share_draws": True}}}}
    registered = {{"class_name": "mine>InverseSquare", "config": {{}}}}
    return experiment(
        "own",
        dataset={{"name": "text", "path": "my.txt", "split_lines": 0, "tokenizer": "words"}},
        model={{"name": "my_code:make_encoder", "units": 4, "batch_size": 4, "num_steps": 5}},
        optimizer={{"name": "sgd", "learning_rate": 0.1}},
        method_table={{
            "own": {{"head": "my_code:MyHead", "kwargs": {{"num_sampled": 8, "sampler": {{
                "class_name": "mixed",
                "config": {{"first": sampler, "second": registered, "num_sampled": (4, 4)}}}}}}}},
            "full": {{"head": "FullSoftmax"}},
        }},
        imports=("my_code",),
        callbacks=({{"class_name": "my_code:Counting", "config": {{"path": "{counted}"}}}},),
        timing={{"warmup_steps": 2, "head_repetitions": 0}},
        columns=("test_perplexity",),
    )
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a module and a config, as that in which a user starts the command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_code", raising=False)
    (tmp_path / "my_code.py").write_text(MODULE)
    lines = [" ".join(f"w{chr(97 + (i * j) % 26)}" for j in range(1, 9)) for i in range(60)]
    (tmp_path / "my.txt").write_text("\n".join(lines))
    (tmp_path / "own.py").write_text(CONFIG.format(counted=tmp_path / "counted"))
    return ["softbench", "--config=own.py", "--workdir=out", f"--backend={BACKEND}"]


@pytest.mark.thorough
def test_from_a_file_to_a_table_with_model_head_sampler_and_callback_of_the_users_own(
    own, tmp_path, capsys
):
    line = [*own, "--config.methods=own", "--config.dataset.path=" + str(tmp_path / "my.txt")]
    assert command.main(line) == 0
    shown = capsys.readouterr().out
    assert "holds: 27 classes, 540 examples" in shown
    assert "split: 486 train, 27 valid, 27 test" in shown
    assert "| own" in shown and "(most frequent)" in shown
    (record,) = records.read_all(tmp_path / "out")
    assert record["cell"].startswith("my-make_encoder-own-s0-")
    assert 20 < record["num_classes"] <= 28 and record["final"]["test_perplexity"] < 100
    assert record["data"] == record["config"]["dataset"]["digest"]
    assert record["command"].endswith("--config.methods=own --config.dataset.path=my.txt")
    assert str(tmp_path) not in json.dumps(
        {**record, "config": {**record["config"], "callbacks": 0}}
    )
    assert (tmp_path / "counted").read_text() == str(record["curve"][-1]["step"]) == "24"
    assert command.main(line) == 0
    assert "(kept)" in capsys.readouterr().out


MISTAKEN = """
            "full": {"head": "FullSoftmax"},
            "argument": {"head": "SampledSoftmax", "kwargs": {"num_smpled": 8}},
            "class": {"head": "SampledSoftmx"},
            "rate": {"head": "FullSoftmax", "optimizer": {"lr": 0.1}},
            "field": {"head": "FullSoftmax", "kwarg": {}},
            "sampler": {"head": "SampledSoftmax", "kwargs": {"sampler": "unifrom"}},
            "nested": {"head": "SampledSoftmax", "kwargs": {"sampler": {
                "class_name": "unigram", "config": {"count": "train"}}}},
            "rows": {"head": "FullSoftmax", "kwargs": {"row_optimizer": {
                "name": "adagrad", "rate": 0.1}}},
            "own_class": {"head": "my_code:MyHed"},"""


def test_mistakes_are_found_in_all_cells(own, tmp_path):
    text = (tmp_path / "own.py").read_text()
    (tmp_path / "own.py").write_text(text.replace('"full": {"head": "FullSoftmax"},', MISTAKEN))
    values = app.parse([*own[:2], "--config.callbacks=()"])
    cells = matrix.cells(app.read_config(values))
    place = "config.method_table"
    *found, last = checks.mistakes([cell.config for cell in cells])
    assert found == [
        f"{place}.argument: SampledSoftmax has no argument 'num_smpled'; did you mean "
        "'num_sampled'?",
        f"{place}.class.head: 'SampledSoftmx' is no head of softbench; did you mean "
        "'SampledSoftmax'?",
        f"{place}.rate.optimizer: SGD has no argument 'lr'; did you mean 'learning_rate'?",
        f"{place}.field: a method has no argument 'kwarg'; did you mean 'kwargs'?",
        f"{place}.sampler.sampler: 'unifrom' is no sampler; did you mean 'uniform'?",
        f"{place}.nested.sampler: sampler 'unigram' has no argument 'count'; did you mean "
        "'counts'?",
        f"{place}.rows.row_optimizer: adagrad has no argument 'rate'; did you mean "
        "'learning_rate'?",
    ]
    assert last.startswith(f"{place}.own_class.head: `head` must be module:name, found from the")


@pytest.mark.thorough
def test_mistakes_end_the_run_before_any_cell(own, tmp_path):
    """A process as of a user: the first cell looks, and nothing is recorded."""
    path = tmp_path / "own.py"
    text = path.read_text().replace("FullSoftmax", "FullSoftmx")
    path.write_text(text)
    code, _, errors = cli(*own, cwd=tmp_path)
    said = "config.method_table.full.head: 'FullSoftmx' is no head of softbench; did you mean "
    assert (code, errors) == (2, f"softbench: error: {said}'FullSoftmax'?\n")
    assert list((tmp_path / "out" / "runs").iterdir()) == []
    assert not list((tmp_path / "out" / "partial").glob("*.job.json"))


def cell(**changes):
    config = {"methods": {"full": {"head": "FullSoftmax"}}, "model": {"name": "bag"}}
    return {**config, "optimizer": {"name": "adam", "learning_rate": 0.1}, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"model": {"name": "lsmt"}},
            "config.model.name: 'lsmt' is no model; did you mean 'lstm'?",
        ),
        ({"model": {"name": "no_module:f"}}, "config.model.name: `model.name` must be module:name"),
        ({"imports": ["no_module"]}, "config.imports: 'no_module' cannot be imported: No module"),
        ({"callbacks": ["no_module:C"]}, "config.callbacks: `callbacks` must be module:name"),
        ({"optimizer": {}}, "config.optimizer must have a name"),
        ({"optimizer": {"name": "adamm"}}, "config.optimizer: Keras has no optimizer 'adamm'"),
        ({"optimizer": {"name": "adam"}}, "config.optimizer must have a learning_rate"),
    ],
)
def test_a_mistake_is_one_line(changes, words):
    (line,) = checks.mistakes([cell(**changes)])
    assert line.startswith(words)


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_methods_are_no_mistakes(name):
    values = app.parse(["softbench", f"--config={config_path(name)}"])
    found = matrix.cells(app.read_config(values) | {"methods": ""})
    assert checks.mistakes([cell.config for cell in found if cell.config["task"] == "train"]) == []


def test_an_encoder_that_is_none_says_so(own):
    from softbench import datasets
    from softbench.bench.training import own_model

    data = datasets.synthetic_language(num_classes=9, num_train=20, num_valid=9, num_test=9)
    config = {"model": {"name": "my_code:make_nothing"}, "seed": 0}
    with pytest.raises(ValueError, match=r"my_code:make_nothing must return.*Received: NoneType"):
        own_model.encoder(data, config)


def test_the_table_of_cells_and_the_ids_for_scripts(own, tmp_path, capsys, monkeypatch):
    assert app.main([*own, "--list"], None) == 0
    ids = capsys.readouterr().out.split()
    assert len(ids) == 2
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert app.main([*own, "--list"], None) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    expected = ["#", "data", "set", "model", "method", "seed", "backend", "status", "cell"]
    assert head.split() == expected
    for number, (line, method, own_id) in enumerate(zip(lines, ["own", "full"], ids, strict=True)):
        parts = [str(number + 1), "my", "make_encoder", method, "0", BACKEND]
        assert line.split() == [*parts, "-", own_id]
    assert listing.table([], tmp_path).split() == expected


def test_a_backend_that_is_not_installed_names_what_installs_it(own, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        environment.importlib.util,
        "find_spec",
        lambda name: None if name == BACKEND else find(name),
    )
    with pytest.raises(ConfigError) as error:
        app.main(own, None)
    assert f"pip install 'softbench[{BACKEND}]'" in str(error.value)
    assert list((tmp_path / "out" / "runs").iterdir()) == []


def test_what_to_do_about_a_record_that_is_not_ok(tmp_path):
    path = tmp_path / "x.json"
    config = {"task": "train", "dataset": {}, "methods": {}}
    record = {"schema_version": 1, "cell": "x", "config": config, "status": "nan"}
    records.write_json(path, record | {"error": "a\nb: c\n"})
    retry = f"    {path}: --retry_failed runs this cell again"
    assert runner._what_to_do(path) == f"    b: c\n{retry}"
    records.write_json(path, record | {"error": None})
    assert runner._what_to_do(path) == retry
