"""Paceline: training on a parameter server that you can loosen or tighten."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.api import Result, connect, train
    from paceline.callback import Callback
    from paceline.log_values import log
    from paceline.script import epochs, evaluate, loader, rank, sampler, split, steps, workers, wrap

_HOME = {
    "Callback": "callback",
    "Result": "api",
    "connect": "api",
    "train": "api",
    "epochs": "script",
    "evaluate": "script",
    "loader": "script",
    "log": "log_values",
    "rank": "script",
    "sampler": "script",
    "split": "script",
    "steps": "script",
    "workers": "script",
    "wrap": "script",
}
"""Where each public name is."""
__all__ = [
    "Callback",
    "Result",
    "connect",
    "epochs",
    "evaluate",
    "loader",
    "log",
    "rank",
    "sampler",
    "split",
    "steps",
    "train",
    "workers",
    "wrap",
]

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """The Python API when it is first used: servers and the command line import this package, too, and need none of it."""
        if name not in _HOME:
            raise AttributeError(f"module 'paceline' has no attribute '{name}'; it has {', '.join(__all__)}.")
        from importlib import import_module

        from paceline.own_folder import installed_first

        with installed_first():
            home = import_module(f"paceline.{_HOME[name]}")

        found = globals()[name] = getattr(home, name)  # the next time it is here: a script logs at every step
        return found


def __dir__() -> list[str]:
    """What is public, for completion in shells and notebooks."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
