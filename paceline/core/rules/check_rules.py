"""Which settings go together: one table of those that do not, each with what is said of it. `load` walks it once for every
config, and docs/settings.md prints it."""

import inspect
from collections.abc import Mapping
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.extension import Rule, own_rules
from paceline.core.rules.rules_of_extensions import CHOSEN
from paceline.core.rules.rules_of_settings import COMMANDS, SETTINGS, Rules
from paceline.core.settings.config import Config

TABLE: Mapping[str, Rules] = {**SETTINGS, **CHOSEN, **COMMANDS}


def check(config: Config, chosen: Mapping[str, Any]) -> None:
    """ConfigError tells all that does not go together in this config. `chosen`: the extensions that it names."""
    refuse(config, {**{subject: getattr(config, subject) for subject in SETTINGS}, **chosen})


def refuse(config: Config, subjects: Mapping[str, Any]) -> None:
    """ConfigError tells all that these subjects, with what each of them is, do not go with."""
    found = [rule.said(own, config) for subject, own in subjects.items() for rule in broken(subject, own, config)]
    if found:
        raise ConfigError("\n".join(found))


def broken(subject: str, own: Any, config: Config) -> list[Rule]:
    """The rules of this subject that the config breaks, and those that an extension brings with it."""
    rules = (*TABLE.get(subject, ()), *own_rules(type(own)))
    return [rule for rule in rules if rule.condition(own, config)]


def fault_in_rules(kind: type) -> str | None:
    """What is wrong with the rules that an extension of a user's brings, in words; None: nothing."""
    rules = vars(kind).get("rules", ())
    if not isinstance(rules, tuple) or not all(isinstance(rule, Rule) and callable(rule.condition) for rule in rules):
        return "has `rules` that are no tuple of Rule, each with a condition and a sentence, like (Rule(..., ...),)"
    for rule in rules:
        taken = inspect.signature(rule.condition)
        try:
            taken.bind(None, None)
        except TypeError:
            return f"has a rule whose condition takes {taken}; it gets what has the rule, and the config"
        word = rule.unknown_word(kind, Config.model_fields)
        if word is not None:
            expected = "expected a setting, {own.X} for what it has itself, or a name in `words`"
            return f"has a rule that says {{{word}}}; {expected}"
    return None
