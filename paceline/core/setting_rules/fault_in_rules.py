"""Checks the rules of a user's extension before any run."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from paceline.core.extension import Options, SettingsRule
from paceline.core.registry import section_of
from paceline.core.settings.config import Config


def fault_in_rules(kind: type) -> str | None:
    """What is wrong with the rules of a user's extension, in words; None if nothing is."""
    rules = vars(kind).get("rules", ())
    if not isinstance(rules, tuple) or not all(isinstance(rule, SettingsRule) for rule in rules):
        return "has `rules`, which must be a tuple of SettingsRule, like (SettingsRule(condition, sentence),)"
    return next((fault for rule in rules if (fault := _fault(rule, kind))), None)


def _fault(rule: SettingsRule, kind: type) -> str | None:
    if not isinstance(rule.sentence, str):
        return f"has a rule whose sentence is {rule.sentence!r}; it must be a text"
    if not isinstance(rule.words, Mapping):
        return f"has a rule whose `words` are {rule.words!r}; they must be a dict: each name with its function"
    if fault := _call_fault("condition", rule.condition, 2):
        return fault
    for name, word in rule.words.items():
        if fault := _call_fault(f"word {name!r}", word, 2):
            return fault
    if rule.instead is not None and (fault := _call_fault("`instead`", rule.instead, 0)):
        return fault
    try:
        names = rule.names
    except ValueError as error:
        return f"has a rule whose sentence can't be read: {error}. A bracket that is meant is written twice, like {{{{"
    for name in names:
        if not _is_known(name, rule, kind):
            expected = "expected a setting, {own.X} for what it has itself, or a name in `words`"
            return f"has a rule that says {{{name}}}; {expected}"
    return None


def _call_fault(what: str, function: Callable[..., Any], arguments: int) -> str | None:
    """Why it can't be called with that many arguments."""
    expected = "it gets what has the rule, and the config" if arguments else "it gets nothing"
    if not callable(function):
        return f"has a rule whose {what} is {function!r}; it must be a function, and {expected}"
    try:
        taken = inspect.signature(function)
    except ValueError:  # some functions written in C
        return None
    try:
        taken.bind(*(None,) * arguments)
    except TypeError:
        return f"has a rule whose {what} takes {taken}; {expected}"
    return None


def _is_known(name: str, rule: SettingsRule, kind: type) -> bool:
    """Whether a name in the rule's sentence exists; what is in [] can't be checked before it is formatted."""
    first, *rest = name.partition("[")[0].split(".")
    if first == "own":
        return not rest or rest[0] in getattr(kind, "model_fields", {}) or hasattr(kind, rest[0])
    if first == "key" or first in rule.words or (first == "instead" and rule.instead is not None):
        return True
    return first in Config.model_fields and _has(Config, [first, *rest])


def _has(section: type[BaseModel], keys: list[str]) -> bool:
    """Whether a section has the first key, its value the second, and so on as long as the values are sections."""
    first, *rest = keys
    field = section.model_fields.get(first)
    if field is None:
        return issubclass(section, Options) or hasattr(section, first)
    inner = section_of(field)
    return not rest or (inner is not None and _has(inner, rest))
