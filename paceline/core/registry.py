"""Finds extensions by the name in the config: each file in a registry's folder is one extension, named by the file's stem;
users add their own files and packages."""

import difflib
import importlib
from types import ModuleType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from paceline.core.errors import ConfigError
from paceline.core.folders import kinds
from paceline.core.folders import listed as listed
from paceline.core.folders import names as names

T = TypeVar("T")


class Outside:
    """Extensions from outside our folders; this base class has none."""

    def names(self, package: str) -> tuple[str, ...]:
        """The extensions that a name alone selects."""
        return ()

    def find(self, package: str, base: type[T], name: str) -> type[T] | None:
        """The extension of that name for the package's registry; None if there is none. ConfigError if it can't be used."""
        return None


_outside = [Outside()]


def look_in(outside: Outside) -> None:
    """Where this process looks for extensions outside the folders. A layer that may read files sets it once."""
    _outside[:] = [outside]


def find(package: str, base: type[T], name: str) -> type[T]:
    """The one subclass of `base` in the package's file `name`, or the outside extension of that name; ConfigError names
    the nearest one."""
    if name not in names(package):
        outside = _outside[0].find(package, base, name)
        if outside is None:
            raise _unknown(package, name)
        return outside
    found = defined(importlib.import_module(f"{package}.{name}"), base)
    if len(found) != 1:
        raise ConfigError(f"{package}.{name} must define exactly one {base.__name__}, found {len(found)}.")
    return found[0]


def defined(module: ModuleType, base: type[T]) -> list[type[T]]:
    """The subclasses of `base` that the module itself defines."""
    return [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == module.__name__
    ]


_GONE = {"dc_asgd": " It was here before 0.1.0; take staleness_aware or dana."}
"""Names that were, and what does their work."""


def _unknown(package: str, name: str) -> ConfigError:
    known = (*names(package), *_outside[0].names(package))
    kind = kinds(package).replace("_", " ")
    near = difflib.get_close_matches(name, known, 1)
    hint = _GONE.get(name) or (f" Did you mean '{near[0]}'?" if near else "")
    return ConfigError(f"There is no '{name}' among the {kind}: {', '.join(known)}.{hint}")


def build(package: str, base: type[T], name: str, options: dict[str, Any], key: str) -> T:
    """An instance of the extension `name` with its options checked; errors name `key` (policy, codec, ...)."""
    kind = find(package, base, name)
    try:
        return kind(**options)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, kind, f"{key}."))) from error


def explain(error: ValidationError, model: type, prefix: str = "") -> list[str]:
    """One sentence per mistake that pydantic found: the key, what was seen, what was expected, the nearest key."""
    sentences = []
    for mistake in error.errors():
        if mistake["type"] == "default_factory_not_called":  # what it depends on is another of the mistakes
            continue
        place = [str(part) for part in mistake["loc"]]
        key = (prefix + ".".join(place)).rstrip(".")
        if mistake["type"] == "extra_forbidden":
            known = list(_fields(model, place[:-1]))
            near = difflib.get_close_matches(place[-1], known, 1)
            hint = f" Did you mean '{near[0]}'?" if near else f" Known here: {', '.join(sorted(known)) or 'none'}."
            sentences.append(f"{key}: there is no such setting.{hint}")
        elif mistake["type"] == "value_error":
            sentences.append(f"{key}: {mistake['ctx']['error']}" if key else str(mistake["ctx"]["error"]))
        elif mistake["type"] == "model_type":
            first = next(iter(_fields(model, place)), "name")
            sentences.append(f"{key}: got {mistake['input']!r}; it is a section: set its keys, like {key}.{first}.")
        else:
            sentences.append(f"{key}: got {mistake['input']!r}; {mistake['msg'].lower()}.")
    return sentences


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a section of settings, or may be one."""
    return _section_in(field.annotation)


def _section_in(kind: Any) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for part in get_args(kind) if (found := _section_in(part)) is not None), None)


def _fields(model: type[BaseModel], place: list[str]) -> dict[str, FieldInfo]:
    if not place:
        return {field.alias or name: field for name, field in model.model_fields.items()}
    field = model.model_fields.get(place[0])
    section = None if field is None else section_of(field)
    return {} if section is None else _fields(section, place[1:])
