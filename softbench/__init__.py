"""Keras layers that replace `Dense(n)` and its softmax cross-entropy, for large n.

Names are loaded when first used, so that `softbench.datasets` and the benchmark's own
bookkeeping do not import Keras or a backend. What a saved model is made of is loaded with Keras,
before or after: `keras.saving.load_model` finds it by its registered name.
"""

import importlib
from typing import Any

from softbench import registration

__version__ = "0.1.0"

_HOME = {
    "AdaptiveSoftmax": "softbench.heads",
    "AugmentReduce": "softbench.heads",
    "BucketedSoftmax": "softbench.heads",
    "Classifier": "softbench.classifier",
    "compare": "softbench.comparison",
    "ClassTable": "softbench.class_table",
    "FullSoftmax": "softbench.heads",
    "HierarchicalSoftmax": "softbench.heads",
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
    "callbacks",
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


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"softbench.{name}")
    raise AttributeError(f"module 'softbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


registration.register_after_keras()
