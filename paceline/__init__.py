"""Paceline: training on a parameter server that you can loosen or tighten."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.api.launch_function import launch
    from paceline.api.log_values import log
    from paceline.api.script import epochs, evaluate, loader, notice, rank, sampler, split, steps, workers, wrap
    from paceline.api.train import Result, train
    from paceline.callback import Callback

_HOME = {
    "Callback": "callback",
    "Result": "api.train",
    "epochs": "api.script",
    "evaluate": "api.script",
    "launch": "api.launch_function",
    "loader": "api.script",
    "log": "api.log_values",
    "notice": "api.script",
    "rank": "api.script",
    "sampler": "api.script",
    "split": "api.script",
    "steps": "api.script",
    "train": "api.train",
    "workers": "api.script",
    "wrap": "api.script",
}
"""Where each public name is."""
__all__ = [
    "Callback",
    "Result",
    "epochs",
    "evaluate",
    "launch",
    "loader",
    "log",
    "notice",
    "rank",
    "sampler",
    "split",
    "steps",
    "train",
    "workers",
    "wrap",
]

if not TYPE_CHECKING:  # a type checker would accept any name
    import paceline.launch  # noqa: F401  the package can be called
    from paceline.settings.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, _HOME)
