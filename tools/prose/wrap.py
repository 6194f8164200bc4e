"""Wraps paragraphs that have a line over the limit; no word and nothing of what a page shows changes."""

import re
import textwrap

from tools.prose.pages import Page, parse, render

_CODE = 4
"""That many spaces before a line make it code, outside of lists and notes."""


def wrapped(page: Page, width: int) -> str:
    """The page's text, with such paragraphs wrapped again; one that would be shown otherwise stays as it is."""
    lines = list(page.lines)
    for token in reversed(page.tokens):
        if token.type == "paragraph_open" and token.map:
            begin, end = token.map
            if any(len(line) > width for line in lines[begin:end]):
                lines = _if_same(lines, [*lines[:begin], *_paragraph(lines[begin:end], width), *lines[end:]])
    return "\n".join([*lines, ""])


def _paragraph(lines: list[str], width: int) -> list[str]:
    if any(re.search(r"(  |\\)$", line) for line in lines):
        return lines  # it breaks where it wants to
    marker = re.match(r"\s*(?:(?:[-*+]|\d+[.)]|>)\s+)*", lines[0])
    first = marker[0] if marker else ""
    if first.isspace() and len(first) >= _CODE:
        return lines  # it may be code
    rest = re.match(r"[\s>]*", lines[1])[0] if len(lines) > 1 else re.sub(r"[^\s>]", " ", first)  # type: ignore[index]
    words = " ".join([lines[0][len(first) :], *(line.strip(" >") for line in lines[1:])])
    return textwrap.wrap(
        words, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _if_same(before: list[str], after: list[str]) -> list[str]:
    """What is wrapped, if it shows the same."""
    shown = [re.sub(r"\s+", " ", render(parse("", "\n".join(lines)))) for lines in (before, after)]
    return after if shown[0] == shown[1] else before
