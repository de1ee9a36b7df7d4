"""Data in the format of the Extreme Classification Repository, as a TensorFlow Datasets builder."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from softbench.datasets import catalog
from softbench.datasets.store import Splits
from softbench.datasets.tfds_builders.manual import SPLITS, instructions, manual_files
from softbench.datasets.xmc import write_xmc
from softbench.datasets.xmc_format import XMCFile

_SETS = sorted(name for name in catalog.ENTRIES if name.startswith("xmc/"))


@dataclasses.dataclass
class ExtremeClassificationConfig(tfds.core.BuilderConfig):
    """One data set.

    Attributes:
        dataset: its name in softbench, such as "xmc/delicious-200k"; "xmc/own" is your files.
        dense_features: D if rows are dense vectors of D features (the 512 of XML-CNN), else None.
        first_label: keep the first label only (Bamler & Mandt); rows without one are left out.
        valid_fraction, test_fraction, split_seed, first_id: as for `softbench-prepare`.
    """

    dataset: str = "xmc/own"
    dense_features: int | None = None
    first_label: bool = False
    valid_fraction: float = write_xmc.__kwdefaults__["valid_fraction"]
    test_fraction: float = write_xmc.__kwdefaults__["test_fraction"]
    split_seed: int = 0
    first_id: int = 0


def _config(dataset: str) -> ExtremeClassificationConfig:
    allow_negative = catalog.ENTRIES[dataset].options.get("allow_negative", False)
    return ExtremeClassificationConfig(
        name=dataset.removeprefix("xmc/").replace("-", "_"),
        description=catalog.ENTRIES[dataset].about,
        dataset=dataset,
        dense_features=512 if allow_negative else None,
        first_label=allow_negative,
    )


class ExtremeClassification(tfds.core.GeneratorBasedBuilder):
    """Rows with a set of labels and sparse or dense features."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}
    BUILDER_CONFIGS = [_config(name) for name in _SETS]
    MANUAL_DOWNLOAD_INSTRUCTIONS = instructions(*_SETS)

    def _info(self) -> tfds.core.DatasetInfo:
        config = self.builder_config
        labels = {"labels": tfds.features.Sequence(np.int64)}
        features = {
            "feature_ids": tfds.features.Sequence(np.int64),
            "feature_weights": tfds.features.Sequence(np.float32),
        }
        if config.first_label:
            labels = {"label": tfds.features.Scalar(np.int64)}
        if config.dense_features:
            shape = (config.dense_features,)
            features = {"features": tfds.features.Tensor(shape=shape, dtype=np.float32)}
        return tfds.core.DatasetInfo(
            builder=self,
            description="Extreme classification: many labels, each row has a few of them.",
            features=tfds.features.FeaturesDict({**labels, **features}),
            homepage=catalog.REPOSITORY,
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        config = self.builder_config
        files = manual_files(config.dataset, dl_manager.manual_dir)
        test_fraction = config.test_fraction if "all" in files else 0.0
        splits = Splits(config.split_seed, config.valid_fraction, test_fraction)
        generators = {}
        for index, (name, split) in enumerate(SPLITS.items()):
            role = split if split in files else next(r for r in ("train", "all") if r in files)
            chosen = None if role == "test" else splits
            generators[name] = self._generate_examples(files[role], chosen, index)
        return generators

    def _generate_examples(
        self, path: Path, splits: Splits | None, split: int
    ) -> Iterator[tuple[int, dict]]:
        """Yields the rows of a file that `splits` gives to the split, or all."""
        config = self.builder_config
        options = catalog.ENTRIES[config.dataset].options
        file = XMCFile(path, config.first_id, options.get("allow_negative", False))
        self.info.metadata["num_classes"] = file.num_labels
        self.info.metadata["num_features"] = file.num_features
        start = 0
        for features, labels in file.blocks():
            size = labels.shape[0]
            chosen = np.arange(size)
            if splits is not None:
                chosen = np.flatnonzero(splits(start + chosen) == split)
            for row in chosen:
                row_labels = labels.indices[slice(*labels.indptr[row : row + 2])]
                bag = slice(*features.indptr[row : row + 2])
                if not config.first_label or len(row_labels):
                    example = self._example(row_labels, features.indices[bag], features.data[bag])
                    yield start + int(row), example
            start += size

    def _example(self, labels: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        config = self.builder_config
        target = {"label": labels[0]} if config.first_label else {"labels": labels}
        if not config.dense_features:
            return {**target, "feature_ids": ids, "feature_weights": weights}
        dense = np.zeros(config.dense_features, np.float32)
        dense[ids] = weights
        return {**target, "features": dense}
