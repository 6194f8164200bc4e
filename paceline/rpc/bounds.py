"""What each field of a request may hold, of all services in `protos/`: numbers, lengths of lists and of texts. It is
checked where a request enters a process, on each transport, before anything counts with it, keeps it, logs it or shows it.

What depends on the run's settings or on its plan, like the number of a push's values, is checked by who knows these."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from paceline.core.errors import BadPush

PACKAGE = "paceline.v1"
"""Of all our messages."""
MOST_BYTES = 8 << 20
"""Of one message, on each transport, and so of any part of it."""
_LATEST = 1 << 53
"""Largest count that JSON keeps, and a float. Sums of a few of them still fit in a message's 64 bits."""
_TERM = (1 << 63) - 1
"""Largest term of a server: as in its files."""
_MODEL = 1 << 40
"""Elements of a model, and examples or mini-batches of a data set: their products with epochs fit in 64 bits, too."""
_MINI_BATCH = 1 << 31
"""Examples of one push: slices add them up, which takes 2^33 pushes to leave 64 bits."""
_SHARDS = 1 << 20
_NAMES = 512
"""Figures of one heartbeat, metrics of one score."""
_SETTINGS = 4096
_VERSIONS = 1 << 16
"""Snapshots of one server."""
_TENSORS = 1 << 20
_LINE, _WORDS, _SETTING = 200, 1000, 1 << 16
"""Characters of a name or host, of a reason, of a setting."""
_FACTOR = 1e12
"""What a script makes of a rate: times any usual rate it is finite in float32."""
_NORM = 1e60
"""More than the norm of any parameters in float32."""


class Rule(NamedTuple):
    """What a field may hold."""

    fits: Callable[[Any], bool]
    expected: str
    each: Callable[[Any], bool] | None = None
    """Of a list or map: what each of its entries fits."""


ANY = Rule(lambda found: True, "")
"""Any value that the field's type has: who reads it checks it, or every one is right."""


def whole(most: int, least: int = 0) -> Rule:
    """Returns the rule of a whole number."""
    return Rule(lambda found: least <= found <= most, f"a whole number from {least:,} to {most:,}")


def number(least: float, most: float) -> Rule:
    """Returns the rule of a number, which NaN does not fit."""
    return Rule(lambda found: least <= found <= most, f"a number from {least:g} to {most:g}")


def line(most: int) -> Rule:
    """Returns the rule of a text on one line, which does nothing to a terminal."""
    return Rule(lambda found: len(found) <= most and found.isprintable(), f"one line of at most {most:,} characters")


def text(most: int) -> Rule:
    """Returns the rule of a text of any characters."""
    return Rule(lambda found: len(found) <= most, f"at most {most:,} characters")


def raw(most: int) -> Rule:
    """Returns the rule of bytes."""
    return Rule(lambda found: len(found) <= most, f"at most {most:,} bytes")


def several(rule: Rule, most: int) -> Rule:
    """Returns the rule of a list, whose entries fit `rule`; of messages (`ANY`) each has its own."""
    each = rule.fits
    if rule is ANY:
        return Rule(lambda found: len(found) <= most, f"at most {most:,} entries")
    return Rule(
        lambda found: not found or (len(found) <= most and all(map(each, found))),
        f"at most {most:,} entries, {rule.expected}",
        each,
    )


def named(most: int, value: Rule) -> Rule:
    """Returns the rule of a map from names to values that fit `value`; of messages (`ANY`) each has its own."""

    def each(entry: tuple[str, Any]) -> bool:
        return len(entry[0]) <= _LINE and (value is ANY or value.fits(entry[1]))

    expected = f"at most {most:,} names of at most {_LINE} characters"
    return Rule(
        lambda found: len(found) <= most and all(map(each, found.items())),
        expected if value is ANY else f"{expected}, with {value.expected}",
        each,
    )


