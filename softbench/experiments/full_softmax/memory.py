"""Peak memory of one method's step: `python -m softbench.experiments.full_softmax.memory JSON`.

JSON is {"method", "model", "num_classes", "seed"}. A process of its own first runs a small problem
of the same method, so that the libraries are loaded: what it holds then is the base. It makes
inputs and table and runs the step once, which compiles it. Then it lets the peak that Linux keeps
begin anew (5 in /proc/self/clear_refs), and runs the step again. Printed is {"peak_mib",
"seconds"}: the peak of the second step less the base, the float32 inputs and table, and their
float32 gradients; and the time of this step.

So what compiling leaves behind counts, and what it takes while it compiles does not. TensorFlow
keeps freed memory: what it took to make the table, no more than a second one, is used again by the
step, which needs as much for the gradient.

On an accelerator the peak is that of the device's memory since the process began, in which nothing
before was larger than the step, and the base what the device held.
"""

import ctypes
import gc
import json
import os
import re
import sys
import time
from pathlib import Path

_MIB = 2.0**20


def measured(method: dict, model: dict, num_classes: int, seed: int) -> dict[str, float]:
    """Returns {"peak_mib", "seconds"} of the second step."""
    from softbench.experiments.full_softmax import steps
    from softbench.ops import device_memory
    from softbench.ops.steps import wait

    few = min(num_classes, 1024)
    wait(steps.make_step(method, model, few, seed)(*steps.make_inputs(model, few, seed)))
    base = (device_memory() or resident())[0]
    step = steps.make_step(method, model, num_classes, seed)
    inputs = steps.make_inputs(model, num_classes, seed)
    wait(step(*inputs))
    lower_peak()
    start = time.perf_counter()
    result = step(*inputs)
    wait(result)
    seconds = time.perf_counter() - start
    peak = (device_memory() or resident())[1]
    arrays = 4 * model["dim"] * (model["batch_size"] + num_classes)  # and as much for gradients
    peak_mib = (peak - base - 2 * arrays) / _MIB
    return {"peak_mib": round(peak_mib, 1), "seconds": round(seconds, 4)}


def resident() -> tuple[int, int]:
    """Bytes of main memory that this process holds, now and at most."""
    give_back()
    status = Path("/proc/self/status").read_text()
    now, peak = (re.search(rf"{field}:\s+(\d+) kB", status)[1] for field in ("VmRSS", "VmHWM"))
    return 1024 * int(now), 1024 * int(peak)


def lower_peak() -> None:
    """Lets the peak of main memory begin anew, on Linux."""
    give_back()
    Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Collects garbage, and gives free memory back to the system where the C library can."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def main() -> None:
    """Measures the method of the command line, and prints what it took."""
    print(json.dumps(measured(**json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # a backend may take seconds to end


if __name__ == "__main__":
    main()
