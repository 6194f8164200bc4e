"""Words for people: in lines of a terminal's width on a terminal, in whole lines for files and for programs that read them."""

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
"""Columns of a terminal that does not say how many it has."""
_INDENT = "  "
_COPIED = "    "
"""What lines begin with that people copy, or that come from elsewhere: code, commands, a log."""
_PROGRAMS = r"(?:paceline|tensorboard|pip|make|kubectl|python) "
_COMMAND = re.compile(_COPIED + _PROGRAMS)
_SAID = re.compile(rf"(?<=:) (?={_PROGRAMS}(?:(?![,.;] ).)*$)")
"""What stands before a command that ends a sentence."""
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")
"""One of a shell."""


def fitted(text: str, width: int) -> str:
    """The text in lines of at most this many columns, broken between words; what is broken off is indented. A command
    that does not fit behind its sentence gets its own lines, broken as a shell takes them. Never broken: words longer
    than that, like paths and URLs, and other lines that begin with four spaces, which are code."""
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    if line.startswith(_COPIED):
        return _broken(line, width) if _COMMAND.match(line) else [line]
    said, *command = _SAID.split(line, maxsplit=1)
    indent = line[: len(line) - len(line.lstrip())] + _INDENT
    lines = textwrap.wrap(
        said,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        expand_tabs=False,
    )
    return [*lines, *(part for each in command for part in _broken(_COPIED + each, width))]


def _broken(command: str, width: int) -> list[str]:
    """The command with a backslash at the end of each line but the last one; as it is where its quotes are no shell's."""
    first, *words = _WORD.findall(command)
    if " ".join([first, *words]) != command.strip():
        return [command]
    lines = [_COPIED + first]
    for unit in _with_values(words):
        if len(lines[-1]) + len(unit) + 3 <= width:  # with room for ' \'
            lines[-1] += f" {unit}"
        else:
            lines.append(2 * _COPIED + unit)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _with_values(words: Sequence[str]) -> list[str]:
    """Each option with what follows it."""
    found: list[str] = []
    for word in words:
        if found and found[-1].startswith("-") and " " not in found[-1] and not word.startswith("-"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def say(text: str, stream: TextIO | None = None) -> None:
    """Prints it for people; `stream`: stdout if not given."""
    stream = stream or sys.stdout
    width = _width(stream)
    print(text if width is None else fitted(text, width), file=stream, flush=True)


def show(console: "Console", text: str, style: str | None = None) -> None:
    """The same on a console of rich, which is to change nothing in it."""
    whole = fitted(text, console.width) if console.is_terminal else text
    console.print(whole, style=style, markup=False, highlight=False, soft_wrap=True)


def can_redraw(console: "Console") -> bool:
    """Whether what is shown there can be replaced; a dumb terminal (TERM=dumb) takes lines only."""
    return console.is_terminal and not console.is_dumb_terminal


def _width(stream: TextIO) -> int | None:
    """Columns of the terminal that it writes to; None where it is none."""
    try:
        return (os.get_terminal_size(stream.fileno()).columns or WIDTH) if stream.isatty() else None
    except (OSError, ValueError):  # closed, or no file
        return None
