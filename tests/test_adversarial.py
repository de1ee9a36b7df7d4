"""The adversarial tree: its fit against hand computation, its distribution in float32, refits.

`test_samplers.py` tests its draws, its distribution and its saving with those of every sampler.
"""

import keras
import numpy as np
import pytest
import reference
import scipy.sparse as sp
from conftest import assert_drawn_from, compiled, on_table, rejects, to_numpy
from small import functional

from softbench import NegativeSampling, SampledSoftmax, datasets, samplers
from softbench.samplers import AdversarialTree
from softbench.samplers.tree import fit as tree_fit
from softbench.samplers.tree import newton as tree_newton
from softbench.samplers.tree import projection as tree_projection
from softbench.samplers.tree import walk as tree_walk


def hierarchy(num_points=600, n=16, k=4, seed=0, spread=0.4):
    """Points around the centres of n classes, these around the centres of n / 4 groups."""
    rng = np.random.default_rng(seed)
    groups = rng.normal(0, 2, (-(-n // 4), k))
    centres = groups[np.arange(n) // 4] + rng.normal(0, 0.7, (n, k))
    labels = rng.integers(n, size=num_points)
    return centres[labels] + rng.normal(0, spread, (num_points, k)), labels


def fitted(n=16, **config):
    return AdversarialTree(**{"seed": 3, **config}).fit(*hierarchy(n=n), n, verbose=0)


def tree_with(nodes, leaf_of_label, **config):
    """A sampler of given nodes (P, k + 1), heap order, that takes its features as they are."""
    tree = AdversarialTree(num_components=None, seed=5, **config)
    tree.num_classes, tree.num_features = len(leaf_of_label), nodes.shape[1] - 1
    tree.keep(None, tree_fit.Tree(np.array(nodes, float), np.array(leaf_of_label), []))
    return tree


def log_distribution(tree, x, labels=None):
    function = compiled(lambda x, *y: tree.log_prob(None, x, labels=y[0] if y else None), tree)
    arrays = (np.float32(x),) if labels is None else (np.float32(x), np.int32(labels))
    return to_numpy(function(*arrays)).astype(np.float64)


def kept(tree):
    """Arguments of `reference.tree_distribution` after the features."""
    names = ("mean", "components", "nodes", "leaf_of_label")
    return [tree.kept(name) for name in names]


def build(tree):
    tree.build((tree.num_classes, tree.num_features))
    return tree


# The distribution.


def test_distribution_of_a_hand_computed_tree():
    """sigmoid(log a) = a / (1 + a): odds 3 at the root, 2 and 4 below it, at x = 1."""
    log_odds = np.log([1.0, 3.0, 2.0, 4.0])
    tree = build(tree_with(np.stack([log_odds, 0 * log_odds], -1), [2, 0, 3, 1]))
    expected = np.array([3 / 4 / 5, 1 / 4 / 3, 3 / 4 * 4 / 5, 1 / 4 * 2 / 3])
    np.testing.assert_allclose(np.exp(log_distribution(tree, [[1.0]]))[0], expected, rtol=1e-6)
    np.testing.assert_allclose(np.exp(log_distribution(tree, [[0.0]]))[0], 0.25, rtol=1e-6)
    others = np.exp(log_distribution(tree, [[1.0]], [2]))[0]
    np.testing.assert_allclose(others, np.array([3, 5 / 3, 0, 10 / 3]) / 8, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_probabilities_sum_to_one_and_padding_has_none(n):
    x = hierarchy(20, n)[0]
    tree = build(fitted(n))
    np.testing.assert_allclose(np.exp(log_distribution(tree, x)).sum(-1), 1.0, rtol=1e-5)
    inputs = np.concatenate([tree.project(x), np.ones((20, 1))], axis=1).astype("float32")
    leaves = np.exp(to_numpy(tree_walk.all_log_prob(tree.nodes, inputs)).astype(np.float64))
    padding = np.setdiff1d(np.arange(leaves.shape[1]), to_numpy(tree.leaf_of_label))
    assert len(padding) == leaves.shape[1] - n
    assert np.all(leaves[:, padding] == 0.0)
    rows = np.repeat(tree.project(x), n, axis=0)
    each = np.tile(to_numpy(tree.leaf_of_label), 20)
    log_p = tree_fit.tree_log_prob(to_numpy(tree.nodes).astype(float), rows, each)
    np.testing.assert_allclose(np.exp(log_p).reshape(20, n).sum(-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("n, share", [(1, False), (5, False), (100, False), (5, True)])
def test_a_pass_over_all_classes_has_the_log_q_of_each(n, share):
    """The whole path in float64, where the pass walks the last levels alone."""
    x = hierarchy(6, n)[0]
    tree = build(fitted(n, share_draws=share))
    expected = np.log(reference.tree_distribution(x, *kept(tree), shared=share))
    ids = np.arange(n, dtype="int32")
    found = compiled(lambda x, ids: tree.propose(None, x).class_pass(1)(ids), tree)
    found = np.broadcast_to(to_numpy(found(np.float32(x), ids)), expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_negative_sampling_predicts_with_the_tree_in_parts(monkeypatch):
    """Likelihood and best classes, streamed in chunks of 7 classes of 40: eq. 5 in float64."""
    from softbench import partition

    x, labels = (array[:8] for array in hierarchy(600, 40))
    head = on_table(NegativeSampling, 40, fitted(40), kernel_initializer="normal")
    head.build((None, 4))
    table = to_numpy(head.table.kernel), to_numpy(head.table.bias)
    scores = reference.scores(x, *table) + np.log(
        reference.tree_distribution(x, *kept(head.sampler))
    )
    monkeypatch.setattr(partition, "class_chunk", lambda *_: 7)
    nll = to_numpy(head(np.float32(x), np.int32(labels)))
    expected = reference.negative_log_likelihood(scores, labels)
    np.testing.assert_allclose(nll, expected, rtol=1e-4)
    ids = to_numpy(head.top_k(np.float32(x), 5)[1])
    np.testing.assert_array_equal(ids, reference.top_k(scores, 5)[1])


def test_a_label_of_probability_near_one_is_left_out_exactly():
    """p(label) = 1 - 1e-13 and less: float32's 1 - p is 0, that of the others is not."""
    rng = np.random.default_rng(2)
    nodes = np.concatenate([np.zeros((8, 1)), 30 + 3 * rng.normal(size=(8, 1))], axis=1)
    tree, x = build(tree_with(nodes, rng.permutation(8))), np.zeros((1, 1))
    label = int(np.argmax(log_distribution(tree, x)))
    expected = reference.tree_distribution(
        x, [0.0], [[1.0]], nodes, to_numpy(tree.leaf_of_label), np.array([label])
    )
    np.testing.assert_allclose(expected.sum(), 1.0)
    log_q = log_distribution(tree, x, [label])
    np.testing.assert_allclose(np.exp(log_q), expected, rtol=1e-4, atol=1e-30)
    draw = compiled(lambda x, y: tree.sample(None, x, 5000, y).ids, tree)
    assert_drawn_from(to_numpy(draw(np.float32(x), np.int32([label])))[0], expected[0])


def test_rare_children_are_not_drawn_at_the_uniform_numbers_step(monkeypatch):
    """A uniform number of 0 stands for all below 2^-23: the second one says where it lies."""
    tree = build(tree_with(np.array([[0.0, 0.0], [0.0, -np.log(1e9)]]), [0, 1]))
    seen = []

    def uniform(shape, seed):
        values = np.zeros(shape, "float32")
        values[-1] = np.linspace(0, 0.999, shape[-1])
        seen.append(shape)
        return keras.ops.convert_to_tensor(values)

    monkeypatch.setattr(tree_walk, "random_uniform", uniform)
    ids = to_numpy(tree.sample(None, keras.ops.zeros((1, 1)), 1000).ids)
    share = 1e-9 / 2.0**-23
    assert seen and abs(ids.mean() - share) < 2e-3


# The fit.


def test_fit_of_a_depth_two_tree():
    """Four classes on a line: the split is by their order, each node a logistic regression."""
    centres = np.array([-3.0, 3.2, -1.0, 1.1])  # in order: 0, 2, 3, 1
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [7, 9, 5, 8])
    x = centres[labels][:, None] + rng.normal(0, 0.6, (len(labels), 1))
    tree = AdversarialTree(None, regularization=0.1).fit(x, labels, 4, verbose=0)
    build(tree)
    right = np.isin(labels, [1, 3])

    def node(points, upper):
        return reference.ridge_logistic(x[points], np.where(upper[points], 1, -1), 0.1)

    everything = np.ones(len(labels), bool)
    nodes = [
        np.zeros(2),
        node(everything, right),
        node(~right, labels == 2),
        node(right, labels == 1),
    ]
    at = np.array([[-2.0], [0.3], [2.5]])
    expected = reference.tree_distribution(at, [0.0], [[1.0]], np.array(nodes), [0, 3, 1, 2])
    np.testing.assert_allclose(np.exp(log_distribution(tree, at)), expected, atol=1e-6)
    mean = np.mean(
        [
            reference.tree_log_prob(p, np.array(nodes), leaf)
            for p, leaf in zip(x, np.array([0, 3, 1, 2])[labels], strict=True)
        ]
    )
    assert tree.log_likelihood(x, labels) == pytest.approx(mean, abs=1e-6)


def root_fit(x, labels, n, **options):
    options = tree_fit.FitOptions(**options)
    return tree_fit.fit_tree(x, labels, n, options)


def test_more_alternations_never_lower_the_objective():
    """Of the root, eq. 8 with its ridge; recomputed from the nodes in NumPy."""
    features, labels = generated()[1]
    x = tree_projection.project(features, tree_projection.principal_components(features, 8))
    found = []
    for most in range(1, 6):
        tree = root_fit(x, labels, 300, max_alternations=most)
        found.append(tree.levels[0].objective)
        w, right = tree.nodes[1], tree.leaf_of_label[labels] >= 256
        score = x @ w[:-1] + w[-1]
        expected = reference.log_sigmoid(np.where(right, score, -score)).sum() - 0.1 * w @ w
        assert found[-1] == pytest.approx(expected, rel=1e-9)
    assert np.all(np.diff(found) >= -1e-7 * len(x)) and found[-1] > found[0] + 1
    assert root_fit(x, labels, 300, max_alternations=100).levels[0].settled


def test_the_two_halves_differ_by_one_class_at_most():
    for n in (3, 5, 7, 11, 100):
        tree = root_fit(*hierarchy(300, n), n)
        depth = len(tree.nodes).bit_length() - 1
        for level in range(depth + 1):
            sizes = np.bincount(tree.leaf_of_label >> (depth - level), minlength=2**level)
            assert set(sizes) <= {n // 2**level, -(-n // 2**level)}


def test_newton_reaches_the_maximum_of_every_node():
    x, labels = hierarchy(500, 8)
    tree = root_fit(x, labels, 8, regularization=0.3)
    leaf = tree.leaf_of_label[labels]
    for node in range(1, 8):
        depth = node.bit_length() - 1
        own = (leaf + 8) >> (3 - depth) == node
        right = ((leaf + 8) >> (2 - depth)) & 1
        expected = reference.ridge_logistic(x[own], np.where(right[own], 1, -1), 0.3)
        np.testing.assert_allclose(tree.nodes[node], expected, rtol=1e-4, atol=1e-4)


def test_equal_points_have_a_finite_projection():
    """No spread to divide by: components of norm 1."""
    found = tree_projection.principal_components(np.full((5, 3), 2.0), 2)
    np.testing.assert_allclose(found.components.T @ found.components, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(tree_projection.project(np.full((5, 3), 2.0), found), 0.0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_separable_points_do_not_overflow(scale):
    x = np.repeat(np.linspace(-1, 1, 8), 5)[:, None] * scale
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        tree = root_fit(x, np.repeat(np.arange(8), 5), 8, regularization=1e-6)
    assert np.all(np.isfinite(tree.nodes))
    assert all(np.isfinite(level.objective) for level in tree.levels)


def test_classes_without_a_point_keep_a_probability():
    x, labels = hierarchy(400, 16)
    keep = labels % 3 > 0
    tree = build(AdversarialTree(seed=0).fit(x[keep], labels[keep], 23, verbose=0))
    log_q = log_distribution(tree, x[:50])
    np.testing.assert_allclose(np.exp(log_q).sum(-1), 1.0, rtol=1e-5)
    assert np.all(np.isfinite(log_q)) and np.exp(log_q).mean(0).min() > 1e-4
    one = build(AdversarialTree(seed=0).fit(x[:1], [5], 23, verbose=0))
    assert np.argmax(log_distribution(one, x[:1])) == 5


@pytest.mark.parametrize("most", [None, 100])
def test_fit_depends_on_the_seed_alone(most):
    first, again = (fitted(max_points_per_node=most).kept("nodes") for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_sample_of_each_node_s_points_does_nearly_as_well():
    x, labels = hierarchy(4000, 16, spread=1.0)
    whole, part = (
        AdversarialTree(max_points_per_node=most, seed=1).fit(x, labels, 16, verbose=0)
        for most in (None, 500)
    )
    assert part.log_likelihood(x, labels) > whole.log_likelihood(x, labels) - 0.05


@pytest.mark.parametrize("exact", [True, False])
def test_sparse_points_give_the_tree_of_dense_ones(exact, monkeypatch):
    if not exact:
        monkeypatch.setattr(tree_projection, "DENSE_FEATURES", 0)
    x, labels = hierarchy(400, 16, k=12)
    x = np.where(np.abs(x) > 1, x, 0.0)
    dense, sparse = (
        AdversarialTree(3, seed=0).fit(points, labels, 16, verbose=0)
        for points in (x, sp.csr_matrix(x))
    )
    np.testing.assert_array_equal(dense.kept("leaf_of_label"), sparse.kept("leaf_of_label"))
    np.testing.assert_allclose(dense.kept("nodes"), sparse.kept("nodes"), atol=1e-4)
    np.testing.assert_allclose(dense.project(x), sparse.project(sp.csr_matrix(x)), atol=1e-6)
    centred = x - x.mean(0)
    scale = np.linalg.svd(centred)[1][0] / np.sqrt(len(x))
    expected = np.linalg.svd(centred)[2][:3] @ centred.T / scale
    np.testing.assert_allclose(np.abs(dense.project(x).T), np.abs(expected), atol=1e-5)


def generated(num_classes=300, num_features=1000, num_train=6000, num_valid=1000):
    data = datasets.synthetic_xmc(
        num_classes, num_features, num_train, num_valid, num_test=1000, labels_per_example=1.0
    )
    train = data.train_features, data.train_labels.indices
    return data, train, (data.test_features, data.test_labels.indices)


def test_held_out_likelihood_is_far_above_the_frequencies():
    data, train, test = generated()
    tree = AdversarialTree(seed=0).fit(*train, 300, verbose=0)
    frequency = (data.counts + 1) / (data.counts + 1).sum()
    assert tree.log_likelihood(*test) > np.log(frequency)[test[1]].mean() + 1.0


def test_cross_validation_takes_the_best_ridge():
    _, train, test = generated(100, 500, num_train=1500, num_valid=100)
    tree = AdversarialTree(seed=0)
    scores = tree.cross_validate(*train, 100, (1e-3, 0.1, 100.0), folds=2)
    assert max(scores, key=scores.get) == tree.regularization == 0.1
    fitted_trees = {
        strength: AdversarialTree(regularization=strength, seed=0).fit(*train, 100, verbose=0)
        for strength in scores
    }
    held_out = {strength: own.log_likelihood(*test) for strength, own in fitted_trees.items()}
    assert sorted(scores, key=scores.get) == sorted(held_out, key=held_out.get)


# In a model.


def test_a_fit_to_an_encoder_that_trains_traces_nothing_again():
    x, labels = hierarchy(256)
    x, labels = x.astype("float32"), labels.astype("int32")
    head = SampledSoftmax(16, fitted(), 5)
    encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model = functional(head, 4, keras.optimizers.SGD(0.1), encoder)
    calls, draw, states = [], head.draw, []
    object.__setattr__(head, "draw", lambda *a, **k: calls.append(1) or draw(*a, **k))

    def begin(epoch, logs=None):
        hidden = encoder.predict(x, verbose=0)
        if epoch == 2:
            head.sampler.fit(hidden, labels, 16, verbose=0)
        states.append((to_numpy(head.sampler.nodes), hidden))
        calls.append(epoch)

    refit = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
    model.fit([x, labels], batch_size=64, epochs=3, verbose=0, callbacks=[refit])
    assert calls[calls.index(1) :] in ([1, 2], [1, 1, 2]) or calls[-2:] == [1, 2]
    np.testing.assert_array_equal(states[0][0], states[1][0])
    assert not np.allclose(states[1][0], states[2][0])
    expected = AdversarialTree(seed=3).fit(states[2][1], labels, 16, verbose=0)
    np.testing.assert_allclose(states[2][0], expected.kept("nodes"), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(to_numpy(head.sampler.nodes), states[2][0])


def test_raw_and_projected_features_are_the_same_input():
    x, _ = hierarchy(10, k=4)
    tree = build(fitted(num_components=2))
    np.testing.assert_allclose(
        log_distribution(tree, x), log_distribution(tree, tree.project(x)), atol=1e-5
    )


# Bad input.


def test_an_unfitted_tree_says_so():
    rejects("sampler", SampledSoftmax(16, "adversarial").build, (None, 4))
    with pytest.raises(ValueError, match=r"fitted.*Received"):
        AdversarialTree().log_likelihood(*hierarchy())
    clone = samplers.get(samplers.serialize(fitted()))
    clone.build((16, 4))
    with pytest.raises(ValueError, match=r"fitted.*Received"):
        clone.sample(None, keras.ops.zeros((2, 4)), 3)


def test_bad_points_and_options():
    x, labels = hierarchy()
    tree = AdversarialTree()
    for argument, call in (
        ("labels", lambda: tree.fit(x, labels[:-1], 16)),
        ("labels", lambda: tree.fit(x, labels.astype(float), 16)),
        ("labels", lambda: tree.fit(x, labels, 5)),
        ("features", lambda: tree.fit(x[:, 0], labels, 16)),
        ("features", lambda: tree.fit(np.where(x > 1, np.nan, x), labels, 16)),
        ("num_classes", lambda: tree.fit(x, labels, 0)),
        ("folds", lambda: tree.cross_validate(x, labels, 16, folds=1)),
        ("regularizations", lambda: tree.cross_validate(x, labels, 16, ())),
        ("regularization", lambda: AdversarialTree(regularization=0.0)),
        ("max_alternations", lambda: AdversarialTree(max_alternations=0)),
        ("units", lambda: SampledSoftmax(17, fitted()).build((None, 4))),
    ):
        assert "\n" not in rejects(argument, call).strip()
    built = build(fitted())
    rejects("num_classes", built.fit, x, labels, 17)
    with pytest.raises(ValueError, match=r"features.*Received"):
        built.sample(None, keras.ops.zeros((2, 3)), 3)


def test_directions_of_many_nodes_are_those_of_their_covariances():
    """300 nodes of 8 to 10 classes: more classes than are added up at once, in no order."""
    rng = np.random.default_rng(0)
    n, count, k = 2_700, 300, 3
    node = rng.permutation(np.arange(n) % count)
    node[rng.choice(n, 40, replace=False)] = 7
    labels = np.concatenate([np.arange(n), rng.integers(n, size=2_000)])
    features = rng.normal(size=(len(labels), k)) * [2.0, 1.0, 0.5]
    sums = np.stack([features[labels == label].sum(0) for label in range(n)])
    design = tree_newton.Design(features, labels, n)
    level = tree_fit.LevelFit(design, node, count, tree_fit.FitOptions(), rng)
    found = level._dominant_directions()
    for i in range(count):
        expected = np.linalg.eigh(np.cov(sums[node == i].T))[1][:, -1]
        expected = expected * np.sign(expected[np.abs(expected).argmax()])
        np.testing.assert_allclose(found[i], expected, atol=1e-8)
