"""The wheel, installed where nothing of the checkout is: README's code, the command, the pages."""

import os
import re
import subprocess
import sys
import venv

import pytest
from shipped import ROOT

pytestmark = pytest.mark.slow  # installs JAX


def run(command, folder):
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**keep, "KERAS_BACKEND": "jax", "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_works_outside_of_the_checkout(tmp_path):
    built = [sys.executable, "-m", "pip", "wheel", "--no-deps", f"--wheel-dir={tmp_path}", ROOT]
    run(built, tmp_path)
    (wheel,) = tmp_path.glob("softbench-*.whl")
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", f"{wheel}[jax,report]"], tmp_path)
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    code = code.replace("1_000_000", "2_000") + "print(softbench.__file__, len(ids[0]))"
    where, count = run([python, "-c", code], tmp_path).splitlines()[-1].split()
    assert str(tmp_path / "clean") in where and count == "5"
    command = tmp_path / "clean" / "bin" / "softbench"
    made = ["--config=quickstart", "--config.preset=smoke", "--config.methods=full,uniform"]
    made += ["--backend=jax", "--workdir=out"]
    assert "perplexity" in run([command, *made], tmp_path)
    assert (tmp_path / "out" / "report.html").is_file()
    run([f"{command}-report", "--results=out"], tmp_path)
    run([f"{command}-report", "--results=out", "--check"], tmp_path)
