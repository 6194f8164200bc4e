"""A registry is a folder: one extension is one file, and the file's stem is its name in the config."""

import difflib
import importlib
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from paceline.core.errors import ConfigError
from paceline.core.folders import listed as listed
from paceline.core.folders import names as names

T = TypeVar("T")


def find(package: str, base: type[T], name: str) -> type[T]:
    """The one subclass of `base` that the file `name` of the package defines; ConfigError names the nearest file."""
    known = names(package)
    kind = package.rsplit(".", 1)[-1].replace("_", " ")
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"There is no '{name}' among the {kind}: {', '.join(known)}.{hint}")
    module = importlib.import_module(f"{package}.{name}")
    found = [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(f"{package}.{name} must define exactly one {base.__name__}, found {len(found)}.")
    return found[0]


def build(package: str, base: type[T], name: str, options: dict[str, Any], key: str) -> T:
    """An instance of the extension `name` with its options checked; errors speak of `key` (policy, codec, ...)."""
    kind = find(package, base, name)
    try:
        return kind(**options)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, kind, f"{key}."))) from error


def explain(error: ValidationError, model: type, prefix: str = "") -> list[str]:
    """One sentence per mistake that pydantic found: the key, what was seen, what is expected, the nearest key."""
    sentences = []
    for mistake in error.errors():
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
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _fields(model: type[BaseModel], place: list[str]) -> dict[str, FieldInfo]:
    if not place:
        return {field.alias or name: field for name, field in model.model_fields.items()}
    field = model.model_fields.get(place[0])
    section = None if field is None else section_of(field)
    return {} if section is None else _fields(section, place[1:])
