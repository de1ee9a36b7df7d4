"""Any plain text as streams of token ids, as a TensorFlow Datasets builder."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

from softbench.datasets import catalog
from softbench.datasets.store import MemoryStore
from softbench.datasets.tfds_builders.manual import SPLITS, instructions, manual_files

CHUNK = 1024  # tokens of an example


@dataclasses.dataclass
class PlainTextConfig(tfds.core.BuilderConfig):
    """One text.

    Attributes:
        dataset: its name in softbench: "bnews", "eltec-hun", or "text" for your files.
        options: of `softbench.datasets.corpus.write_corpus`, such as `min_count`, instead of the
            data set's.
    """

    dataset: str = "text"
    options: dict = dataclasses.field(default_factory=dict)


class PlainTextCorpus(tfds.core.GeneratorBasedBuilder):
    """Consecutive pieces of a token stream; the vocabulary is in the metadata."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}
    BUILDER_CONFIGS = [
        PlainTextConfig(
            name=name.replace("-", "_"), description=catalog.ENTRIES[name].about, dataset=name
        )
        for name in ("text", "bnews", "eltec-hun")
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = instructions("text", "bnews", "eltec-hun")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"A text as ids, {CHUNK} tokens an example, in order; words outside the "
            "vocabulary are <unk>.",
            features=tfds.features.FeaturesDict({"tokens": tfds.features.Sequence(np.int64)}),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        config = self.builder_config
        options, _ = catalog.split_options(config.dataset, config.options)
        store = MemoryStore()
        files = manual_files(config.dataset, dl_manager.manual_dir)
        catalog.KINDS["corpus"].write(store, files, **options)
        self.info.metadata["vocabulary"] = store.read_strings("vocabulary")
        return {name: self._generate_examples(store.read(split)) for name, split in SPLITS.items()}

    def _generate_examples(self, tokens: np.ndarray) -> Iterator[tuple[int, dict]]:
        for start in range(0, len(tokens), CHUNK):
            yield start, {"tokens": tokens[start : start + CHUNK]}
