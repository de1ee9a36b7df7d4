"""Registers with Keras what a saved model is made of, as soon as Keras is there.

`keras.saving.load_model` knows our classes by the names under which their modules register them.
These modules import Keras, which `import softbench` alone does not.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from softbench.common import BACKENDS

SAVED = ("metrics", "models", "prediction")  # with what these import: all that Keras saves


def register() -> None:
    """Imports the modules of what Keras saves, on a backend that they run on."""
    if sys.modules["keras"].backend.backend() not in BACKENDS:
        return  # `softbench.datasets` is of use there; a head says what is wrong
    for name in SAVED:
        importlib.import_module(f"softbench.{name}")


class AfterKeras(MetaPathFinder):
    """Calls `register` once, after the first import that brings Keras in.

    If that is the import of a module of ours, `register` has to wait for its end: a module that is
    half imported has no names yet.
    """

    def __init__(self) -> None:
        self.depth = 0  # of imports of Keras and of our modules, one inside the other

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders have, if the module is Keras or ours."""
        if fullname != "keras" and not fullname.startswith("softbench."):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec), None)
        if spec and spec.loader:
            self._follow(spec)
        return spec

    def _follow(self, spec: ModuleSpec) -> None:
        execute = spec.loader.exec_module  # type: ignore[union-attr]

        def executed(module: ModuleType) -> None:
            self.depth += 1
            try:
                execute(module)
            finally:
                self.depth -= 1
            if not self.depth and "keras" in sys.modules and self in sys.meta_path:
                sys.meta_path.remove(self)
                register()

        spec.loader.exec_module = executed  # type: ignore[union-attr, method-assign]


def register_after_keras() -> None:
    """Now if Keras has been imported, else after its import."""
    if "keras" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, AfterKeras())
