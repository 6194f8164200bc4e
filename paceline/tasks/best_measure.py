"""What a task's file says of its measures: BEST, which decides what model is the best one, and METRICS_ARE_MEANS."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from paceline.core.chief.best_model import Measure
from paceline.core.errors import ConfigError


def best_of(module: ModuleType, is_sparse: bool) -> Measure | None:
    """BEST of the file; None where it has none. `is_sparse`: it has a linear model. ConfigError where it is no measure, or
    names what is not measured of a linear model, or without metrics()."""
    if not hasattr(module, "BEST"):
        return None
    where = _where(str(module.__file__))
    found = Measure.parse(module.BEST, where)
    if is_sparse:
        from paceline.core.linear.score import Score  # with its loops, which other tasks need not load

        found.check([name for name in Score._fields if name != "penalty"], where)
    elif not hasattr(module, "metrics"):
        found.check(("accuracy",), where)
    return found


def with_best(metrics: Callable[..., Any], best: Measure, file: str) -> Callable[..., Any]:
    """metrics() that refuses a result without the task's own measure."""

    @functools.wraps(metrics)
    def checked(outputs: Any, labels: Any) -> Any:
        found = metrics(outputs, labels)
        if isinstance(found, dict):
            best.check([name for name in found if isinstance(name, str)], _where(file))
        return found

    return checked


def are_means(module: ModuleType) -> bool:
    """Whether metrics() gives means over the examples: METRICS_ARE_MEANS, and so for a file without metrics()."""
    found = getattr(module, "METRICS_ARE_MEANS", not hasattr(module, "metrics"))
    if not isinstance(found, bool):
        raise ConfigError(f"METRICS_ARE_MEANS in {module.__file__} is {found!r}; expected True or False.")
    return found


def _where(file: str) -> str:
    return f"BEST in {file}"
