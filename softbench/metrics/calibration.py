"""Expected calibration error of the best class, in NumPy float64.

Shape letters: N examples.
"""

import numpy as np

from softbench.common import check_positive

BINS = 15


def expected_calibration_error(
    confidence: np.ndarray, correct: np.ndarray, bins: int = BINS
) -> float:
    """The mean distance between what a model says of its best class and how often it is right.

    ECE = sum over bins of (share of the examples in it) |mean confidence - mean of `correct`|. The
    bins hold equally many examples, in the order of their confidence; examples of equal confidence
    are in one bin. A bin of s examples adds about sqrt(p (1 - p) / s) of noise even to a perfect
    model: 0.004 for 15 bins of 10,000 examples and p = 0.1.

    Args:
        confidence: (N,), probability of the best class of each example.
        correct: (N,), 1 where that class is the label, else 0; or the share of the labels that it
            is, where an example has several.
        bins: how many bins.

    Returns:
        In [0, 1]; NaN where an entry is, or without examples.

    Raises:
        ValueError: if the shapes differ, or `bins` is below 1.

    Reference: Guo et al. (2017), eq. 3, whose bins are of equal width; of equal mass as in Nguyen &
    O'Connor (2015).

    Example:
        >>> softbench.metrics.expected_calibration_error([0.5, 0.5, 0.75, 0.75], [0, 1, 1, 1], 2)
        0.125
    """
    check_positive(bins=bins)
    confidence, correct = (np.asarray(x, np.float64) for x in (confidence, correct))
    if confidence.ndim != 1 or confidence.shape != correct.shape:
        raise ValueError(
            "`confidence` and `correct` must have one shape (examples,). "
            f"Received: shapes {confidence.shape} and {correct.shape}"
        )
    order = np.argsort(confidence, kind="stable")
    ordered = confidence[order]
    bin_of = np.searchsorted(ordered, ordered) * bins // max(len(order), 1)
    gaps = np.bincount(bin_of, ordered - correct[order])
    return float(np.abs(gaps).sum() / len(order)) if len(order) else float("nan")
