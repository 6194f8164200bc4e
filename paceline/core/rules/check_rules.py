"""Which settings go together: one table of those that do not, each with what is said of it. `load` walks it once for every
config, and docs/reference/settings.md prints it."""

from collections.abc import Mapping
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.extension import SettingsRule, own_rules
from paceline.core.rules.rules_of_extensions import CHOSEN
from paceline.core.rules.rules_of_settings import COMMANDS, SETTINGS, Rules
from paceline.core.settings.config import Config
from paceline.core.steps.optimizer import build_optimizer
from paceline.core.sync.policy import build_policy

TABLE: Mapping[str, Rules] = {**SETTINGS, **CHOSEN, **COMMANDS}


def check(config: Config, chosen: Mapping[str, Any]) -> None:
    """ConfigError tells all that does not go together in this config. `chosen`: the extensions that it names."""
    refuse(config, {**{subject: getattr(config, subject) for subject in SETTINGS}, **chosen})


def always_chosen(config: Config) -> dict[str, Any]:
    """The extensions that every config names, by the setting that does, with servers or without. ConfigError where there is no
    such thing, or its options are wrong."""
    optimizer = build_optimizer(config.optimizer)
    return {
        "optimizer": optimizer,
        **{f"optimizer.groups.{number}": member for number, member in enumerate(optimizer.members[1:])},
        "policy": build_policy(config.policy),
        "codec.push": config.codec.push_codec,
        "codec.pull": config.codec.pull_codec,
    }


def refuse(config: Config, subjects: Mapping[str, Any]) -> None:
    """ConfigError tells all that these subjects, with what each of them is, do not go with."""
    found = [
        rule.said(own, config, subject) for subject, own in subjects.items() for rule in broken(subject, own, config)
    ]
    if found:
        raise ConfigError("\n".join(found))


def broken(subject: str, own: Any, config: Config) -> list[SettingsRule]:
    """The rules of this subject that the config breaks, and those that an extension brings with it."""
    rules = (*TABLE.get(subject, ()), *own_rules(type(own)))
    return [rule for rule in rules if rule.condition(own, config)]
