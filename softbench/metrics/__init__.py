"""Metrics for many classes: perplexity, calibration, precision@k and its propensity-scored form.

Two forms of the ranking metrics: functions on NumPy arrays and csr truth (exact, float64, what the
benchmark reports), and `keras.metrics.Metric` classes on padded or dense truth.
"""

from softbench.metrics.at_k import (
    RankingTotals,
    class_buckets,
    inverse_propensities,
    ndcg_at_k,
    precision_at_k,
    propensity_scored_precision_at_k,
)
from softbench.metrics.calibration import expected_calibration_error
from softbench.metrics.likelihood import Perplexity, PredictiveLogLikelihood, ScorePerplexity
from softbench.metrics.precision import PrecisionAtK, PropensityScoredPrecisionAtK
from softbench.metrics.recommendation import RecommendationTotals

__all__ = [
    "Perplexity",
    "PrecisionAtK",
    "PredictiveLogLikelihood",
    "PropensityScoredPrecisionAtK",
    "RankingTotals",
    "RecommendationTotals",
    "ScorePerplexity",
    "class_buckets",
    "expected_calibration_error",
    "inverse_propensities",
    "ndcg_at_k",
    "precision_at_k",
    "propensity_scored_precision_at_k",
]
