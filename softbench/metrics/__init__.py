"""Metrics for many classes: perplexity, calibration, precision@k and its propensity-scored form.

Two forms: `RankingTotals` on NumPy arrays and csr truth (exact, float64, what the benchmark
reports), and `keras.metrics.Metric` classes.
"""

from softbench.metrics.at_k import (
    RankingTotals,
    class_buckets,
    inverse_propensities,
)
from softbench.metrics.calibration import expected_calibration_error
from softbench.metrics.likelihood import Perplexity, ScorePerplexity
from softbench.metrics.precision import PrecisionAtK
from softbench.metrics.recommendation import RecommendationTotals

__all__ = [
    "Perplexity",
    "PrecisionAtK",
    "RankingTotals",
    "RecommendationTotals",
    "ScorePerplexity",
    "class_buckets",
    "expected_calibration_error",
    "inverse_propensities",
]
