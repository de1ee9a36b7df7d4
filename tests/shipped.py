"""The configs that the project ships."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))


def config_path(name):
    return ROOT / "configs" / f"{name}.py"


def get_config(path, *selection):
    """The ConfigDict of a config file; `selection` is what stands after the colon."""
    spec = importlib.util.spec_from_file_location("some_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(*selection)
