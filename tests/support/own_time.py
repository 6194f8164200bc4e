"""Another time for one module: threads that other tests have left keep theirs."""

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def own_time(patch: pytest.MonkeyPatch, module: ModuleType, **functions: Callable[..., Any]) -> None:
    """In the module, which has imported `time`, these functions of it are others until the test ends."""
    patch.setattr(module, "time", SimpleNamespace(**{**vars(time), **functions}))


class Clock:
    """Stands still unless a test moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
