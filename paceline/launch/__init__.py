"""Runs that are started and watched: on this machine, on several, on a cluster."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`paceline.launch(function)`, for this package has the name of that function."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("paceline.api.launch_function").launch(*args, **options)


sys.modules[__name__].__class__ = _Callable
