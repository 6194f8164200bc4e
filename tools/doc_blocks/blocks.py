"""Fenced blocks of a page, with the marks in front of them that say what can't be run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.prose.pages import Page

MARK = re.compile(r"<!--\s*not run(?:\s*\((?P<part>[^)]*)\))?:\s*(?P<why>.+?)\s*-->", re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
FIRST_LINE = re.compile(r"# ([\w-]+\.(?:py|yaml|toml|txt))$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mark:
    """`<!-- not run: why -->` before a block, or `<!-- not run (word): why -->` for those of its lines that have the word."""

    part: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `title`, the file it is written to: title="train.py" behind the language, or `# train.py` first."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    marks: tuple[Mark, ...]

    @property
    def location(self) -> str:
        """Where it is, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def why_not(self) -> str | None:
        """Why nothing of it can be run, if so."""
        return next((mark.why for mark in self.marks if mark.part is None), None)

    def is_left_out(self, line: str) -> bool:
        """Whether this line of it can't be run."""
        return any(mark.part is None or mark.part in line for mark in self.marks)


def blocks(page: Page) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    marks: list[Mark] = []
    for token in page.tokens:
        if token.type == "html_block":
            marks += [Mark(found["part"], " ".join(found["why"].split())) for found in MARK.finditer(token.content)]
        elif token.type == "fence":
            language, _, rest = token.info.strip().partition(" ")
            title = TITLE.search(rest) or FIRST_LINE.match(token.content)
            line = token.map[0] + 1 if token.map else 0
            yield Block(page.name, line, language, title[1] if title else None, token.content, tuple(marks))
            marks = []
        elif token.type == "inline":
            marks = []
