"""The enums of the messages, and their values as core calls them: `RunPhase.TRAINING` is RUN_PHASE_TRAINING on the wire."""

import re
from functools import cache
from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message


@cache
def number_of(kind: EnumDescriptor, value: str) -> Any:
    """Returns the number of a value that core calls so, like "training". Raises ValueError where the enum has none."""
    found = kind.values_by_name.get(f"{_prefix(kind)}{value.upper()}")
    if found is None:
        known = ", ".join(_word(kind, each.name) for each in kind.values[1:])
        raise ValueError(f"{kind.name} has no value {value!r}, only {known}.")
    return found.number


def value_of(message: Message, field: str) -> str:
    """Returns what core calls the value of an enum field: "unspecified" where the sender has left it out, and the number
    where a later release sent it."""
    return _value(message.DESCRIPTOR.fields_by_name[field].enum_type, getattr(message, field))


def phase_of(message: Message) -> str:
    """Returns the phase that a message says, of a run, a worker or a slice: equal to that of RunPhase, say."""
    return value_of(message, "phase")


@cache
def _value(kind: EnumDescriptor, number: int) -> str:
    found = kind.values_by_number.get(number)
    return str(number) if found is None else _word(kind, found.name)


def _word(kind: EnumDescriptor, name: str) -> str:
    return name.removeprefix(_prefix(kind)).lower()


def _prefix(kind: EnumDescriptor) -> str:
    """Returns what the names of its values begin with: RUN_PHASE_ for RunPhase."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.name).upper() + "_"
