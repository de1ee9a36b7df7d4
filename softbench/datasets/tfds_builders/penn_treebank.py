"""Penn Treebank as preprocessed by Mikolov, as a TensorFlow Datasets builder."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from softbench.datasets import ptb
from softbench.datasets.lines import read_text
from softbench.datasets.tfds_builders.manual import SPLITS


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
