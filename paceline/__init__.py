"""Paceline: training on a parameter server that you can loosen or tighten."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.api.log_values import log
    from paceline.api.script import epochs, evaluate, loader, rank, sampler, split, steps, workers, wrap
    from paceline.api.train_and_connect import Result, connect, train
    from paceline.callback import Callback

_HOME = {
    "Callback": "callback",
    "Result": "api.train_and_connect",
    "connect": "api.train_and_connect",
    "train": "api.train_and_connect",
    "epochs": "api.script",
    "evaluate": "api.script",
    "loader": "api.script",
    "log": "api.log_values",
    "rank": "api.script",
    "sampler": "api.script",
    "split": "api.script",
    "steps": "api.script",
    "workers": "api.script",
    "wrap": "api.script",
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

        from paceline.settings.own_folder import installed_first

        with installed_first():
            home = import_module(f"paceline.{_HOME[name]}")

        found = globals()[name] = getattr(home, name)  # the next time it is here: a script logs at every step
        return found


def __dir__() -> list[str]:
    """What is public, for completion in shells and notebooks."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
