"""What is wrong with a page's prose: the rules, and the words that they look for (style.yaml)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.prose.pages import CODE, Page, Piece

ADVICE = "advice"
"""Findings of this rule are shown and never counted."""
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|et al|cf|vs|etc|Fig|Eq|eq|No|approx|[A-Z]))\.$")
_END = re.compile(r"(?<!\.)[.!?][\"')\]*]*(?=\s+\W{0,3}[A-Z0-9" + CODE + r"]|\s*$)")
_WORD = re.compile(r"[^\W_][\w'’.,/-]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule, and what to write instead."""

    page: str
    line: int
    rule: str
    said: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.rule}: {self.said}"


@cache
def style() -> dict[str, Any]:
    """Limits, phrases and words."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("style.yaml").read_text(encoding="utf-8"))
    return found


def findings(page: Page) -> list[Finding]:
    """All that is wrong with this page, and advice, by line."""
    found = [*_length(page), *_long_lines(page)]
    for piece in page.pieces:
        found += [Finding(page.name, line, rule, said) for line, rule, said in _of_piece(piece)]
    return sorted(found, key=lambda finding: (finding.line, finding.rule))


def findings_of_words(page: Page) -> Iterator[Finding]:
    """Words and phrases only: what is asked of code, whose sentences are not counted."""
    for piece in page.pieces:
        yield from (Finding(page.name, line, rule, said) for line, rule, said in _words_of(piece))


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Place and text of each sentence."""
    start = 0
    for end in _END.finditer(text):
        if not _ABBREVIATION.search(text[start : end.start() + 1]):
            yield start, text[start : end.end()]
            start = end.end() + 1
    if text[start:].strip():
        yield start, text[start:]


def words(text: str) -> int:
    """How many words it has; code counts as none."""
    return len(_WORD.findall(text))


def _of_piece(piece: Piece) -> Iterator[tuple[int, str, str]]:
    limits = style()["limits"]
    parts = list(sentences(piece.text))
    if piece.kind == "cell" and (len(parts) > 1 or words(piece.text) > limits["cell_words"]):
        said = f"{len(parts)} sentences, {words(piece.text)} words in one cell: keep a sentence, move the rest below"
        yield piece.line(0), "cell", said
    for place, sentence in parts if piece.kind == "paragraph" else ():
        count = words(sentence)
        if count > limits["sentence_words_advised"]:
            rule = "sentence" if count > limits["sentence_words"] else ADVICE
            yield piece.line(place), rule, f"{count} words in a sentence: {_shortened(sentence)}"
    yield from _words_of(piece)


def _words_of(piece: Piece) -> Iterator[tuple[int, str, str]]:
    for rule in ("phrase", "word"):
        for pattern, instead in _patterns(rule):
            for match in pattern.finditer(piece.text):
                yield piece.line(match.start()), rule, f"{match[0].strip()!r}: write {instead}"


@cache
def _patterns(rule: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in style()[rule].items())


def _length(page: Page) -> Iterator[Finding]:
    most = style()["limits"]["page_lines"]
    is_reference = any(re.match(pattern, page.name) for pattern in style()["any_length"])
    if len(page.lines) > most and not is_reference:
        yield Finding(page.name, 1, "page", f"{len(page.lines)} lines, more than {most}: split it by what readers want")


def _long_lines(page: Page) -> Iterator[Finding]:
    most = style()["limits"]["line_characters"]
    for number in page.prose_lines:
        line = page.lines[number - 1]
        if len(line) > most >= max(map(len, line.split())):
            yield Finding(page.name, number, "line", f"{len(line)} characters, more than {most}: wrap it")


def _shortened(text: str) -> str:
    return " ".join(text.replace(CODE, "`...`").split()[:10]) + " ..."
