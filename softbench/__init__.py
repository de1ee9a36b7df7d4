"""Keras layers that replace `Dense(n)` and its softmax cross-entropy, for large n.

Names are loaded when first used, so that `softbench.datasets` and the benchmark's bookkeeping do
not import Keras or a backend. The first use of a class, or the import of this package after Keras,
registers all classes that Keras saves, so that `keras.saving.load_model` finds them.
"""

import importlib
import sys
from typing import Any

from softbench.common import BACKENDS

__version__ = "0.1.0"

_HOME = {
    "AdaptiveSoftmax": "softbench.heads",
    "AugmentReduce": "softbench.heads",
    "BucketedSoftmax": "softbench.heads",
    "Classifier": "softbench.classifier",
    "compare": "softbench.comparison",
    "ClassTable": "softbench.class_table",
    "EmbeddingTable": "softbench.embedding_table",
    "FullSoftmax": "softbench.heads",
    "HierarchicalSoftmax": "softbench.heads",
    "ItemTower": "softbench.item_tower",
    "NegativeSampling": "softbench.heads",
    "NoiseContrastive": "softbench.heads",
    "OneVsEach": "softbench.heads",
    "SampledHinge": "softbench.heads",
    "SampledSoftmax": "softbench.heads",
    "TiedEmbedding": "softbench.heads",
    "RowAdagrad": "softbench.rows",
    "RowAdam": "softbench.rows",
    "RowSGD": "softbench.rows",
    "predictor": "softbench.prediction",
}
_MODULES = (
    "datasets",
    "diagnostics",
    "distribution",
    "heads",
    "losses",
    "metrics",
    "models",
    "samplers",
    "serving",
)

__all__ = [*_HOME, *_MODULES, "__version__"]
_SAVED = (
    "item_tower",
    "metrics",
    "models",
    "prediction",
)  # with what these import: all that Keras saves


def _register_saved() -> None:
    for name in _SAVED:
        importlib.import_module(f"softbench.{name}")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        _register_saved()
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"softbench.{name}")
    raise AttributeError(f"module 'softbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


# On another backend `softbench.datasets` is of use all the same, and a head says what is wrong.
if "keras" in sys.modules and sys.modules["keras"].config.backend() in BACKENDS:
    _register_saved()
