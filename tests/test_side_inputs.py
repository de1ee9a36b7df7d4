"""Benchmark methods that need more than hidden vectors: a fitted tree, numbers of examples."""

import itertools

import keras
import numpy as np
import pytest
from conftest import slow_but, to_numpy
from small_runs import job

from softbench import datasets
from softbench.bench.training import problems, side_inputs
from softbench.bench.training import run as train

TREE = {"class_name": "adversarial", "config": {"num_components": 3}}
METHODS = {
    "adversarial": {"head": "NegativeSampling", "kwargs": {"sampler": TREE}},
    "nce": {"head": "NoiseContrastive", "kwargs": {"sampler": TREE, "num_sampled": 2}},
    "augment_reduce": {"head": "AugmentReduce", "kwargs": {"num_sampled": 2}},
}


@pytest.fixture
def folder(tmp_path):
    """wd50k in small: the tail follows from the head, one time in four at random."""
    rng = np.random.default_rng(0)
    made = tmp_path / "wd50k"
    made.mkdir()
    for split, size in (("train", 160), ("valid", 20), ("test", 20)):
        heads, relations, other = rng.integers((20, 3, 20), size=(size, 3)).T
        tails = np.where(rng.random(size) < 0.75, (heads + 1) % 20, other)
        lines = [f"e{h},r{r},e{t}\n" for h, r, t in zip(heads, relations, tails, strict=True)]
        (made / f"{split}.txt").write_text("".join(lines))
    return str(tmp_path)


def of(kind, method, folder):
    """A training job of two epochs."""
    bag = {"name": "synthetic_xmc", "num_classes": 30, "num_features": 40, "num_train": 90}
    bag |= {"num_valid": 20, "num_test": 20, "labels_per_example": 1.5}
    dataset = {"name": "wd50k"} if kind == "pair" else bag
    model = {"name": kind, "batch_size": 16, "dim": 6}
    return job(folder, dataset=dataset, model=model, methods={"": METHODS[method]}, epochs=2)


CELLS = slow_but(
    [(method, kind) for method in METHODS for kind in ("pair", "bag", "linear")],
    ("adversarial", "pair"),
    ("nce", "bag"),
    thorough=[("adversarial", "linear"), ("augment_reduce", "pair"), ("augment_reduce", "linear")],
)


@pytest.mark.parametrize(("method", "kind"), CELLS)
def test_methods_train(method, kind, folder):
    made = of(kind, method, folder)
    train.run(made)
    first, last = made.result["curve"]
    assert last["train_loss"] < first["train_loss"] and np.isfinite(last["valid_nll"])
    assert last["proposal_ess"] > 0 and 0 <= made.result["final"]["test_precision_at_1"] <= 1
    if method == "augment_reduce":
        assert "tree" not in made.result
        return
    tree = made.result["tree"]
    assert first["seconds"] > tree["fit_seconds"] > 0
    assert tree["log_likelihood"] > tree["frequency_log_likelihood"]


@pytest.mark.parametrize("kind", ["pair", "bag", "linear"])
def test_tree_gets_the_features_that_it_was_fitted_to(kind, folder):
    """What the encoder passes on for a batch of rows: (x - mean) components, or x itself."""
    given = of(kind, "adversarial", folder).config
    problem = problems.load(given, folder)
    tree, seconds = side_inputs.fit_tree(METHODS["adversarial"], problem.tree, *sizes(problem))
    encoder = side_inputs.with_tree(problem.encoder, tree, problem.tree)
    features = to_numpy(problem.probe(encoder)[0]["sampler_inputs"])
    data = datasets.load(**given["dataset"], data_dir=folder if kind == "pair" else None)
    if kind == "pair":
        heads, relations, _ = data.valid[:16].T
        raw = np.zeros((16, data.num_classes + data.num_relations))
        raw[np.arange(16), heads] = raw[np.arange(16), data.num_classes + relations] = 1
    else:
        raw = data.valid_features[:16].toarray()
    mean, components = tree.kept("mean"), tree.kept("components")
    if kind == "linear":  # the tree projects them itself
        np.testing.assert_allclose(features, raw, atol=1e-6)
    else:
        np.testing.assert_allclose(features, (raw - mean) @ components, atol=1e-5)
    points, labels = problem.tree.points("train")
    assert points.shape == (len(labels), raw.shape[1]) and seconds > 0
    counts = np.bincount(labels, minlength=problem.num_classes)
    np.testing.assert_array_equal(counts, problem.counts)


def sizes(problem):
    return problem.num_classes, 0


def test_a_language_has_no_features_for_a_tree():
    with pytest.raises(ValueError, match="`sampler` 'adversarial' needs"):
        side_inputs.fit_tree(METHODS["adversarial"], None, 10, 0)


def test_numbers_are_those_of_the_rows():
    """The same heads and tails stand in the rows that the numbers name; a filler has number 0."""
    triples = np.random.default_rng(0).integers(50, size=(21, 3)).astype("int32")
    data = datasets.TripleData("", triples, triples, triples, 50, 50, [], [], np.ones(50))
    plain = datasets.TripleBatches(data, "train", 8, seed=3)
    batches = datasets.Numbered(datasets.TripleBatches(data, "train", 8, seed=3))
    for epoch, index in itertools.product((0, 1), range(3)):
        batches.set_epoch(epoch)
        plain.set_epoch(epoch)
        (heads, relations, numbers), tails = batches[index]
        assert numbers.dtype == np.int32
        np.testing.assert_array_equal(triples[numbers].T, [heads, relations, tails])
        np.testing.assert_array_equal(plain[index][1], tails)
    (*_, numbers), _, mask = datasets.Numbered(datasets.TripleBatches(data, "test", 8))[2]
    np.testing.assert_array_equal(numbers, [16, 17, 18, 19, 20, 0, 0, 0])
    np.testing.assert_array_equal(mask, [1] * 5 + [0] * 3)


def test_numbered_encoder_passes_them_on():
    encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    outputs = side_inputs.numbered(keras.Model(encoder.inputs, encoder.outputs[0]))(
        [np.ones((4, 3), "float32"), np.arange(4, dtype="int32")]
    )
    np.testing.assert_array_equal(to_numpy(outputs["example_ids"]), np.arange(4))
    assert outputs["hidden"].shape == (4, 2)
