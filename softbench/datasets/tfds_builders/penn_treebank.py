"""Penn Treebank as preprocessed by Mikolov, as a TensorFlow Datasets builder."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from softbench.datasets import ptb
from softbench.datasets.lines import decode, read_lines


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
        paths = dl_manager.download({split: f"{ptb.URL}ptb.{split}.txt" for split in ptb.SPLITS})
        names = {"train": "train", "valid": "validation", "test": "test"}
        return {names[s]: self._generate_examples(Path(str(paths[s]))) for s in ptb.SPLITS}

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, dict]]:
        for number, raw in enumerate(read_lines(path), 1):
            yield number, {"text": decode(raw, path, number).strip()}
