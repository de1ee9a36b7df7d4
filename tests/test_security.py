"""Loading a model or a record runs no code, and what is downloaded is what it should be."""

import csv
import json
import re
import shutil
import zipfile

import keras
import numpy as np
import pytest
from conftest import to_numpy
from test_imports import MODULES, PACKAGE

from softbench import Classifier, SampledSoftmax
from softbench.datasets import ptb

SOURCES = {name: path.read_text() for name, path in MODULES.items()}
UNSAFE = r"safe_mode=(?!True)|allow_pickle=(?!False)|enable_unsafe|__import__"
UNSAFE = re.compile(UNSAFE + r"|np\.load\((?!.*allow_pickle=False)")


def test_no_text_becomes_code():
    """ruff refuses eval, exec, pickle and shells; nothing turns safe mode off or reads objects."""
    found = {name: UNSAFE.findall(source) for name, source in SOURCES.items()}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_only_penn_treebank_is_downloaded_and_each_file_has_its_checksum():
    """By `download_ptb`, which compares it, and by TFDS, which compares it with its table."""

    def users(call):
        return {name for name, source in SOURCES.items() if re.search(call, source)}

    assert users(r"urlopen\(|(?<!dl_manager\.)(?<!def )\bdownload\(") == {"softbench.datasets.ptb"}
    builders = {"softbench.datasets.tfds_builders"}
    assert users(r"dl_manager\.download\(") == builders
    with (PACKAGE / "datasets/checksums.tsv").open() as file:
        known = {url: digest for url, _, digest, _ in csv.reader(file, delimiter="\t")}
    assert known == {ptb.URL + ptb.FILES[split]: ptb.SHA256[split] for split in ptb.FILES}
    with pytest.raises(ValueError, match="is not the known file"):
        ptb._check(b"another text", "train", "elsewhere")


@keras.saving.register_keras_serializable("softbench_tests")
class Scaled(SampledSoftmax):
    """A head of one's own."""

    def training_loss(self, hidden, *args, **side):
        return super().training_loss(2.0 * hidden, *args, **side)


def saved(path, model):
    model.save(path)
    return path


@pytest.fixture
def classifier(tmp_path):
    encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model = Classifier(encoder, Scaled(5, "uniform", 4))
    model(np.zeros((2, 3), "float32"))
    return model, saved(tmp_path / "model.keras", model)


def test_a_head_of_ones_own_loads_in_safe_mode(classifier):
    model, path = classifier
    loaded = keras.models.load_model(path, safe_mode=True)
    assert type(loaded.head) is Scaled
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(to_numpy(loaded(x)), to_numpy(model(x)))


def replaced(config, name, value):
    """A config with every entry `name` replaced."""
    if isinstance(config, dict):
        return {k: value if k == name else replaced(v, name, value) for k, v in config.items()}
    return [replaced(v, name, value) for v in config] if isinstance(config, list) else config


@pytest.mark.parametrize("place", ["sampler", "row_optimizer", "encoder", "kernel_initializer"])
def test_a_lambda_in_a_saved_model_is_refused(classifier, tmp_path, place):
    """A file whose config was changed by hand: the code in it does not run."""
    ran = tmp_path / "ran"
    path, bad = str(ran), tmp_path / "bad.keras"
    layer = keras.layers.Lambda(lambda x: (open(path, "w").close(), x)[1])
    shutil.copy(classifier[1], bad)
    with zipfile.ZipFile(classifier[1]) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    lambda_config = keras.saving.serialize_keras_object(layer)
    config = replaced(json.loads(parts["config.json"]), place, lambda_config)
    with zipfile.ZipFile(bad, "w") as archive:
        for name, content in parts.items():
            changed = json.dumps(config).encode() if name == "config.json" else content
            archive.writestr(name, changed)
    with pytest.raises((ValueError, TypeError), match=r"safe_mode|[Ll]ambda|unsafe"):
        keras.models.load_model(bad)
    assert not ran.exists()