COUNT, TERM, SECONDS = whole(_LATEST), whole(_TERM), number(0, _LATEST)
LINE, WORDS = line(_LINE), text(_WORDS)
PARTS = {"offset": COUNT, "data": raw(MOST_BYTES)}
"""Of a stream that rpc/wire.py frames, which takes no more bytes; where a part lies must be where the last one ended."""
_RISING = Rule(
    lambda found: not found or (len(found) <= _TENSORS and all(map(operator.lt, found[:-1], found[1:]))),
    f"at most {_TENSORS:,} rising numbers, none twice",
)
_SHAPES = Rule(
    lambda tensors: len(tensors) <= _TENSORS and sum(math.prod(each.shape[:32]) for each in tensors) <= _MODEL,
    f"at most {_TENSORS:,} tensors, with {_MODEL:,} elements in all",
)

RULES: dict[str, dict[str, Rule]] = {
    # parameter_service.proto, tensor.proto
    "ResumeRequest": {
        "worker": LINE,
        "incarnation": COUNT,
        "clock": COUNT,
        "tensors": _SHAPES,
        "plan_hash": LINE,
        "protocol": ANY,
        "upload": ANY,
    },
    "Tensor": {"name": text(_WORDS), "shape": several(whole(_MODEL), 32)},
    "PushHead": {
        "worker": LINE,
        "incarnation": COUNT,
        "clock": COUNT,
        "examples": whole(_MINI_BATCH),
        "base_term": TERM,
        "base_version": COUNT,
        "view": COUNT,
        "plan_hash": LINE,
        "codec": LINE,
        "pull_codec": LINE,
        "elements": COUNT,
        "digest": raw(32),
        "rates": several(number(0, _FACTOR), _TENSORS),
        "untouched": _RISING,
        "options": several(ANY, _TENSORS),
        "upload": ANY,
        "start": COUNT,
    },
    "Position": {"batches": COUNT, "examples": whole(_MINI_BATCH)},
    "GroupOption": {"group": whole(_TENSORS), "name": LINE, "values": several(number(0, _FACTOR), 2)},
    "PeerNote": {
        "view": COUNT,
        "round": COUNT,
        "hop": COUNT,
        "weight": number(0, _LATEST),
        "to": COUNT,
    },
    "InitialiseRequest": PARTS,
    "PushPullRequest": PARTS,
    "PushRequest": PARTS,
    "PushPullSparseRequest": {"places": raw(MOST_BYTES), "values": raw(MOST_BYTES), "wanted": raw(MOST_BYTES)},
    "EarlierPush": {"worker": LINE, "incarnation": COUNT, "clock": COUNT, "plan_hash": LINE, "pull_codec": LINE},
    "AskRequest": {},
    "AskSparseRequest": {
        "base_term": TERM,
        "base_version": COUNT,
        "places": raw(MOST_BYTES),
        "wanted": raw(MOST_BYTES),
    },
    "PullRequest": {"reader": LINE, "plan_hash": LINE, "codec": LINE, "version": COUNT},
    # peer_service.proto
    "PullLocalRequest": {"reader": LINE, "plan_hash": LINE, "codec": LINE},
    "DeliverRequest": PARTS,
    "WelcomeRequest": {"reader": LINE, "plan_hash": LINE, "view": COUNT, "first": raw(32)},
    # run_service.proto
    "JoinRequest": {
        "worker": LINE,
        "examples": whole(_MODEL),
        "steps": whole(_MODEL),
        "fingerprint": LINE,
        "shards": whole(_SHARDS),
        "settings": several(text(_SETTING), _SETTINGS),
        "address": LINE,
        "protocol": ANY,
        "host": LINE,
        "frozen_norm": number(0, _NORM),
        "frozen_product": number(-_NORM, _NORM),
        "text_hash": ANY,
    },
    "SeatRequest": {"worker": LINE, "incarnation": COUNT, "clock": COUNT},
    "LeaseBatchesRequest": {
        "worker": LINE,
        "incarnation": COUNT,
        "after": COUNT,
        "width": whole(_MODEL),
        "most": whole(_MODEL),
        "rows": COUNT,
        "last": whole(_MODEL),
    },
    "HeartbeatRequest": {
        "worker": LINE,
        "incarnation": COUNT,
        "clock": COUNT,
        "phase_seconds": SECONDS,
        # a loss may be infinite or no number, as it is where a model diverges
        "figures": named(_NAMES, ANY),
        "reached": COUNT,
        "outage": line(_WORDS),
        "large_inputs": line(_WORDS),
    },
    "ValidatedRequest": {
        "worker": LINE,
        "incarnation": COUNT,
        "epoch": COUNT,
        "loss": ANY,
        "examples": whole(_MODEL),
    },
    "LeaveRequest": {"worker": LINE, "incarnation": COUNT},
    "GoBackRequest": {"worker": LINE, "incarnation": COUNT, "terms": several(TERM, _VERSIONS)},
    "FollowViewRequest": {
        "server": COUNT,
        "term": TERM,
        "view": COUNT,
        "protocol": ANY,
        "due": COUNT,
        "common": COUNT,
        "spared": several(COUNT, _VERSIONS),
    },
    "ReportServerRequest": {
        "server": COUNT,
        "term": TERM,
        "view": COUNT,
        "switch": COUNT,
        "unseated_examples": whole(_TERM),  # a sum of what many pushes said
        "version": COUNT,
        "round_snapshots": several(COUNT, _VERSIONS),
        "snapshots": several(COUNT, _VERSIONS),
        "due": COUNT,
        "back": COUNT,
        "spared": several(COUNT, _VERSIONS),
        "protocol": ANY,
        "unseated": named(_VERSIONS, COUNT),
    },
    "ServerFigures": {
        "seconds": SECONDS,
        "busy_seconds": SECONDS,
        "slice_bytes": COUNT,
        "pushes": COUNT,
        "checkpoint_seconds": SECONDS,
        "disk_trouble": text(_SETTING),
        "capped": named(_VERSIONS, ANY),
    },
    "CappedPushes": {"pushes": COUNT, "share": number(0, 1)},
    "ServerStart": {"version": COUNT, "damaged": COUNT, "term": TERM},
    "EvaluateRequest": {
        "baseline": named(_NAMES, ANY),
        "protocol": ANY,
        "epochs": COUNT,
        "number": COUNT,
        "worker": LINE,
        "epoch": COUNT,
    },
    "Score": {
        "epoch": COUNT,
        "seconds": SECONDS,
        "versions": several(COUNT, _VERSIONS),
        "metrics": named(_NAMES, ANY),
        "measure": LINE,
        "examples": named(_NAMES, whole(_MODEL)),
    },
    "StatusRequest": {},
    "StopRequest": {"reason": WORDS},
    "SetPolicyRequest": {},
    # settings.proto
    "Policy": {"name": LINE, "options": several(ANY, _SETTINGS)},
    "Setting": {"name": LINE},
    "Value": {"whole": ANY, "number": ANY, "text": text(_SETTING)},
    "ValueList": {"values": several(ANY, _TENSORS)},
    "SettingList": {"settings": several(ANY, _SETTINGS)},
    # script_service.proto
    "DescribeRequest": {"worker": LINE, "settings": several(ANY, _SETTINGS), "protocol": ANY},
    # shard_service.proto
    "ManifestRequest": {"protocol": ANY},
    "FetchRequest": {"fingerprint": LINE, "name": LINE, "file": LINE, "ranges": several(ANY, _SHARDS)},
    "ByteRange": {"start": COUNT, "stop": COUNT},
    "CountsRequest": {"fingerprint": LINE},
    # host_service.proto
    "HostServiceJoinRequest": {
        "protocol": ANY,
        "name": LINE,
        "workers": whole(_VERSIONS),
        "servers": whole(_VERSIONS),
        "address": LINE,
        "versions": named(_NAMES, LINE),
    },
    "HostServiceFilesRequest": {"host": COUNT},
    "HostServiceKeepRequest": {"host": COUNT, "name": LINE, "data": raw(MOST_BYTES)},
    "HostServiceReportRequest": {"host": COUNT, "children": several(ANY, _VERSIONS), "trouble": text(_SETTING)},
    "ChildReport": {
        "name": LINE,
        "start": COUNT,
        "pid": COUNT,
        "code": whole(1 << 31, -(1 << 31)),
        "ended": text(_SETTING),
        "log_from": COUNT,
        "log": raw(MOST_BYTES),
        "port": whole(65_535),
    },
}
"""By message and field. A flag needs none, nor does an enum, which is one of its values; a message in a field has its own."""


