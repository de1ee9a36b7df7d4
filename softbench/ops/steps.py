"""Compiled training steps and calls of the backend in use."""

import importlib
from typing import Any

import keras

_BACKEND: Any = importlib.import_module(f"softbench.ops.steps_{keras.backend.backend()}")
Calls, compile_step, wait = _BACKEND.Calls, _BACKEND.compile_step, _BACKEND.wait
compile_divided, compile_gradients = _BACKEND.compile_divided, _BACKEND.compile_gradients
