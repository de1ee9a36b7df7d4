"""What a record says of software, device and source; never a host name, a user or a path."""

import functools
import hashlib
import importlib.util
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import softbench
from softbench.commands import ConfigError
from softbench.common import BACKENDS


def check_backends(backends: Iterable[str]) -> None:
    """Raises a ConfigError, which says what to install, unless all backends are there."""
    for backend in dict.fromkeys(backends):
        if importlib.util.find_spec(backend) is None:
            here = [b for b in BACKENDS if importlib.util.find_spec(b)]
            other = f"--backend={here[0]}, which is" if here else "another --backend"
            raise ConfigError(
                f"--backend={backend} must be installed: pip install 'softbench[{backend}]'; or "
                f"{other}. Received: no module {backend} in this Python"
            )


def versions(backend: str) -> dict[str, str]:
    """Returns the versions of the libraries that decide a result."""
    library = {"jax": ("jax", "jaxlib"), "tensorflow": ("tensorflow",)}[backend]
    installed = {"python": platform.python_version(), "softbench": softbench.__version__}
    for name in ("keras", "numpy", "scipy", *library):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "unknown"
    return installed


def device(backend: str) -> dict[str, object]:
    """Returns the kind and model of the device that `backend` computes on (imports the backend).

    Of an accelerator it says how precise products of float32 are: "default", where the device may
    round their factors to fewer bits, or what the backend was told, such as "highest".
    """
    if backend == "jax":
        import jax

        first = jax.devices()[0]
        if first.platform != "cpu":
            return {
                "kind": first.platform,
                "name": first.device_kind,
                "count": jax.device_count(),
                "matmul_precision": jax.config.jax_default_matmul_precision or "default",
            }
    else:
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            rounded = tf.config.experimental.tensor_float_32_execution_enabled()
            return {
                "kind": "gpu",
                "name": details.get("device_name", "GPU"),
                "count": len(gpus),
                "matmul_precision": "default" if rounded else "highest",
            }
    return {"kind": "cpu", "name": cpu_name(), "count": len(os.sched_getaffinity(0))}


def cpu_name(cpuinfo: str | None = None) -> str:
    """Returns the processor's name, family and model: virtual machines name none but the brand.

    Args:
        cpuinfo: text in the format of /proc/cpuinfo; None reads that file.
    """
    if cpuinfo is None:
        try:
            cpuinfo = Path("/proc/cpuinfo").read_text()
        except OSError:
            cpuinfo = ""
    fields = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in fields and "model" in fields:
        name += f" (family {fields['cpu family']} model {fields['model']})"
    return name


def machine() -> dict[str, int]:
    """Returns the processors of the machine, and its memory in whole GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": os.cpu_count() or 1, "memory_gib": round(memory / 2**30)}


class Processors:
    """How many processors this process and its children use from now on, and all other programs.

    Args:
        stat: a file in the format of /proc/stat.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat, self._start = stat, (0.0, 0.0, 0.0)
        self._start = self._seconds()

    def used(self) -> dict[str, float] | None:
        """Means over the time since then, and how many there are; None where no one counts them."""
        wall, busy, process = (
            now - then for now, then in zip(self._seconds(), self._start, strict=True)
        )
        if busy <= 0 or wall <= 0:
            return None
        others = max(busy - process, 0.0)
        return {
            "count": os.cpu_count() or 1,
            "own": round(process / wall, 2),
            "others": round(others / wall, 2),
        }

    def _seconds(self) -> tuple[float, float, float]:
        """The time, that of all busy processors, and that of this process and its children."""
        times = os.times()
        process = times.user + times.system + times.children_user + times.children_system
        try:
            ticks = [int(x) for x in self._stat.read_text().splitlines()[0].split()[1:9]]
        except (OSError, ValueError, IndexError):
            return times.elapsed, 0.0, process
        idle = sum(ticks[3:5])  # and waiting for files; what other machines took ("steal") is not
        return times.elapsed, (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), process


def git_state() -> dict[str, object]:
    """Returns commit and dirty flag of the checkout that softbench is imported from, or nulls."""
    root = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return run.stdout.strip()

    nothing = {"commit": None, "dirty": None}
    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root:
            return nothing
        commit = git("rev-parse", "HEAD")
        # Results are written while the benchmark runs; they do not change what it measures.
        changed = git("status", "--porcelain", "--", ".", ":(exclude)results")
        return {"commit": commit, "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return nothing


@functools.cache
def code() -> str:
    """Returns a digest of the source of softbench: equal where the same code runs."""
    root, digest = Path(softbench.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def resident_mb() -> float | None:
    """Returns the memory that this process holds now; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def peak_memory_mb() -> dict[str, float]:
    """Returns the peak memory of this process, and of its accelerator if it uses one."""
    from softbench.ops import device_memory  # imports the backend

    unit = 1 if sys.platform == "darwin" else 1024
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    peak = {"host": round(host, 1)}
    on_device = device_memory()
    if on_device is not None:
        peak["device"] = round(on_device[1] / 2**20, 1)
    return peak
