"""TensorFlow Datasets builders of the data sets that TFDS does not have.

    import softbench.datasets.tfds_builders
    tfds.load("penn_treebank_mikolov")
    tfds.load("extreme_classification/delicious_200k", ...)   # from files that you downloaded

Importing this package registers them; it needs TensorFlow and tensorflow-datasets. (One Billion
Word is "lm1b" of TFDS.) They use the readers of `softbench.datasets`, so an example is the row
that `softbench-prepare` writes; softbench itself trains from those folders, on JAX too.
"""

from softbench.datasets.tfds_builders.extreme_classification import (
    ExtremeClassification,
    ExtremeClassificationConfig,
)
from softbench.datasets.tfds_builders.knowledge_graph import KnowledgeGraphTriples
from softbench.datasets.tfds_builders.penn_treebank import PennTreebankMikolov
from softbench.datasets.tfds_builders.plain_text import PlainTextConfig, PlainTextCorpus

__all__ = [
    "ExtremeClassification",
    "ExtremeClassificationConfig",
    "KnowledgeGraphTriples",
    "PennTreebankMikolov",
    "PlainTextConfig",
    "PlainTextCorpus",
]
