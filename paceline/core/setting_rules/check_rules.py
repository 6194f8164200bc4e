"""Checks that settings can be combined: one table of those that can't, each with its message. `load` checks every config
against it once, and docs/reference/settings.md prints it."""

from collections.abc import Mapping
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.extension import SettingsRule, own_rules
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.policy import build_policy
from paceline.core.setting_rules.rules_of_extensions import CHOSEN
from paceline.core.setting_rules.rules_of_settings import COMMANDS, SETTINGS, Rules
from paceline.core.settings.config import Config

TABLE: Mapping[str, Rules] = {**SETTINGS, **CHOSEN, **COMMANDS}


def check(config: Config, chosen: Mapping[str, Any]) -> None:
    """Raises a ConfigError that lists all conflicts in this config. `chosen`: the extensions that it names."""
    refuse(config, {**{subject: getattr(config, subject) for subject in SETTINGS}, **chosen})


def always_chosen(config: Config) -> dict[str, Any]:
    """The extensions that every config names, by setting, with or without servers. ConfigError if one does not exist or
    its options are wrong."""
    optimizer = build_optimizer(config.optimizer)
    return {
        "optimizer": optimizer,
        **{f"optimizer.groups.{number}": member for number, member in enumerate(optimizer.members[1:])},
        "policy": build_policy(config.policy),
        "codec.push": config.codec.push_codec,
        "codec.pull": config.codec.pull_codec,
    }


def refuse(config: Config, subjects: Mapping[str, Any]) -> None:
    """Raises a ConfigError that lists all rules of these subjects that the config breaks."""
    found = [
        rule.message(own, config, subject) for subject, own in subjects.items() for rule in broken(subject, own, config)
    ]
    if found:
        raise ConfigError("\n".join(found))


def broken(subject: str, own: Any, config: Config) -> list[SettingsRule]:
    """The broken rules of this subject, including those that an extension brings."""
    rules = (*TABLE.get(subject, ()), *own_rules(type(own)))
    return [rule for rule in rules if rule.condition(own, config)]
