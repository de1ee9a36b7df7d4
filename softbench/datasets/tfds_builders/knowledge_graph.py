"""Knowledge-graph triples (WD50K), as a TensorFlow Datasets builder."""

from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

from softbench.datasets.store import MemoryStore
from softbench.datasets.tfds_builders.manual import SPLITS, instructions, manual_files
from softbench.datasets.triples import write_triples


class KnowledgeGraphTriples(tfds.core.GeneratorBasedBuilder):
    """Triples (head, relation, tail) of ids; their names are in the metadata."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name="wd50k", description="WD50K without qualifiers.")
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = instructions("wd50k")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Predict the tail of a triple among all entities.",
            features=tfds.features.FeaturesDict(
                {name: tfds.features.Scalar(np.int64) for name in ("head", "relation", "tail")}
            ),
            supervised_keys=None,
            homepage="https://github.com/migalkin/StarE",
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        store = MemoryStore()
        write_triples(store, manual_files(self.builder_config.name, dl_manager.manual_dir))
        for name in ("entities", "relations"):
            self.info.metadata[name] = store.read_strings(name)
        return {name: self._generate_examples(store.read(split)) for name, split in SPLITS.items()}

    def _generate_examples(self, triples: np.ndarray) -> Iterator[tuple[int, dict]]:
        for number, (head, relation, tail) in enumerate(triples):
            yield number, {"head": head, "relation": relation, "tail": tail}
