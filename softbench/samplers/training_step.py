"""Counting training steps: a head may draw several sets of classes in one."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# The samplers, by `id`, that have counted the training step which is being computed.
_counted: ContextVar[set[int] | None] = ContextVar("counted", default=None)


@contextmanager
def one_training_step() -> Iterator[None]:
    """Within it, a sampler counts one training step however often it draws."""
    token = _counted.set(set())
    try:
        yield
    finally:
        _counted.reset(token)


def is_counted(sampler: Any) -> bool:
    """Whether `sampler` has asked before within `one_training_step`."""
    counted = _counted.get()
    if counted is None:
        return False
    found = id(sampler) in counted
    counted.add(id(sampler))
    return found
