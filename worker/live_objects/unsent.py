"""Says which part of a user's objects can't be sent to other processes, and what to do about it."""

import types
from collections.abc import Iterator, Mapping
from typing import Any

from paceline.core.errors import ConfigError, PacelineError
from paceline.processes.packing import can_be_packed, pack

_DEPTH = 8
_ADVICE = (
    (("lock", "Condition", "Event", "Semaphore", "Thread"), "make it where it is used first, or leave it out in __getstate__"),
    (("generator", "coroutine", "async_generator"), "make a list of it, or a function that gives a new one each time"),
    (("TextIOWrapper", "BufferedReader", "BufferedWriter", "BufferedRandom", "FileIO"), "keep the path, and open the file "
     "where it is read, in __getitem__ say"),
    (("socket", "SSLSocket", "Connection"), "keep its address, and connect where it is used first"),
)  # fmt: skip
_ELSE = "make it where it is used first, or leave it out in __getstate__"


def pack_or_refuse(objects: Any, arguments: Mapping[str, Any]) -> int:
    """Returns the descriptor of memory with the objects. ConfigError names which of these arguments, that they are made of,
    can't be sent."""
    try:
        return pack(objects)
    except PacelineError:
        raise
    except Exception as error:
        raise refusal(arguments, error) from error


def refusal(arguments: Mapping[str, Any], error: Exception) -> ConfigError:
    for name, value in arguments.items():
        why = can_be_packed(value)
        if why is not None:
            path, culprit, why = _culprit(name, value, why, 0)
            kind = type(culprit).__name__
            advice = next((told for kinds, told in _ADVICE if kind in kinds), _ELSE)
            what = f"its {path}" if path else "it"
            return ConfigError(
                f"{name} can't be sent to the run's processes: {what} is a {kind} ({why}). What to do: {advice}."
            )
    return ConfigError(f"The objects can't be sent to the run's processes: {error}.")


def _culprit(name: str, found: Any, why: Exception, depth: int, path: str = "") -> tuple[str, Any, Exception]:
    """The deepest part that fails for itself."""
    for step, part in _parts(found) if depth < _DEPTH else ():
        inner = can_be_packed(part)
        if inner is not None:
            return _culprit(name, part, inner, depth + 1, f"{path}{step}" if path else step.lstrip("."))
    return path, found, why


def _parts(found: Any) -> Iterator[tuple[str, Any]]:
    """What it is made of, each with its name in it."""
    if isinstance(found, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in found.items())
    elif isinstance(found, (list, tuple, set, frozenset)):
        yield from ((f"[{number}]", value) for number, value in enumerate(found))
    elif isinstance(found, types.MethodType):
        yield ".self", found.__self__
    elif isinstance(found, types.FunctionType):
        code = found.__code__
        for variable, cell in zip(code.co_freevars, found.__closure__ or (), strict=True):
            yield f".{variable}", cell.cell_contents
        for variable in code.co_names:
            if variable in found.__globals__:
                yield f".{variable}", found.__globals__[variable]
    elif not isinstance(found, (type, types.ModuleType)):
        yield from ((f".{attribute}", value) for attribute, value in _attributes(found).items())


def _attributes(found: Any) -> dict[str, Any]:
    own: dict[str, Any] = getattr(found, "__dict__", {})
    modules = own.get("_modules", {})
    slots = {name: getattr(found, name) for name in getattr(type(found), "__slots__", ()) if hasattr(found, name)}
    return {**(modules if isinstance(modules, dict) else {}), **own, **slots}
