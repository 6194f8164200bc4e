"""How the config names an extension with its options, and how an extension declares what it can't be combined with."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from paceline.core.errors import ConfigError


class Section(BaseModel):
    """One part of the config: frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_texts(cls, values: Any) -> Any:
        """Files of the run and messages hold texts in UTF-8, but a file's name may be any bytes."""
        for key, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, str):
                try:
                    value.encode()
                except UnicodeEncodeError as error:
                    raise ValueError(
                        f"{key} is {value!r}, a name that is no UTF-8: rename the file or folder"
                    ) from error
        return values


class Options(BaseModel):
    """A named extension and its own options, e.g. {name: ssp, bound: 3}; the extension itself checks them."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Extension(BaseModel):
    """An extension that keeps state besides its options, in private attributes. Every message reads these, so they are
    properties: 0.1 us each, where pydantic's own access takes 3.3."""

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        for name in cls.__private_attributes__:
            setattr(cls, name, _held(name))


def _held(name: str) -> property:
    return property(lambda extension: extension.__pydantic_private__[name])


@dataclass(frozen=True, slots=True, eq=False)
class SettingsRule:
    """Settings that can't be combined. An extension lists its own rules in its ClassVar `rules`, which add to those of its
    base classes; all others are in `paceline.core.setting_rules`."""

    condition: Callable[[Any, Any], bool]
    """True if the config breaks the rule, given the rule's owner (an extension, built, or the value of a setting) and the
    whole config."""
    sentence: str
    """What was seen, what was expected, what to do. `{workers}` or `{codec.momentum:g}` is the value of a setting,
    `{own.upper}` an attribute of the extension, `{key}` the setting that names it, `{instead}` the result of `instead`,
    any other name one of `words`."""
    words: Mapping[str, Callable[[Any, Any], object]] = field(default_factory=dict)
    """Further words of the sentence, computed from the same two arguments."""
    instead: Callable[[], str] | None = None
    """The names of alternatives that work, if they depend on nothing."""

    def message(self, own: Any, config: Any, key: str) -> str:
        """The sentence about these settings; ConfigError if they don't fit into it. `key`: the setting that names `own`,
        like codec.push."""
        words: dict[str, object] = {name: word(own, config) for name, word in self.words.items()}
        if self.instead is not None:
            words["instead"] = self.instead()
        try:
            return _SPOKEN.vformat(self.sentence, (), {**dict(config), **words, "own": own, "key": key})
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ConfigError(
                f"{place_of(self.condition)}: settings break the rule {self.sentence!r}, but its text can't be "
                f"filled in: {error}. Correct the text."
            ) from error

    @property
    def outline(self) -> str:
        """The sentence about any settings, with dots for what depends on them."""
        known = {} if self.instead is None else {"instead": self.instead()}
        parts = [(text, name) for text, name, _, _ in _SPOKEN.parse(self.sentence)]
        dotted = "".join(text + ("" if name is None else known.get(name, "…")) for text, name in parts)
        return re.sub(r"…[ …]*…", "…", dotted)

    @property
    def names(self) -> list[str]:
        """The placeholders of the sentence; ValueError if it can't be parsed."""
        return [name for _, name, _, _ in _SPOKEN.parse(self.sentence) if name is not None]


class _Spoken(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """Several values in brackets, as they are written in YAML."""
        return str(super().format_field(list(value) if isinstance(value, tuple) else value, format_spec))


_SPOKEN = _Spoken()


def own_rules(kind: type) -> Iterator[SettingsRule]:
    """The rules that a class brings, those of its base classes first."""
    for base in reversed(kind.__mro__):
        yield from vars(base).get("rules", ())


def place_of(function: Any) -> str:
    """'mine.py, line 9': where a function of an extension begins."""
    code = getattr(function, "__code__", None)
    return (
        str(getattr(function, "__module__", "?")) if code is None else f"{code.co_filename}, line {code.co_firstlineno}"
    )


def stem_of(kind: type) -> str:
    """The name of the class in the config: the stem of its file."""
    return kind.__module__.rpartition(".")[2]


def named(value: Any) -> Any:
    """'stratified' as {'name': 'stratified'}: an extension whose options all have their defaults."""
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[Options, BeforeValidator(named)]
