"""The rules of tools/prose see what they are for and nothing else, and what is left of each page only falls."""

import pytest

from tools.prose import left
from tools.prose.code import read_code
from tools.prose.pages import parse
from tools.prose.rules import ADVICE, Finding, findings, findings_of_words
from tools.prose.wrap import wrapped

LONG = "\n".join(["word"] * 41)


def rules(text: str, name: str = "docs/x") -> list[tuple[int, str]]:
    """Line and rule of all that is found in a page of this text."""
    return [(finding.line, finding.rule) for finding in findings(parse(name, text))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"One.\nTwo {LONG}.\nThree.", [(2, "sentence")]),
        ("One\ntwo whoever\nthree.", [(2, "phrase")]),
        ("# A heading that nobody gets through to", [(1, "phrase")]),
        ("- a list\n\n  with a minibatch", [(3, "word")]),
        ("!!! note\n\n    The run goes by its clock.", [(3, "phrase")]),
        ("---\ntitle: anew\n---\n\nRead anew.", [(5, "phrase")]),
        ("| a | b |\n|---|---|\n| one | Two. Three. |", [(3, "cell")]),
        ("| a |\n|---|\n| " + "word " * 26 + "|", [(3, "cell")]),
        ("short\n" + "x" * 60 + " " + "y" * 60, [(2, "line")]),
        ("line\n\n" * 151, [(1, "page")]),
    ],
)
def test_a_rule_finds_what_it_is_for_and_its_line(text: str, found: list[tuple[int, str]]) -> None:
    assert rules(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "`anew` is a word of code.",
        "```\nwhoever goes by anew\n```",
        "Smith et al. 2020, e.g. in Fig. 3, has " + "\n".join(["word"] * 20) + ".\n" + "\n".join(["Word"] * 20) + ".",
        "| a |\n|---|\n| one sentence, with `code` ... and more |",
        "[a link](https://example.org/" + "x" * 100 + ")",
        "Or else it ends; nothing else does.",
    ],
)
def test_what_breaks_no_rule_is_left_alone(text: str) -> None:
    assert rules(text) == []


def test_a_page_of_reference_may_have_any_length() -> None:
    assert rules("line\n\n" * 301, "docs/reference/settings") == []


def test_a_sentence_between_the_limits_is_advised_and_not_counted() -> None:
    found = findings(parse("docs/x", "\n".join(["word"] * 35) + "."))

    assert [finding.rule for finding in found] == [ADVICE]
    assert left.counts(found) == {}


def test_numbers_that_are_kept_are_read_again(tmp_path) -> None:
    rows = {"docs/a": {"cell": 2, "word": 1}, "docs/b": {"line": 3}}

    left.write(rows, tmp_path / "left.yaml")

    assert left.read(tmp_path / "left.yaml") == rows


def test_both_more_and_less_than_what_is_left_are_seen() -> None:
    now, before = {"a": {"cell": 2}, "b": {"line": 1}}, {"a": {"cell": 1}, "b": {"line": 2}, "c": {"page": 1}}

    assert left.differences(now, before) == [("a", "cell", 2, 1), ("b", "line", 1, 2), ("c", "page", 0, 1)]


def test_a_page_may_get_better_move_or_split_but_not_worse() -> None:
    before = {"a": {"cell": 4}, "b": {"cell": 1}}

    assert left.grown({"a": {"cell": 3}}, before) == []
    assert left.grown({"new/a": {"cell": 3}, "new/c": {"cell": 1}, "b": {"cell": 1}}, before) == []
    assert left.grown({"b": {"cell": 2}}, before) == ["b: cell went from 1 to 2"]
    assert left.grown({"new": {"cell": 5}, "b": {"cell": 1}}, before) == ["all pages together: cell went from 5 to 6"]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("aaa bbb\nccc ddd eee\n", "aaa bbb\nccc ddd\neee\n"),
        ("- aaa bbb ccc\n\n      code stays as it is\n", "- aaa\n  bbb\n  ccc\n\n      code stays as it is\n"),
        ("1. aaa bbb\n   cc ddd e\n", "1. aaa\n   bbb\n   cc\n   ddd e\n"),
        ("aaa bbb - ccc\n", "aaa bbb - ccc\n"),  # a line that began with - would be a list
        ("| aaa bbb | ccc |\n|---|---|\n", "| aaa bbb | ccc |\n|---|---|\n"),
        ("# aaa bbb ccc\n", "# aaa bbb ccc\n"),
        ("aaa bbb  \nccc ddd eee\n", "aaa bbb  \nccc ddd eee\n"),
    ],
)
def test_what_is_wrapped_shows_the_same(text: str, after: str) -> None:
    assert wrapped(parse("docs/x", text), 8) == after


def test_comments_docstrings_and_texts_of_code_are_looked_at(tmp_path) -> None:
    file = tmp_path / "a.py"
    file.write_text('"""Reads what stands in a file."""\nwhoever = 1  # comes anew\ntext = "whoever"\n')

    found = [(finding.line, finding.rule) for finding in findings(read_code(file, "a.py"))]

    assert found == [(1, "phrase"), (2, "phrase")]


def test_code_is_counted_by_its_room_and_its_sentences_are_not(tmp_path) -> None:
    file = tmp_path / "a.py"
    file.write_text(f'"""Comes anew {LONG}."""\n')

    assert [finding.rule for finding in findings_of_words(read_code(file, "a.py"))] == ["phrase"]
    assert left.row("paceline/core/policies/builtin/bsp.py") == "paceline/core/"
    assert left.row("worker/own_loop.py") == "worker/"
    assert left.row("docs/choose/policies.md") == "docs/choose/policies.md"
    assert left.counts([Finding("tools/prose/a.py", 1, "phrase", "")]) == {"tools/prose/": {"phrase": 1}}
