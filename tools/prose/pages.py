"""The pages that people read, cut into the pieces of prose that rules look at."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "papers/README.md",
    "papers/docs/**/*.md",
    "k8s/**/*.md",
    "examples/**/*.md",
)
CODE = "\N{REPLACEMENT CHARACTER}"
"""Stands for a piece of code in a sentence; rules for words skip it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A paragraph, heading or table cell without its markup; `starts` has the place in `text` where each line begins."""

    kind: str
    text: str
    first_line: int
    starts: tuple[int, ...]

    def line(self, place: int) -> int:
        """The line of the page, from 1, that holds this place of the text."""
        return self.first_line + sum(start <= place for start in self.starts) - 1


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file. `prose_lines` are the numbers of the lines that can be wrapped: no table, heading, code."""

    name: str
    lines: tuple[str, ...]
    tokens: tuple[Token, ...]
    pieces: tuple[Piece, ...]
    prose_lines: tuple[int, ...]


def page_files(root: Path = ROOT) -> list[Path]:
    """The files of all pages, README first."""
    return list(dict.fromkeys(path for pattern in PAGES for path in sorted(root.glob(pattern))))


def pages(root: Path = ROOT) -> list[Page]:
    """All pages, README first."""
    return [read_page(path, root) for path in page_files(root)]


def read_page(path: Path, root: Path = ROOT) -> Page:
    """The page at this path, which lies below `root`."""
    return parse(path.resolve().relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Page:
    """The page of this text. Code is code only in fences: what is indented belongs to a list or a note of the site's."""
    lines = _without_front_matter(text.splitlines())
    tokens = _parser().parse("\n".join(lines))
    return Page(name, tuple(lines), tuple(tokens), tuple(_pieces(tokens)), tuple(_prose_lines(tokens)))


def render(page: Page) -> str:
    """What it shows, as HTML."""
    return str(_parser().renderer.render(page.tokens, _parser().options, {}))


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").disable("code")


def _without_front_matter(lines: list[str]) -> list[str]:
    if lines[:1] != ["---"] or "---" not in lines[1:]:
        return lines
    end = lines.index("---", 1)
    return [""] * (end + 1) + lines[end + 1 :]


def _pieces(tokens: list[Token]) -> Iterator[Piece]:
    line = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        line = token.map[0] if token.map else line
        if token.type == "inline" and before:
            kind = {"th_open": "cell", "td_open": "cell", "heading_open": "heading"}.get(before.type, "paragraph")
            text, starts = _plain(token.children or [])
            yield Piece(kind, text, line + 1, starts)


def _plain(children: list[Token]) -> tuple[str, tuple[int, ...]]:
    text, starts = "", [0]
    for child in children:
        if child.type in ("softbreak", "hardbreak"):
            text += " "
            starts.append(len(text))
        elif child.type in ("code_inline", "image"):
            text += CODE
        elif child.type == "text":
            text += child.content
    return text, tuple(starts)


def _prose_lines(tokens: list[Token]) -> Iterator[int]:
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline" and token.map and before and before.type == "paragraph_open":
            yield from range(token.map[0] + 1, token.map[1] + 1)
