"""Any set of TensorFlow Datasets as the user's own files, with TFDS' mock data."""

import keras
import numpy as np
import pytest
from shipped import config_path, get_config

if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow Datasets needs TensorFlow", allow_module_level=True)
tfds = pytest.importorskip("tensorflow_datasets", reason="needs the extra softbench[tfds]")
pytest.importorskip("importlib_resources", reason="TFDS needs it: the extra softbench[tfds]")

from softbench import datasets  # noqa: E402
from softbench.bench import config as config_lib  # noqa: E402
from softbench.bench import matrix, own_data  # noqa: E402
from softbench.bench.config import ConfigError  # noqa: E402


def cells(name, source, features):
    config = config_lib.plain(get_config(config_path(name)))
    config["dataset"] |= {"name": source, "features": features}
    config |= {"methods": "full"}
    return matrix.cells(own_data.named(config))


def loaded(name, source, features, folder, **changes):
    (cell,) = cells(name, source, features)
    cell.config["dataset"].update(changes)
    (cell,) = own_data.read([cell], folder)
    return datasets.load(**datasets.arguments(cell.config["dataset"]), data_dir=cell.data_dir)


def test_a_label_and_numbers(tmp_path):
    with tfds.testing.mock_data(num_examples=10):
        data = loaded("own_xmc", "tfds:mnist", "image,label", tmp_path)
        expected = list(tfds.as_numpy(tfds.load("mnist", split="test")))
    assert (data.num_classes, data.num_features) == (10, 784)
    images = np.stack([example["image"].reshape(-1) / 255 for example in expected])
    np.testing.assert_allclose(data.test_features.toarray(), images, rtol=1e-6)
    assert data.test_labels.indices.tolist() == [int(example["label"]) for example in expected]
    assert data.train_labels.shape[0] + data.valid_labels.shape[0] == 10


def test_a_text(tmp_path):
    model = {"min_count": 1}
    with tfds.testing.mock_data(num_examples=60):
        (cell,) = cells("text", "tfds:ag_news_subset", "description")
        cell.config["model"].update(batch_size=2, num_steps=2)
        cell.config["dataset"].update(model)
        (cell,) = own_data.read([cell], tmp_path)
        data = datasets.load(**datasets.arguments(cell.config["dataset"]), data_dir=cell.data_dir)
        expected = list(tfds.as_numpy(tfds.load("ag_news_subset", split="test")))
    assert cell.id.startswith("ag_news_subset-lstm-full-")
    words = " ".join(example["description"].decode() for example in expected).lower()
    assert len(data.test) == len("".join(c if c.isalpha() else " " for c in words).split())


@pytest.mark.parametrize(
    ("name", "source", "features", "words"),
    [
        ("own_xmc", "tfds:mnist", "image", r"must be features of numbers .*it has: image, label"),
        ("text", "tfds:mnist", "txt", r"`features` of tfds:mnist must be one feature, a text"),
        ("text", "tfds:no_such_set", "text", r"must be a set of TFDS\. Received: 'tfds:no_such_se"),
        ("triples", "tfds:mnist", "image", r"can be read as: interactions, text, xmc"),
        ("quickstart", "tfds:mnist", "image", r"tfds:\.\.\. is for the configs interactions, text"),
    ],
)
def test_what_cannot_be_read_is_one_line(name, source, features, words):
    with pytest.raises(ConfigError, match=words):
        cells(name, source, features)
