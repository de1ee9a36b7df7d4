"""TensorFlow Datasets builders of the data sets that TFDS does not have.

    import softbench.datasets.tfds_builders
    tfds.load("penn_treebank_mikolov")
    tfds.load("extreme_classification/delicious_200k", ...)   # from files that you downloaded

Importing this module registers them; it needs TensorFlow and tensorflow-datasets. (One Billion Word
is "lm1b" of TFDS.) Their examples are those of `softbench.datasets.load`, which reads all of a set
into memory or from a prepared folder.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from softbench import datasets
from softbench.datasets import catalog, ptb
from softbench.datasets.base import Labelled
from softbench.datasets.lines import read_text

SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # TFDS' names, softbench's
CHUNK = 1024  # tokens of an example of a text


class PennTreebankMikolov(tfds.core.GeneratorBasedBuilder):
    """Lines of the three texts in order: 10,000 words, rare ones and numbers replaced."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "The files that the language-modelling papers use."}
    name = "penn_treebank_mikolov"

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Penn Treebank, Mikolov's preprocessing; one line an example, in order. "
            "A model predicts an <eos> after each line. Free for research purposes.",
            features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
            homepage=ptb.URL,
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        paths = dl_manager.download({split: ptb.URL + file for split, file in ptb.FILES.items()})
        return {
            name: self._generate_examples(Path(str(paths[split]))) for name, split in SPLITS.items()
        }

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, dict]]:
        for number, line in read_text(path, Counter()):
            yield number, {"text": line.strip()}


@dataclasses.dataclass
class FilesConfig(tfds.core.BuilderConfig):
    """A data set in files that a person has put into the manual folder.

    Attributes:
        dataset: its name in softbench, such as "xmc/delicious-200k"; "xmc/own" and "text" are your
            files.
        options: of `softbench.datasets.load`, such as `valid_fraction`, instead of the data set's.
        dense_features: D if rows of features are dense vectors of D numbers (the 512 of XML-CNN),
            else None.
    """

    dataset: str = ""
    options: dict = dataclasses.field(default_factory=dict)
    dense_features: int | None = None


def _config(dataset: str, **fields: Any) -> FilesConfig:
    name = dataset.removeprefix("xmc/").replace("-", "_")
    about = catalog.ENTRIES[dataset].about
    return FilesConfig(name=name, description=about, dataset=dataset, **fields)


def _instructions(configs: list[FilesConfig]) -> str:
    lines = ["Put the files into the manual folder under these names (or with .gz, .xz, .bz2):"]
    for config in configs:
        entry = catalog.ENTRIES[config.dataset]
        paths = ", ".join(choices[0] for choices in entry.files.values())
        lines.append(f"* {config.dataset}: {paths}; from {entry.about}")
    return "\n".join(lines)


class _FromFiles(tfds.core.GeneratorBasedBuilder):
    """A data set of softbench that is read from the manual folder.

    A subclass says which of its `FACTS` are metadata, and has `_features` and `_generate_examples`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}
    FACTS: tuple[str, ...] = ()
    IN_ORDER = False

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=type(self).__doc__,
            features=tfds.features.FeaturesDict(self._features()),
            disable_shuffling=self.IN_ORDER,
            metadata=tfds.core.MetadataDict(),
        )

    def _features(self) -> dict[str, Any]:
        raise NotImplementedError

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        config = self.builder_config
        folder = Path(str(dl_manager.manual_dir))
        data = datasets.load(config.dataset, data_dir=folder, **config.options)
        for fact in self.FACTS:
            self.info.metadata[fact] = getattr(data, fact)
        return {name: self._generate_examples(data.split(split)) for name, split in SPLITS.items()}


class ExtremeClassification(_FromFiles):
    """Many labels, of which each row has a few, and sparse or dense features.

    With the option `first_label` a row has its first one, and rows without labels are left out.
    """

    # The sets with dense features are those of Bamler & Mandt, who keep the first label.
    BUILDER_CONFIGS = [
        _config(name, options={"first_label": True}, dense_features=512)
        if entry.options.get("allow_negative")
        else _config(name)
        for name, entry in sorted(catalog.ENTRIES.items())
        if name.startswith("xmc/")
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = _instructions(BUILDER_CONFIGS)
    FACTS = ("num_classes", "num_features")

    def _features(self) -> dict[str, Any]:
        config = self.builder_config
        features = {
            "feature_ids": tfds.features.Sequence(np.int64),
            "feature_weights": tfds.features.Sequence(np.float32),
        }
        if config.dense_features:
            shape = (config.dense_features,)
            features = {"features": tfds.features.Tensor(shape=shape, dtype=np.float32)}
        if config.options.get("first_label"):
            return features | {"label": tfds.features.Scalar(np.int64)}
        return features | {"labels": tfds.features.Sequence(np.int64)}

    def _generate_examples(self, rows: Labelled) -> Iterator[tuple[int, dict]]:
        width, is_single = self.builder_config.dense_features, "label" in self.info.features
        for number in range(rows.labels.shape[0]):
            features, labels = (matrix[number] for matrix in rows)
            example = {"feature_ids": features.indices, "feature_weights": features.data}
            if width:
                dense = np.zeros(width, np.float32)
                dense[features.indices] = features.data
                example = {"features": dense}
            if not is_single:
                yield number, example | {"labels": labels.indices}
            elif labels.nnz:
                yield number, example | {"label": labels.indices[0]}


class KnowledgeGraphTriples(_FromFiles):
    """Triples of ids, the tail to be predicted; their names are in the metadata."""

    BUILDER_CONFIGS = [_config("wd50k")]
    MANUAL_DOWNLOAD_INSTRUCTIONS = _instructions(BUILDER_CONFIGS)
    FACTS = ("entities", "relations")

    def _features(self) -> dict[str, Any]:
        return {name: tfds.features.Scalar(np.int64) for name in ("head", "relation", "tail")}

    def _generate_examples(self, triples: np.ndarray) -> Iterator[tuple[int, dict]]:
        for number, (head, relation, tail) in enumerate(triples):
            yield number, {"head": head, "relation": relation, "tail": tail}


class PlainTextCorpus(_FromFiles):
    """Consecutive pieces of a token stream; words outside the vocabulary are <unk>.

    The vocabulary is in the metadata.
    """

    BUILDER_CONFIGS = [_config(name) for name in ("text", "bnews", "eltec-hun")]
    MANUAL_DOWNLOAD_INSTRUCTIONS = _instructions(BUILDER_CONFIGS)
    FACTS = ("vocabulary",)
    IN_ORDER = True

    def _features(self) -> dict[str, Any]:
        return {"tokens": tfds.features.Sequence(np.int64)}

    def _generate_examples(self, tokens: np.ndarray) -> Iterator[tuple[int, dict]]:
        for start in range(0, len(tokens), CHUNK):
            yield start, {"tokens": tokens[start : start + CHUNK]}
