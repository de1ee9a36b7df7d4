"""Data sets by name. Nothing here imports Keras, a backend or TensorFlow."""

import inspect

from softbench.datasets.bags import BagBatches, padded_labels
from softbench.datasets.base import LanguageData, MultiLabelData
from softbench.datasets.ptb import load_ptb
from softbench.datasets.sequences import (
    CarriedBatches,
    EvaluationBatches,
    evaluation_batches,
    unigram_perplexity,
)
from softbench.datasets.synthetic_language import SyntheticLanguage, synthetic_language
from softbench.datasets.synthetic_xmc import synthetic_xmc

__all__ = [
    "BagBatches",
    "CarriedBatches",
    "EvaluationBatches",
    "LanguageData",
    "MultiLabelData",
    "SyntheticLanguage",
    "evaluation_batches",
    "load",
    "load_ptb",
    "padded_labels",
    "synthetic_language",
    "synthetic_xmc",
    "unigram_perplexity",
]

GENERATED = {"synthetic_language": synthetic_language, "synthetic_xmc": synthetic_xmc}
FROM_FOLDER = {"ptb": load_ptb}


def load(
    name: str, *, data_dir: str | None = None, seed: int = 0, **sizes: int
) -> LanguageData | MultiLabelData:
    """Loads a data set by its registry name.

    Args:
        name: "synthetic_language", "synthetic_xmc" or "ptb".
        data_dir: folder of a data set that is read from files; generated ones ignore it.
        seed: of a generated data set; real ones ignore it.
        **sizes: arguments of the generator, such as `num_classes` or `num_train`.

    Raises:
        ValueError: for an unknown name, or sizes that the data set does not take.
        FileNotFoundError: if `data_dir` does not hold the data set.
    """
    if name in GENERATED:
        known = [k for k in inspect.signature(GENERATED[name]).parameters if k != "seed"]
        unknown = sorted(set(sizes) - set(known))
        if unknown:
            raise ValueError(
                f"`sizes` of {name!r} must be among: {', '.join(known)}. Received: {unknown}"
            )
        return GENERATED[name](seed=seed, **sizes)
    if name not in FROM_FOLDER:
        known = ", ".join(sorted(GENERATED | FROM_FOLDER))
        raise ValueError(f"`name` must be one of: {known}. Received: {name!r}")
    if sizes:
        raise ValueError(f"`sizes` cannot be chosen for {name!r}. Received: {sizes}")
    return FROM_FOLDER[name](data_dir)
