"""Paceline: training on a parameter server that you can loosen or tighten."""

from typing import TYPE_CHECKING, Any

from paceline.own_folder import installed_first

if TYPE_CHECKING:
    from paceline.api import Result, connect, train

__all__ = ["Result", "connect", "train"]


def __getattr__(name: str) -> Any:
    """The Python API when it is first used: servers and the command line import this package, too, and need none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'paceline' has no attribute '{name}'; it has {', '.join(__all__)}.")
    with installed_first():
        from paceline import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
