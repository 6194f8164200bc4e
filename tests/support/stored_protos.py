"""What the messages of a release look like, as two small text files that later releases are compared with: every field with
its number and type, and every message's bytes. `python -m tools.stored_forms` writes them."""

import base64
import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from paceline.v1 import (
    parameter_service_pb2,
    peer_service_pb2,
    run_service_pb2,
    settings_pb2,
    shard_service_pb2,
    switch_pb2,
    tensor_pb2,
)

_FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (
        tensor_pb2,
        settings_pb2,
        switch_pb2,
        parameter_service_pb2,
        peer_service_pb2,
        run_service_pb2,
        shard_service_pb2,
    )
)
_TYPES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}
_FLOATS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)

Fields = dict[int, str]
"""Of a message: by number, 'type name' with what else counts on the wire before it."""


def messages() -> dict[str, Descriptor]:
    """Every message by its name, entries of maps like 'View.SeatsEntry' too."""
    return {found.full_name.removeprefix("paceline.v1."): found for file in _FILES for found in _nested(file)}


def fields(message: Descriptor) -> Fields:
    """Its fields as they are on the wire."""
    return {field.number: _field(field) for field in message.fields}


def reserved(message: Descriptor) -> tuple[set[int], set[str]]:
    """The numbers and names that no field may take."""
    proto = DescriptorProto()
    message.CopyToProto(proto)
    numbers = {number for each in proto.reserved_range for number in range(each.start, each.end)}
    return numbers, set(proto.reserved_name)


def enums() -> dict[str, dict[int, str]]:
    """The names of each enum's values, by number."""
    return {
        enum.name: {value.number: value.name for value in enum.values}
        for file in _FILES
        for enum in file.enum_types_by_name.values()
    }


def calls() -> dict[str, tuple[str, str]]:
    """What each call takes and gives, as 'Service.Method'; 'stream' before what may come many times."""
    found = {}
    for file in _FILES:
        for service in file.services_by_name.values():
            for method in service.methods:
                ends = ((method.input_type, method.client_streaming), (method.output_type, method.server_streaming))
                taken, given = (f"{'stream ' * streams}{end.name}" for end, streams in ends)
                found[f"{service.name}.{method.name}"] = (taken, given)
    return found


def table() -> str:
    """All of it as JSON, a line for each message."""
    parts: dict[str, dict[str, Any]] = {"messages": {}, "enums": {}, "calls": {}}
    for name, message in messages().items():
        numbers, names = reserved(message)
        parts["messages"][name] = {**fields(message), "reserved": [*sorted(numbers), *sorted(names)]}
    parts["enums"], parts["calls"] = dict(enums()), dict(calls())
    lines = [
        f'"{part}": {{\n'
        + ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
        + "\n}"
        for part, found in parts.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def filled(kind: Descriptor, only: dict[str, Fields], within: tuple[str, ...] = ()) -> Message:
    """A message of that kind with its own value in every field that `only` has: what `stored_bytes` keeps. A message that may
    hold itself is left out `within` one of its kind."""
    message = GetMessageClass(kind)()
    within = (*within, kind.full_name)
    for field in kind.fields:
        is_again = field.message_type is not None and field.message_type.full_name in within
        if field.number in only[_name(kind)] and not is_again:
            _fill(message, field, only, within)
    return message


def stored_bytes() -> str:
    """Every message with all of its fields set, serialised, in base64: JSON, a line for each."""
    known = {name: fields(message) for name, message in messages().items()}
    found = {
        name: base64.b64encode(filled(message, known).SerializeToString(deterministic=True)).decode()
        for name, message in messages().items()
        if not message.GetOptions().map_entry
    }
    return json.dumps(found, indent=0) + "\n"


def _name(kind: Descriptor | EnumDescriptor) -> str:
    return str(kind.full_name).removeprefix("paceline.v1.")


def _nested(found: Any) -> Iterator[Descriptor]:
    inner = found.message_types_by_name if isinstance(found, FileDescriptor) else found.nested_types_by_name
    for message in inner.values():
        yield message
        yield from _nested(message)


def _field(field: FieldDescriptor) -> str:
    kind = field.message_type or field.enum_type
    named = _name(kind) if kind is not None else _TYPES[field.type]
    presence = "optional " if field.has_presence and field.message_type is None else ""
    return f"{'repeated ' if field.is_repeated else presence}{named} {field.name}"


def _fill(message: Message, field: FieldDescriptor, only: dict[str, Fields], within: tuple[str, ...]) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        entry = filled(kind, only, within)
        place, value = getattr(message, field.name), getattr(entry, "value")  # noqa: B009 - no field for mypy
        if isinstance(value, Message):
            place[getattr(entry, "key")].CopyFrom(value)  # noqa: B009
        else:
            place[getattr(entry, "key")] = value  # noqa: B009
    elif kind is not None and field.is_repeated:
        getattr(message, field.name).append(filled(kind, only, within))
    elif kind is not None:
        getattr(message, field.name).CopyFrom(filled(kind, only, within))
    elif field.is_repeated:
        getattr(message, field.name).extend([_value(field), _value(field)])
    else:
        setattr(message, field.name, _value(field))


def _value(field: FieldDescriptor) -> Any:
    """By the field's number, so that no two fields of a message have the same."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return True
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return b"%d" % field.number if field.type == FieldDescriptor.TYPE_BYTES else f"{field.name}"
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return 1
    if field.cpp_type in _FLOATS:
        return field.number + 0.5
    return (
        -field.number
        if field.type in (FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_INT64)
        else 1000 + field.number
    )
