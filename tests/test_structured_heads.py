"""Hierarchical and adaptive softmax: against NumPy float64, for all their options."""

import keras
import numpy as np
import pytest
import reference
from conftest import compiled, gradient_function, thorough_but, to_numpy
from head_zoo import LEAVES, arrays, built, numpy_scores
from small import assert_all_close, labels_below, training, vectors

from softbench import (
    AdaptiveSoftmax,
    HierarchicalSoftmax,
    RowAdagrad,
    RowAdam,
    RowSGD,
    partition,
    streaming,
)
from softbench.heads import adaptive

B, D = 9, 4


def batch(n):
    return vectors(B, D), labels_below(n, B)


def everything(head):
    """Scores, likelihood, training loss and top 3 of a head, compiled."""

    def call(hidden, labels):
        top = head.top_k(hidden, min(3, head.units))
        nll, loss = head(hidden, labels), head(hidden, labels, training=True)
        return head(hidden), nll, loss, *top

    return compiled(call, head)


def assert_is_the_model(head, n):
    hidden, labels = batch(n)
    expected = numpy_scores(head, hidden)
    np.testing.assert_allclose(np.exp(expected).sum(-1), 1.0, rtol=1e-9)
    scores, nll, loss, best, ids = (to_numpy(x) for x in everything(head)(hidden, labels))
    np.testing.assert_allclose(np.exp(scores.astype(float)).sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    exact = -expected[np.arange(B), labels]
    np.testing.assert_allclose(nll, exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, exact, rtol=1e-4, atol=1e-5)
    best_expected, ids_expected = reference.top_k(expected, min(3, n))
    np.testing.assert_array_equal(ids, ids_expected)
    np.testing.assert_allclose(best, best_expected, rtol=1e-4, atol=1e-5)


SIZES = [(1, "ids"), (5, "permuted"), (8, "ids"), (1000, "permuted")]


@pytest.mark.parametrize(("n", "order"), thorough_but(SIZES, *SIZES[:3]))
def test_hierarchical_is_its_formula_and_sums_to_one(n, order):
    leaf_order = np.random.default_rng(n).permutation(n) if order == "permuted" else None
    assert_is_the_model(built(HierarchicalSoftmax(n, leaf_order)), n)


def test_hierarchical_with_given_leaves():
    """Nodes with no class on one side, above the last level too, on either side."""
    n = len(LEAVES)
    head = built(HierarchicalSoftmax(n, LEAVES))
    np.testing.assert_array_equal(to_numpy(head.leaves), LEAVES)
    assert_is_the_model(head, n)
    packed = np.array([4, 5, 6, 7, 0])  # the left half of the tree has one class
    assert_is_the_model(built(HierarchicalSoftmax(5, packed)), 5)


def test_hierarchical_tree_of_depth_two_by_hand():
    """Leaves c, a, d, b from left to right; h = (1, 2)."""
    head = HierarchicalSoftmax(4, [1, 3, 0, 2], use_bias=False)
    head.build((None, 2))
    head.nodes.kernel.assign([[1.0, 0.5], [0.0, 1.0], [-1.0, 0.0]])  # root: z = 2; 2; -1

    sigma = reference.sigmoid
    left, right = sigma(-2.0), sigma(2.0)
    p = [left * sigma(2.0), right * sigma(-1.0), left * sigma(-2.0), right * sigma(1.0)]
    scores = to_numpy(head(np.array([[1.0, 2.0]], "float32")))
    np.testing.assert_allclose(scores[0], np.log(p), atol=1e-6)


@pytest.mark.parametrize("n, nodes", [(1, 1), (2, 1), (4, 3), (5, 7), (8, 7), (9, 15)])
def test_nodes_of_a_tree(n, nodes):
    """2^D - 1, D = ceil(log2 n); a tree of one leaf keeps a table of one row."""
    head = HierarchicalSoftmax(n)
    assert head.nodes.units == nodes
    if n == 5:  # of 8 leaves: no two classes are more than one level apart
        np.testing.assert_array_equal(head.positions, [0, 1, 3, 4, 6])


@pytest.mark.parametrize("top_depth", [0, 2, 4])
def test_hierarchical_streams(monkeypatch, top_depth):
    """Top k in chunks of 4 classes, above and below the levels that are held at once."""
    monkeypatch.setattr(partition, "class_chunk", lambda *_: 4)
    head = built(HierarchicalSoftmax(11, LEAVES))
    head.top_depth = top_depth
    assert_is_the_model(head, 11)


def test_hierarchical_ids_of_every_shape():
    head = built(HierarchicalSoftmax(11, LEAVES))
    hidden, _ = batch(11)
    expected = numpy_scores(head, hidden)
    for ids in (np.array([3, 0, 10]), np.random.default_rng(2).integers(0, 11, (B, 2))):
        tensor = keras.ops.convert_to_tensor(ids.astype("int32"))
        found = to_numpy(head.prediction_scores(keras.ops.convert_to_tensor(hidden), tensor))
        wanted = expected[:, ids] if ids.ndim == 1 else np.take_along_axis(expected, ids, 1)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", [RowSGD, RowAdagrad, RowAdam])
def test_hierarchical_rows_are_updated_as_by_a_dense_optimizer(optimizer):
    """One step against the gradient by hand; other nodes stay as they are to the bit."""
    head = built(HierarchicalSoftmax(11, LEAVES, row_optimizer=optimizer(0.3)))
    hidden, labels = batch(11)
    labels = np.array([1, 2, 2, 3, 1, 2, 3, 10, 1], "int32")  # the left side of the tree
    kernel, bias = arrays(head.nodes)
    to_kernel, to_bias, touched = np.zeros_like(kernel), np.zeros_like(bias), set()
    for h, y in zip(hidden.astype(float), labels, strict=True):
        own = LEAVES[y]
        for level in range(4):
            node, step = 2**level - 1 + (own >> (4 - level)), own >> (3 - level)
            touched.add(node)
            if any(other >> (3 - level) == step ^ 1 for other in LEAVES):
                sign = 1 if step % 2 else -1
                slope = -sign * reference.sigmoid(-sign * (h @ kernel[node] + bias[node])) / B
                to_kernel[node] += slope * h
                to_bias[node] += slope
    step = training(head)
    step(hidden, labels)
    on = np.isin(np.arange(15), list(touched))
    assert 0 < on.sum() < 15
    rules = {
        RowSGD: lambda v, g: reference.sgd(v, g, {}, 0.3),
        RowAdagrad: lambda v, g: reference.adagrad(v, g, {}, 0.3),
        RowAdam: lambda v, g: reference.lazy_adam(v, g, {}, 0.3, on),
    }
    found = arrays(head.nodes)
    for value, old, gradient in zip(found, (kernel, bias), (to_kernel, to_bias), strict=True):
        expected = rules[optimizer](old, gradient)
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(value[~on], old[~on])


CUTOFFS = [((3, 4), False), ((5, 12, 20), True)]  # classes in any order, and by frequency


@pytest.mark.parametrize(("cutoffs", "sorted_ids"), thorough_but(CUTOFFS, CUTOFFS[1]))
def test_adaptive_is_its_formula_and_sums_to_one(cutoffs, sorted_ids):
    n = 23
    counts = None if sorted_ids else np.random.default_rng(1).integers(0, 9, n)  # with ties
    head = built(AdaptiveSoftmax(n, list(cutoffs), div_value=1.5, counts=counts))
    sizes = [p.shape[1] for p in head.projections]
    assert sizes == [max(1, int(D / 1.5 ** (i + 1))) for i in range(len(cutoffs))]
    assert_is_the_model(head, n)


def test_adaptive_streams(monkeypatch):
    monkeypatch.setattr(partition, "class_chunk", lambda *_: 4)
    sizes = streaming.Sizes(20, 3, 2, 3, 4, 4)
    monkeypatch.setattr(streaming, "CPU", sizes)
    options = {"div_value": 1.5, "counts": np.arange(23) + 1}
    assert_is_the_model(built(AdaptiveSoftmax(23, [3, 9], **options)), 23)


def test_adaptive_losses_and_gradients_do_not_depend_on_the_capacity():
    """Batches in which the cluster fits, is full to the last row, and does not fit."""
    functions = []
    for own in (0.4, 1.0):
        head = built(AdaptiveSoftmax(11, [3, 6], div_value=1.5, tail_capacity=own))
        variables = [v for table in (head.shortlist, *head.tails) for v in table.variables]

        def mean_loss(hidden, labels, head=head):
            return keras.ops.mean(head(hidden, labels, training=True))

        functions.append(gradient_function(mean_loss, head, [*variables, *head.projections]))
    hidden, _ = batch(11)
    for inside in (0, 1, 4, B):
        labels = np.where(np.arange(B) < inside, 4, 1).astype("int32")
        results = [function(hidden, labels) for function in functions]
        np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
        assert_all_close(results[0][1], results[1][1], 1e-4, 1e-6)


def test_only_as_many_rows_as_fit_are_computed():
    """The function sees ceil(share B) rows in one branch and B in the other."""
    seen = []

    def function(x):
        seen.append(x.shape[0])
        return keras.ops.sum(x, axis=-1)

    x = np.arange(20, dtype="float32").reshape(10, 2)
    inside = np.arange(10) % 5 == 3

    def call(x, inside):
        return adaptive.losses_inside(function, inside, 0.3, [x])

    result = to_numpy(compiled(call)(x, inside))
    assert set(seen) == {3, 10} or set(seen) == {4, 10}
    np.testing.assert_allclose(result, np.where(inside, x.sum(-1), 0.0))


def test_adaptive_capacities_come_from_the_counts():
    head = AdaptiveSoftmax(4, [1, 2], counts=[1, 80, 10, 9])
    np.testing.assert_allclose(head.capacities, [0.2, 0.2])
    assert AdaptiveSoftmax(4, [1, 2]).capacities == [1.0, 1.0]