def check(message: Message) -> None:
    """Raises BadPush where a field of a request, or of a message in it, does not fit its rule."""
    fields, messages, lists = _rules_of(message.DESCRIPTOR)
    for name, fits in fields:
        if not fits(found := getattr(message, name)):
            raise _refusal(message, name, found)
    for name in messages:
        if message.HasField(name):
            check(getattr(message, name))
    for name in lists:
        if inner := getattr(message, name):
            for each in inner.values() if isinstance(inner, Mapping) else inner:
                check(each)


def checked(request: Any) -> Any:
    """Returns the request, or a stream of requests whose messages are checked when they come. Parts of weights come as bytes:
    the code that reads their head checks it."""
    if isinstance(request, Message):
        check(request)
        return request
    return map(checked, request) if isinstance(request, Iterator) else request


@cache
def _rules_of(message: Descriptor) -> tuple[list[tuple[str, Callable[[Any], bool]]], list[str], list[str]]:
    """Returns the fields with a rule, those that are messages, and those that are lists or maps of messages. A message that is
    not ours, like grpcio's reflection, has none."""
    if message.file.package != PACKAGE:
        return [], [], []
    rules = {**RULES[message.name], **_rules_of_enums(message)}
    fields = [(name, rule.fits) for name, rule in rules.items() if rule is not ANY]
    inner = [field for field in message.fields if _holds_messages(field)]
    messages = [field.name for field in inner if not field.is_repeated]
    return fields, messages, [field.name for field in inner if field.is_repeated]


