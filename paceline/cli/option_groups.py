"""Options that several commands take alike, written once."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: a parameter whose type is a dataclass becomes the dataclass's fields, an option each."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    shown = {part.name: part for part in _parameters(command, hints, groups)}

    @wraps(command)
    def called(**words: Any) -> None:
        for name, kind in groups.items():
            words[name] = kind(**{field.name: words.pop(field.name) for field in fields(kind)})
        command(**words)

    called.__signature__ = inspect.Signature([*shown.values()])  # type: ignore[attr-defined]
    called.__annotations__ = {name: part.annotation for name, part in shown.items()}
    return called


def _parameters(
    command: Callable[..., None], hints: dict[str, Any], groups: dict[str, Any]
) -> Iterator[inspect.Parameter]:
    for one in inspect.signature(command).parameters.values():
        if one.name not in groups:
            yield one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name])
            continue
        kind = groups[one.name]
        inner = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            default = one.empty if field.default is MISSING else field.default
            yield inspect.Parameter(field.name, one.KEYWORD_ONLY, default=default, annotation=inner[field.name])
