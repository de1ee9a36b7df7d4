"""A training step on JAX copies nothing of the size of what a sampler keeps of the table.

Thorough, since `.ci/run` compiles the others by an older generator of code, which does copy.
"""

import re

import keras
import numpy as np
import pytest

from softbench import SampledSoftmax

if keras.backend.backend() != "jax":
    pytest.skip("TensorFlow updates its variables in place", allow_module_level=True)

import jax

pytestmark = pytest.mark.thorough
N, D = 1024, 8
CONFIG = {"num_features": 16, "block_size": 1, "refresh_every": 7}


def compiled_step():
    """The text of the compiled step of `fit`, which donates its state, and the state."""
    head = SampledSoftmax(N, {"class_name": "rff", "config": CONFIG}, 4, seed=0)
    hidden, labels = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([hidden, labels], head(hidden, labels))
    model.compile(keras.optimizers.SGD(0.1))
    batch = [np.ones((4, D), "float32"), np.arange(4, dtype="int32")]
    model.train_on_batch(batch)
    names = ("trainable", "non_trainable", "optimizer", "metrics")
    state = model._get_jax_state(**{f"{name}_variables": True for name in names})
    step = jax.jit(model.train_step, donate_argnums=0)
    return step.lower(state, (batch,)).compile().as_text(), jax.tree.leaves(state)


def test_a_step_without_a_refresh_copies_no_statistics():
    """The branch that is then taken does nothing, in place; nor does a step ask the host."""
    text, state = compiled_step()
    assert len(re.findall(r"\(\d+, \{\}, may-alias\)", text)) == len(state)
    idle = re.findall(r" conditional\(.*branch_computations=\{%([\w.]+)", text)
    assert idle
    for branch in idle:
        body = re.search(rf"^%{re.escape(branch)} .*?^\}}", text, re.M | re.S)[0]
        done = re.findall(r" ([a-z-]+)\(", body.split("\n", 1)[1])
        assert set(done) <= {"parameter", "get-tuple-element", "tuple"}
    copied = [
        int(np.prod([int(size) for size in shape.split(",") if size]))
        for shape in re.findall(r"= \w+\[([\d,]*)\]\S* copy\(", text)
    ]
    assert max(copied, default=0) < N
    assert not re.search(r"callback|infeed|outfeed|\bsend\(|\brecv\(", text)
