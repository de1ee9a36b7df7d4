"""Metrics for many classes: perplexity, calibration, precision@k, and those of recommenders.

Two forms: on NumPy arrays, exact in float64, what the benchmark reports (`ranking` of users' ranked
items; `RankingTotals` of csr truth), and `keras.metrics.Metric` classes.
"""

from softbench.metrics.at_k import (
    RankingTotals,
    class_buckets,
    inverse_propensities,
)
from softbench.metrics.calibration import expected_calibration_error
from softbench.metrics.likelihood import Perplexity, ScorePerplexity
from softbench.metrics.precision import PrecisionAtK
from softbench.metrics.recommendation import RecommendationTotals, item_novelty, ranking

__all__ = [
    "Perplexity",
    "PrecisionAtK",
    "RankingTotals",
    "RecommendationTotals",
    "ScorePerplexity",
    "class_buckets",
    "expected_calibration_error",
    "inverse_propensities",
    "item_novelty",
    "ranking",
]
