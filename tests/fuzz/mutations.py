"""What may be wrong with a file: each function damages the bytes of a valid one, and gives the same for the same dice."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

MOST = 1 << 13
"""Longest damaged content (bytes) before it is packed, if the valid one is not longer."""
HUGE = (
    *(b"-1", b"0", b"1e400", b"-1e999", b"NaN", b"1e-400", b"00", b"0x7f", b"1_0", b"2147483648", b"4294967296"),
    *(b"9223372036854775808", b"18446744073709551616", b"1" + 400 * b"0"),
)
"""In place of a number in a text."""
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF)
"""In place of a length in binary."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, float("inf"), float("-inf")),
    *(float("nan"), "", "x", "1", "\ud800", "a" * 5000, "1e400", "\0", "../..", "none", "2024-99-99", [], {}, [[]]),
    *([0, 1], {"name": "x"}, {"": {}}, [None], {"format": 99}),
)
"""In place of a value in JSON."""
_NUMBER = re.compile(rb"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def damaged(dice: random.Random, content: bytes) -> bytes:
    """The content with one to four faults."""
    most = max(MOST, len(content))
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        content = dice.choice(MUTATIONS)(dice, content)[:most]
    return content


def noise(dice: random.Random) -> bytes:
    """Random bytes, or random characters of those that texts have."""
    count = dice.choice((0, 1, 3, 8, 50, 400))
    if dice.random() < 0.5:
        return dice.randbytes(count)
    return bytes(dice.choices(b'{}[]":,.-+#&*!|>%@ \n\t\r01239eEinfax\x00\xff', k=count))


def _flipped(dice: random.Random, content: bytes) -> bytes:
    if not content:
        return dice.randbytes(1)
    out = bytearray(content)
    for _ in range(dice.choice((1, 1, 4, 32))):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def _cut(dice: random.Random, content: bytes) -> bytes:
    start, stop = sorted((dice.randrange(len(content) + 1), dice.randrange(len(content) + 1)))
    return content[:start] + (content[stop:] if dice.random() < 0.5 else b"")


def _doubled(dice: random.Random, content: bytes) -> bytes:
    start, stop = sorted((dice.randrange(len(content) + 1), dice.randrange(len(content) + 1)))
    return content[:stop] + content[start:stop] * dice.choice((1, 1, 2, 40)) + content[stop:]


def _line_moved(dice: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    line = lines.pop(dice.randrange(len(lines)))
    for _ in range(dice.choice((0, 1, 2))):
        lines.insert(dice.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _other_number(dice: random.Random, content: bytes) -> bytes:
    found = _NUMBER.search(content, dice.randrange(len(content) + 1)) or _NUMBER.search(content)
    if found is None:
        return content + dice.choice(HUGE)
    start, stop = found.span()
    return content[:start] + dice.choice(HUGE) + content[stop:]


def _other_length(dice: random.Random, content: bytes) -> bytes:
    width, order = dice.choice((1, 2, 4, 8)), "big" if dice.random() < 0.5 else "little"
    value = (dice.choice(EXTREMES) if dice.random() < 0.8 else dice.randrange(1 << 30)) & ((1 << 8 * width) - 1)
    start = dice.randrange(max(1, min(len(content), dice.choice((16, 600, len(content))))))
    return content[:start] + value.to_bytes(width, order) + content[start + width :]  # type: ignore[arg-type]


def _inserted(dice: random.Random, content: bytes) -> bytes:
    start = dice.randrange(len(content) + 1)
    return content[:start] + noise(dice) + content[start:]


def _deep(dice: random.Random, content: bytes) -> bytes:
    start, opened = (
        dice.randrange(len(content) + 1),
        dice.choice((b"[", b"{", b'{"a":', b"- ", b"? ", b"(", b"&a [*a,")),
    )
    return content[:start] + opened * dice.choice((3, 300, 20_000)) + content[start:]


def _other_value(dice: random.Random, content: bytes) -> bytes:
    """One value of a JSON document is another, is gone or has another name; what is no JSON gets a number."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return _other_number(dice, content)
    places = list(_places(tree))
    if not places:
        return json.dumps(dice.choice(ODD)).encode()
    inside, key = dice.choice(places)
    way = dice.random()
    if way < 0.15:
        del inside[key]
    elif way < 0.25 and isinstance(inside, dict):
        inside[dice.choice(("", "x", key + "_", "name", "format"))] = inside.pop(key)
    elif way < 0.35:
        other, other_key = dice.choice(places)
        inside[key] = json.loads(json.dumps(other[other_key]))
    else:
        inside[key] = dice.choice(ODD)
    return json.dumps(tree).encode()


def _places(tree: Any) -> Any:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(value)


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(_flipped, _cut, _doubled, _line_moved, _inserted, _deep),
    *2 * (_other_number, _other_length, _other_value),
)
