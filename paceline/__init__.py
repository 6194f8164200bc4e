"""Paceline: training on a parameter server that you can loosen or tighten."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.api import Result, connect, train

__all__ = ["Result", "connect", "train"]

if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        """The Python API when it is first used: servers and the command line import this package, too, and need none of it."""
        if name not in __all__:
            raise AttributeError(f"module 'paceline' has no attribute '{name}'; it has {', '.join(__all__)}.")
        from paceline.own_folder import installed_first

        with installed_first():
            from paceline import api

        return getattr(api, name)


def __dir__() -> list[str]:
    """What is public, for completion in shells and notebooks."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
