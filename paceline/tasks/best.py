"""What a task's file says of its measures: BEST, which decides what model is the best one, and METRICS_ARE_MEANS."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.measure import Measure


def best_of(module: ModuleType) -> Measure | None:
    """BEST of the file; None where it has none. ConfigError where it is no measure, or names what the default metrics
    don't hold."""
    if not hasattr(module, "BEST"):
        return None
    where = _where(str(module.__file__))
    found = Measure.parse(module.BEST, where)
    settings = getattr(module, "SETTINGS", {})
    is_sparse = isinstance(settings, dict) and settings.get("updates") == "sparse"
    if not is_sparse and not hasattr(module, "metrics"):
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
