"""Backend operations that `keras.ops` does not have.

This folder is the only place with backend branches: the same names come from `tensorflow.py` or
from `jax.py`, and only the backend in use is imported.
"""

import keras

if keras.backend.backend() == "tensorflow":
    from softbench.ops import tensorflow as _backend
elif keras.backend.backend() == "jax":
    from softbench.ops import jax as _backend
else:
    raise ImportError(
        "softbench runs on the Keras backends 'tensorflow' and 'jax'. "
        f"Received: KERAS_BACKEND={keras.backend.backend()!r}"
    )

READ_COPIES = _backend.READ_COPIES
SCATTER_UNDER_JIT = _backend.SCATTER_UNDER_JIT
apply_adagrad = _backend.apply_adagrad
assign_when = _backend.assign_when
cosine = _backend.cosine
device_memory_peak = _backend.device_memory_peak
gather_groups = _backend.gather_groups
gather_rows = _backend.gather_rows
gradients_and_aux = _backend.gradients_and_aux
is_concrete = _backend.is_concrete
matmul_transposed = _backend.matmul_transposed
on_cpu = _backend.on_cpu
random_integers = _backend.random_integers
read = _backend.read
read_first = _backend.read_first
rows_when = _backend.rows_when
scatter_add = _backend.scatter_add
scatter_update = _backend.scatter_update
share_backward = _backend.share_backward
sum_duplicates = _backend.sum_duplicates
