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
from softbench.datasets import tfds_files  # noqa: E402


def cells(name, source, features):
    config = config_lib.plain(get_config(config_path(name)))
    config["dataset"] |= {"name": source, "features": features}
    config |= {"methods": "full"}
    return matrix.cells(own_data.named(config))


class TinyOwn(tfds.core.GeneratorBasedBuilder):
    """Ten examples for training, four for the test."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "pixels": tfds.features.Tensor(shape=(2, 2), dtype=np.uint8),
            "extra": tfds.features.Tensor(shape=(), dtype=np.float32),
            "label": tfds.features.ClassLabel(num_classes=3),
            "words": tfds.features.Text(),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(10), "test": self._generate_examples(4)}

    def _generate_examples(self, size):
        for i in range(size):
            pixels = np.full((2, 2), i, np.uint8)
            words = f"word{i}\nWord and word"
            yield i, {"pixels": pixels, "extra": -0.5 * i, "label": i % 3, "words": words}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("tfds")


@pytest.fixture
def tiny(monkeypatch, place):
    monkeypatch.setattr(tfds_files, "_builder", lambda name: TinyOwn(data_dir=place))


def loaded(name, features, folder, **changes):
    (cell,) = cells(name, "tfds:tiny_own", features)
    cell.config["dataset"].update(changes)
    cell.config["model"].update(batch_size=1, num_steps=1)
    (cell,) = own_data.read([cell], folder)
    assert cell.id.startswith("tiny_own-")
    return datasets.load(**datasets.arguments(cell.config["dataset"]), data_dir=cell.data_dir)


def test_numbers_and_a_label(tmp_path, tiny):
    data = loaded("own_xmc", "pixels,extra,label", tmp_path, allow_negative=True)
    assert (data.num_classes, data.num_features) == (3, 5)
    rows = np.sort(data.test_features.toarray(), axis=0)[::-1]
    expected = [[i / 255] * 4 + [-0.5 * (3 - i)] for i in (3, 2, 1, 0)]
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert sorted(data.test_labels.indices) == [0, 0, 1, 2]
    assert (data.train_labels.shape[0], data.valid_labels.shape[0]) == (9, 1)


def test_a_text(tmp_path, tiny):
    data = loaded("text", "words", tmp_path, min_count=1, tokenizer="whitespace")
    words = [data.vocabulary[i] for i in data.test]
    assert len(words) == 16 and words.count("and") == 4
    assert words.count("word") == 8  # two in a line of each example: all is made lower case


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
