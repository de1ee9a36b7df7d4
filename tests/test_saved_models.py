"""A model that one backend saved loads on the other, and returns there what it returned here.

Of the files of `tests/data`, TensorFlow wrote `kernel_tensorflow` (normalised vectors; half
unigram, half random Fourier features; RowAdam), and JAX `tree_jax` (a `Classifier` with negative
sampling from an adversarial tree; RowAdagrad). The .npz of each holds data and what the model
returned. Write them again, from the root of the checkout, when a change moves what is saved:

    KERAS_BACKEND=jax PYTHONPATH=. python tests/test_saved_models.py
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from conftest import BACKEND

import softbench
from softbench import Classifier, NegativeSampling, RowAdagrad, RowAdam, SampledSoftmax
from softbench.samplers import REGISTRY, AdversarialTree

DATA = Path(__file__).parent / "data"
N, D, WIDTH = 23, 4, 6


CLASSES = [
    "AdaptiveSoftmax",
    "AugmentReduce",
    "BucketedSoftmax",
    "ClassTable",
    "FullSoftmax",
    "HierarchicalSoftmax",
    "NegativeSampling",
    "NoiseContrastive",
    "OneVsEach",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "SampledHinge",
    "SampledSoftmax",
]


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_saved_by_names_of_their_own(name):
    """A file finds them by these, wherever the classes are then."""
    assert keras.saving.get_registered_name(getattr(softbench, name)) == f"softbench>{name}"


@pytest.mark.parametrize("name", REGISTRY)
def test_samplers_are_saved_by_names_of_their_own(name):
    cls = REGISTRY[name]
    assert keras.saving.get_registered_name(cls) == f"softbench>{cls.__name__}"


IMPORTS = ["import keras, softbench", "from softbench import RowSGD; import keras"]


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_new_process_needs_no_more_than_the_imports(imports):
    """All that is registered is found, and a saved model loads."""
    written = r"register_keras_serializable\(PACKAGE\)\nclass (\w+)"
    package = Path(softbench.__file__).parent
    names = [
        name for file in package.rglob("*.py") for name in re.findall(written, file.read_text())
    ]
    code = f"""
{imports}
found = [keras.saving.get_registered_object("softbench>" + name) for name in {names}]
model = keras.saving.load_model({str(DATA / "tree_jax.keras")!r})
print(sum(cls is None for cls in found), len(model.weights) > 0)
"""
    assert {"FullSoftmax", "Classifier", "RowAdam", "CarriedLSTM"} <= set(names)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.splitlines()[-1:] == ["0 True"], run.stderr[-2000:]


def load(name, tmp_path):
    path = shutil.copy(DATA / f"{name}.keras", tmp_path)
    with np.load(DATA / f"{name}.npz") as arrays:
        return keras.models.load_model(path), dict(arrays)


def test_kernel_model(tmp_path):
    model, known = load("kernel_tensorflow", tmp_path)
    inputs = [known["x"], known["y"]]
    np.testing.assert_allclose(model.predict(inputs, verbose=0), known["predicted"], rtol=1e-4)
    assert model.evaluate(inputs, verbose=0) == pytest.approx(float(known["loss"]), rel=1e-5)
    head = next(layer for layer in model.layers if isinstance(layer, SampledSoftmax))
    # The sums and the random directions of the mixture's kernel are the saved ones.
    kernel = head.sampler.second
    sums = [np.array(part) for part in kernel.blocks.sums]
    kernel.refresh(head.table)
    for before, after in zip(sums, kernel.blocks.sums, strict=True):
        np.testing.assert_allclose(before, np.array(after), rtol=1e-3, atol=1e-4)
    if BACKEND == "jax":  # saved as False: TensorFlow's row updates are not for XLA
        model.jit_compile = True
    model.fit(inputs, batch_size=50, epochs=1, verbose=0)


def test_tree_model(tmp_path):
    model, known = load("tree_jax", tmp_path)
    assert isinstance(model, Classifier) and isinstance(model.head, NegativeSampling)
    np.testing.assert_allclose(
        model.predict(known["x"], verbose=0), known["predicted"], rtol=1e-4, atol=1e-5
    )
    found = model.evaluate(known["x"], known["y"], verbose=0, return_dict=True)
    for name in ("loss", "perplexity", "precision_at_1", "precision_at_3"):
        assert found[name] == pytest.approx(float(known[name]), rel=1e-5), name
    model.fit(known["x"], known["y"], batch_size=50, epochs=1, verbose=0)


def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, N, 200).astype("int32")
    x = rng.normal(size=(N, WIDTH))[y] + rng.normal(0, 0.2, (200, WIDTH))
    return x.astype("float32"), y


def kernel_model(x, y):
    counts = np.bincount(y, minlength=N).tolist()
    unigram = {"class_name": "unigram", "config": {"counts": counts, "power": 0.75}}
    rff = {"class_name": "rff", "config": {"num_features": 8, "nu": 2.0, "block_size": 2}}
    mixed = {"class_name": "mixed", "config": {"first": unigram, "second": rff}}
    options = {"normalize": True, "temperature": 0.5, "row_optimizer": RowAdam(0.01)}
    inputs, labels = keras.Input((WIDTH,)), keras.Input((), dtype="int32")
    head = SampledSoftmax(N, mixed, 5, **options, seed=1)
    model = keras.Model([inputs, labels], head(keras.layers.Dense(D)(inputs), labels))
    model.compile(keras.optimizers.Adam(0.01))
    model.fit([x, y], batch_size=50, epochs=4, verbose=0)
    predicted = model.predict([x, y], verbose=0)
    return model, {"predicted": predicted, "loss": model.evaluate([x, y], verbose=0)}


def tree_model(x, y):
    tree = AdversarialTree(num_components=3, seed=2).fit(x, y, N, verbose=0)
    head = NegativeSampling(N, tree, num_sampled=3, row_optimizer=RowAdagrad(0.1), seed=1)
    encoder = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(D)])
    model = Classifier(encoder, head, top_k=(1, 3), inputs_to_sampler=True)
    model.compile(keras.optimizers.Adam(0.01))
    model.fit(x, y, batch_size=50, epochs=4, verbose=0)
    values = model.evaluate(x, y, verbose=0, return_dict=True)
    return model, {"predicted": model.predict(x, verbose=0), **values}


def main():
    x, y = data()
    name, make = {"tensorflow": ("kernel", kernel_model), "jax": ("tree", tree_model)}[BACKEND]
    model, returned = make(x, y)
    model.save(DATA / f"{name}_{BACKEND}.keras")
    np.savez(DATA / f"{name}_{BACKEND}.npz", x=x, y=y, **returned)


if __name__ == "__main__":
    main()