@cache
def _rules_of_enums(message: Descriptor) -> dict[str, Rule]:
    """Returns the rule of each enum, by field: one of the values that this release knows."""
    enums = ((field.name, field.enum_type) for field in message.fields if field.enum_type is not None)
    return {
        name: Rule(kind.values_by_number.__contains__, f"a value of {kind.name} from 0 to {len(kind.values) - 1}")
        for name, kind in enums
    }


def _holds_messages(field: FieldDescriptor) -> bool:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        kind = kind.fields_by_name["value"].message_type
    return kind is not None


def _refusal(message: Message, name: str, found: Any) -> BadPush:
    """Returns the error that says the field, what was seen and what was expected."""
    kind = message.DESCRIPTOR
    rule = _rules_of_enums(kind).get(name) or RULES[kind.name][name]
    return BadPush(f"{kind.name}.{name} is {_seen(found, rule)}; expected {rule.expected}. Nothing was changed.")


def _seen(found: Any, rule: Rule) -> str:
    if isinstance(found, bytes):
        return f"{len(found):,} bytes"
    if isinstance(found, str):
        return repr(found) if len(found) < 60 else f"{found[:40]!r}... ({len(found):,} characters)"
    if isinstance(found, int | float):
        return f"{found:,}"

    entries = list(found.items() if isinstance(found, Mapping) else found)
    wrong = next((entry for entry in entries if rule.each is not None and not rule.each(entry)), None)
    shown = f"{entries[:4]!r:.80}" if wrong is None else f"{wrong!r:.80}"
    return f"{shown} ({'' if wrong is None else 'one of '}{len(entries):,} entries)"
