"""Settings as messages, and back: a policy with its options, and what a script describes."""

from collections.abc import Iterable, Mapping
from typing import Any

from paceline.core.errors import ConfigError
from paceline.v1.settings_pb2 import Policy, Setting, SettingList, Value, ValueList

_WHOLE = 1 << 63
"""A whole number lies below it, and not below its negative."""


def policy_message(policy: Mapping[str, Any]) -> Policy:
    """Returns a policy's message. `policy`: its options by name, and under `name` what it is called, if it says so."""
    options = {name: value for name, value in policy.items() if name != "name"}
    return Policy(name=policy.get("name", ""), options=settings_message(options))


def policy_value(message: Policy) -> dict[str, Any]:
    """Returns the policy that a message holds: `name` first, unless it is empty, then its options."""
    named = {"name": message.name} if message.name else {}
    return named | settings_value(message.options)


def settings_message(settings: Mapping[str, Any]) -> list[Setting]:
    """Returns settings as messages. Raises ConfigError for a whole number of more than 64 bits."""
    return [Setting(name=name, value=_message(name, value)) for name, value in settings.items()]


def settings_value(settings: Iterable[Setting]) -> dict[str, Any]:
    """Returns the settings that messages hold."""
    return {setting.name: _value(setting.value) for setting in settings}


def _message(name: str, value: Any) -> Value:
    """Returns the value of the setting of that name as a message. Raises TypeError where YAML has nothing like it."""
    match value:
        case None:
            return Value()
        case bool():
            return Value(truth=value)
        case int():
            if not -_WHOLE <= value < _WHOLE:
                raise ConfigError(f"{name} is {value}; expected a whole number of at most 64 bits.")
            return Value(whole=value)
        case float():
            return Value(number=value)
        case str():
            return Value(text=value)
        case Mapping():
            return Value(section=SettingList(settings=settings_message(value)))
        case list() | tuple():
            return Value(list=ValueList(values=[_message(name, each) for each in value]))
    raise TypeError(f"{name} is a {type(value).__name__}, which is no setting.")


def _value(message: Value) -> Any:
    kind = message.WhichOneof("kind")
    if kind == "list":
        return [_value(each) for each in message.list.values]
    if kind == "section":
        return settings_value(message.section.settings)
    return None if kind is None else getattr(message, kind)
