"""Lines for people fit a terminal, and files and pipes get them whole."""

import os
import pty
import struct
import termios
from fcntl import ioctl
from io import StringIO

import pytest
from rich.console import Console

from paceline.base.terminal import WIDTH, fitted, say, show

SAID = "The model is runs/digits/models/last.safetensors, the best one of all epochs best.safetensors next to it."


@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(width: int) -> None:
    text = fitted(f"{SAID} {SAID}", width)

    assert max(map(len, text.splitlines())) <= width
    assert text.split() == f"{SAID} {SAID}".split()
    assert all(line.startswith("  ") for line in text.splitlines()[1:])


def test_a_line_that_fits_is_left_as_it_is() -> None:
    assert fitted("  0.1 s  starting  2 servers", 80) == "  0.1 s  starting  2 servers"


def test_lines_below_the_first_keep_their_indent() -> None:
    assert fitted("x:\n  one two three", 9) == "x:\n  one two\n    three"


@pytest.mark.parametrize(
    "word", ["https://example.org/a/long-path-to/a-page?of=it", "runs/a-run-of-mine/models/last.pt"]
)
def test_paths_and_addresses_are_never_broken(word: str) -> None:
    assert word in fitted(f"It lies in {word}, as ever.", 20)


def test_code_and_the_lines_of_a_log_are_never_broken() -> None:
    line = '    weights = load_file("runs/digits/models/last.safetensors")'

    assert fitted(line, 30) == line


def test_a_command_behind_a_sentence_gets_a_line_that_can_be_copied() -> None:
    text = fitted("Next, see what one slow worker does: paceline run digits --slow 3=10x --policy shat", 60)

    assert text == "Next, see what one slow worker does:\n    paceline run digits --slow 3=10x --policy shat"


def test_a_long_command_is_broken_as_a_shell_takes_it() -> None:
    text = fitted("    paceline search own.py --data 'my files/a b.csv' --grid optimizer.lr=0.03,0.1,0.3", 50)

    assert text.splitlines() == [
        "    paceline search own.py \\",
        "        --data 'my files/a b.csv' \\",
        "        --grid optimizer.lr=0.03,0.1,0.3",
    ]
    assert fitted("    paceline run it's --policy ssp", 20) == "    paceline run it's --policy ssp"


def test_a_sentence_that_goes_on_behind_a_command_is_a_sentence() -> None:
    assert "\n    " not in fitted("It goes on by: paceline run a.yaml, or is started over by --fresh; see docs.", 50)


@pytest.mark.parametrize("columns", [60, 0])
def test_what_is_said_on_a_terminal_has_its_width(columns: int) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "w") as terminal:
        say(SAID, terminal)
        lines = os.read(ours, 1000).decode().splitlines()
    os.close(ours)

    assert lines == fitted(SAID, columns or WIDTH).splitlines()
    assert len(lines) > 1


def test_what_is_said_into_a_file_is_whole() -> None:
    file = StringIO()

    say(SAID, file)
    show(Console(file=file, width=20), SAID)

    assert file.getvalue() == f"{SAID}\n" * 2


def test_a_console_of_rich_changes_nothing_in_it() -> None:
    file = StringIO()

    show(Console(file=file, width=60, force_terminal=True), f"[bold] {SAID}")

    assert file.getvalue() == fitted(f"[bold] {SAID}", 60) + "\n"
