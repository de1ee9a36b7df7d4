"""Models that another process saved load in this one, and return what they returned then.

The files of `tests/data` are `kernel_tensorflow`, written with TensorFlow (normalised vectors; half
unigram, half random Fourier features; RowAdam), and `tree_jax`, with JAX (a `Classifier` with
negative sampling from an adversarial tree; RowAdagrad). The .npz of each holds data and what the
model returned. A change of what is saved has to be noted in CHANGELOG.md; this writes them anew:

    PYTHONPATH=. .venv/bin/python tests/test_saved_models.py
    KERAS_BACKEND=jax PYTHONPATH=. .venv-jax/bin/python tests/test_saved_models.py
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from conftest import BACKEND, slow_but
from small import spec

import softbench
from softbench import Classifier, NegativeSampling, RowAdagrad, RowAdam, SampledSoftmax
from softbench.samplers import REGISTRY

DATA = Path(__file__).parent / "data"
N, D, WIDTH = 23, 4, 6


NAMED = [name for name in softbench.__all__ if isinstance(getattr(softbench, name), type)]
SAVED = {name: getattr(softbench, name) for name in NAMED}
SAVED |= {cls.__name__: cls for cls in REGISTRY.values()}


@pytest.mark.parametrize("name", SAVED)
def test_classes_are_saved_by_names_of_their_own(name):
    """A file finds them by these, wherever the classes are then."""
    assert keras.saving.get_registered_name(SAVED[name]) == f"softbench>{name}"


IMPORTS = ["import keras, softbench", "from softbench import RowSGD; import keras"]


@pytest.mark.parametrize("imports", slow_but(IMPORTS, IMPORTS[1]))
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
    x = rng.normal(size=(N, WIDTH))[y] + rng.normal(0, 0.3, (200, WIDTH))
    return x.astype("float32"), y


def write_kernel_model():
    x, y = data()
    counts = np.bincount(y, minlength=N) + 1
    unigram = spec("unigram", counts=counts.tolist(), power=0.75)
    kernel = {"num_features": 8, "nu": 2.0, "block_size": 2, "seed": 2}
    parts = {"first": unigram, "second": spec("rff", **kernel)}
    options = {"normalize": True, "temperature": 0.5, "row_optimizer": RowAdam(0.01), "seed": 1}
    head = SampledSoftmax(N, spec("mixed", **parts), 5, **options)
    inputs, labels = keras.Input((WIDTH,)), keras.Input((), dtype="int32")
    model = keras.Model([inputs, labels], head(keras.layers.Dense(D)(inputs), labels))
    model.compile(keras.optimizers.Adam(0.01))
    model.fit([x, y], batch_size=50, epochs=2, verbose=0)
    found = {"predicted": model.predict([x, y], verbose=0), "loss": model.evaluate([x, y])}
    model.save(DATA / "kernel_tensorflow.keras")
    np.savez(DATA / "kernel_tensorflow.npz", x=x, y=y, **found)


def write_tree_model():
    x, y = data()
    tree = softbench.samplers.AdversarialTree(num_components=3, seed=2).fit(x, y, N)
    head = NegativeSampling(N, tree, 3, row_optimizer=RowAdagrad(0.1), seed=1)
    encoder = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(D)])
    model = Classifier(encoder, head, top_k=(1, 3), inputs_to_sampler=True)
    model.compile(keras.optimizers.Adam(0.01))
    model.fit(x, y, batch_size=50, epochs=2, verbose=0)
    found = model.evaluate(x, y, return_dict=True)
    model.save(DATA / "tree_jax.keras")
    np.savez(DATA / "tree_jax.npz", x=x, y=y, predicted=model.predict(x, verbose=0), **found)


if __name__ == "__main__":
    keras.utils.set_random_seed(1)
    write_tree_model() if BACKEND == "jax" else write_kernel_model()
