"""Backend operations that `keras.ops` does not have.

This folder is the only place with backend branches: the same names come from `tensorflow.py` or
from `jax.py`, and only the backend in use is imported.
"""

import importlib
from typing import Any

import keras

from softbench.common import BACKENDS

if keras.backend.backend() not in BACKENDS:
    raise ImportError(
        "softbench runs on the Keras backends 'tensorflow' and 'jax'. "
        f"Received: KERAS_BACKEND={keras.backend.backend()!r}"
    )
_BACKEND = importlib.import_module(f"softbench.ops.{keras.backend.backend()}")


def __getattr__(name: str) -> Any:
    return getattr(_BACKEND, name)
