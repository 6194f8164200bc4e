"""Whether a ```text block behind a command says what the command printed."""

import re
from collections.abc import Sequence

from tools.doc_blocks.blocks import Block

_LEFT_OUT = re.compile(r"(?:^|(?<=\s))\.\.\.[ \t]*$", re.MULTILINE)
"""It stands for any printed text, or none: alone on a line, or behind the last word of one."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GRPC = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\..*$", re.MULTILINE)
"""gRPC's own log, which may come at any time."""
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")
_UNITS = {"ms", "s", "min", "h", "B", "KiB", "MiB", "GiB"}
_SHOWN = 8


def text_behind(found: Sequence[Block], block: Block) -> Block | None:
    """The text block that comes next after a block on its page, if it is compared: it has no mark."""
    at = found.index(block) + 1
    text = found[at] if at < len(found) else None
    return text if text and text.language == "text" and not text.marks else None


def differs(shown: str, printed: str) -> str | None:
    """The first words of a text block that were not printed behind the words before them; None where all were.

    Words are compared, so lines may be broken elsewhere. Free are numbers, with the times, dates and names of runs that
    they are in, units behind a number, colours, and what `...` at the end of a line stands for.
    """
    words, at = _words(printed), 0
    for part in _LEFT_OUT.split(shown):
        wanted = _words(part)
        best = 0
        for start in range(at, len(words) + 1):
            same = _same(wanted, words[start:])
            best = max(best, same)
            if same == len(wanted):
                at = start + same
                break
        else:
            return " ".join(wanted[max(0, best - _SHOWN) : best + 1])
    return None


def _same(wanted: Sequence[str], words: Sequence[str]) -> int:
    """How many of the words are the same from the first on."""
    return next((at for at, word in enumerate(wanted) if at == len(words) or word != words[at]), len(wanted))


def _words(text: str) -> list[str]:
    """All of them, with 0 for each number and one unit for all."""
    words = _NUMBER.sub("0", _GRPC.sub("", _COLOUR.sub("", text))).split()
    behind = ["", *words]
    return [
        re.sub(r"^\w+", "s", word) if before[-1:] == "0" and re.sub(r"\W+$", "", word) in _UNITS else word
        for before, word in zip(behind, words, strict=False)
    ]
