"""Compiled training steps and calls of the backend in use."""

import keras

if keras.backend.backend() == "jax":
    from softbench.ops.steps_jax import Calls, compile_step, wait
else:
    from softbench.ops.steps_tensorflow import Calls, compile_step, wait

__all__ = ["Calls", "compile_step", "wait"]
