"""The TensorFlow Datasets builders under TFDS' own test case, on generated files."""

import tempfile
from pathlib import Path

import data_files
import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow Datasets needs TensorFlow", allow_module_level=True)
tfds = pytest.importorskip("tensorflow_datasets", reason="needs the extra softbench[tfds]")
pytest.importorskip("dill", reason="TFDS' test cases need the extra softbench[tfds]")
pytest.importorskip("importlib_resources", reason="TFDS needs it: the extra softbench[tfds]")

from softbench import datasets  # noqa: E402
from softbench.datasets import ptb, tfds_builders  # noqa: E402
from softbench.datasets.store import Splits  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
FILES = Path(FOLDER.name)


def write_files():
    """Every data set that the cases below read, with no row in two splits."""
    for name in ("own", "wikipedia-500k"):
        data_files.write_xmc_folder(FILES, name, size=40)
    rows = data_files.random_rows(60, 600, 12)
    text = data_files.xmc_text(rows, 600, 12)
    (FILES / "xmc" / "citeulike-t_all.txt").write_text(text)
    data_files.write_triples_folder(FILES)
    lines = "".join(f"w{i} x{i} a\n" for i in range(3000))
    data_files.write_text_folder(FILES, train=lines, test="a w1 z\n" * 5)
    for split, text in (("train", " a b \n c \n"), ("valid", " a c \n"), ("test", " b \n")):
        (FILES / f"ptb.{split}.txt").write_text(text)


write_files()


def held_out(size, valid=0.1, test=0.0):
    """Rows of train, validation and test among `size`, by the library's documented hash."""
    return np.bincount(Splits(0, valid, test)(np.arange(size)), minlength=3).tolist()


class PennTreebankMikolovTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = tfds_builders.PennTreebankMikolov
    SPLITS = {"train": 2, "validation": 1, "test": 1}
    EXAMPLE_DIR = FILES
    DL_DOWNLOAD_RESULT = ptb.FILES


class OwnFilesTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = tfds_builders.ExtremeClassification
    BUILDER_CONFIG_NAMES_TO_TEST = ["own"]
    SPLITS = {"train": held_out(40)[0], "validation": held_out(40)[1], "test": 40}
    EXAMPLE_DIR = FILES


class DenseFeaturesTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = tfds_builders.ExtremeClassification
    BUILDER_CONFIG_NAMES_TO_TEST = ["wikipedia_500k"]
    # row 1 of each file has no label
    SPLITS = {
        "train": held_out(40)[0] - (Splits(0, 0.1)(np.arange(2))[1] == 0),
        "validation": held_out(40)[1] - (Splits(0, 0.1)(np.arange(2))[1] == 1),
        "test": 39,
    }
    EXAMPLE_DIR = FILES


class OneFileTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = tfds_builders.ExtremeClassification
    BUILDER_CONFIG_NAMES_TO_TEST = ["citeulike_t"]
    SPLITS = dict(zip(("train", "validation", "test"), held_out(60, 0.1, 0.2), strict=True))
    EXAMPLE_DIR = FILES


class KnowledgeGraphTriplesTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = tfds_builders.KnowledgeGraphTriples
    SPLITS = {"train": 4, "validation": 1, "test": 2}
    EXAMPLE_DIR = FILES


class PlainTextCorpusTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = tfds_builders.PlainTextCorpus
    BUILDER_CONFIG_NAMES_TO_TEST = [
        tfds_builders.FilesConfig(
            name="half", dataset="text", options={"valid_fraction": 0.5, "split_lines": 1}
        )
    ]
    # 4 tokens a line, with <eos>
    SPLITS = {
        "train": -(-4 * held_out(3000, 0.5)[0] // 1024),
        "validation": -(-4 * held_out(3000, 0.5)[1] // 1024),
        "test": 1,
    }
    EXAMPLE_DIR = FILES


def built(builder_class, folder, **options):
    builder = builder_class(data_dir=folder, **options)
    config = tfds.download.DownloadConfig(manual_dir=str(FILES))
    builder.download_and_prepare(download_config=config)
    return builder


def test_examples_are_the_rows_of_the_library(tmp_path):
    builder = built(tfds_builders.ExtremeClassification, tmp_path, config="own")
    assert dict(builder.info.metadata) == {"num_classes": 12, "num_features": 30}
    data = datasets.load("xmc/own", data_dir=FILES)
    for split, name in (("train", "train"), ("validation", "valid"), ("test", "test")):
        found = []
        for example in tfds.as_numpy(builder.as_dataset(split=split)):
            ids, weights = example["feature_ids"].tolist(), example["feature_weights"].tolist()
            found.append((example["labels"].tolist(), list(zip(ids, weights, strict=True))))
        features, labels = getattr(data, f"{name}_features"), getattr(data, f"{name}_labels")
        expected = []
        for i in range(labels.shape[0]):
            own = slice(features.indptr[i], features.indptr[i + 1])
            pairs = zip(features.indices[own].tolist(), features.data[own].tolist(), strict=True)
            ids = labels.indices[labels.indptr[i] : labels.indptr[i + 1]]
            expected.append((ids.tolist(), list(pairs)))
        assert sorted(found) == sorted(expected)


def test_token_streams_are_those_of_the_library(tmp_path):
    options = {"split_lines": 10, "min_count": 2}
    config = tfds_builders.FilesConfig(name="short", dataset="text", options=options)
    builder = built(tfds_builders.PlainTextCorpus, tmp_path, config=config)
    data = datasets.load("text", data_dir=FILES, **options)
    assert list(builder.info.metadata["vocabulary"]) == data.vocabulary
    parts = [e["tokens"] for e in tfds.as_numpy(builder.as_dataset(split="train"))]
    np.testing.assert_array_equal(np.concatenate(parts), data.train)


def test_missing_files_tell_where_they_come_from(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"xmc/delicious_train.txt.*Repository"):
        built(tfds_builders.ExtremeClassification, tmp_path, config="delicious")
    text = tfds_builders.ExtremeClassification.MANUAL_DOWNLOAD_INSTRUCTIONS
    assert "xmc/amazon-670k: xmc/amazon-670k_train.txt" in text
