"""Pages are one file that loads and runs nothing, and text from anywhere stays text in them."""

import re
from html.parser import HTMLParser

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from paceline.base.html import Section, Table, beside, code, details, facts, numbers, page, picture, table, text
from paceline.base.plot_style import FAINT, INK, STYLE, svg
from tests.support.pages import FROM_ELSEWHERE

VOID = {"meta", "img", "br"}


class Tags(HTMLParser):
    """All tags are closed, in order; collects texts and ids."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    return tags


def figure() -> Figure:
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(5, 3))
        drawn.subplots().plot([1, 2, 3], label="loss")
        drawn.legend()
        return drawn


def whole(words: str) -> str:
    parts = [
        text(words, "faint"),
        code(words),
        numbers([(words, words)]),
        table(Table([words, "n"], [[words, "1"], ["b", "2"]], words, best=0)),
        beside(facts([(words, words)]), details(words, text(words))),
    ]
    return page(words, [text(words)], [Section(words, parts), Section("Other", [])])


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_text_is_shown_as_it_is_and_breaks_no_page(words):
    tags = read(whole(words))

    assert "".join(tags.texts).count(words) >= 12


def test_a_page_with_pictures_needs_nothing_from_elsewhere():
    html = page("A page", [], [Section("Curves", [picture(svg(figure()), "the loss")])])

    assert not FROM_ELSEWHERE.search(html)
    assert "default-src 'none'" in html
    read(html)


def test_a_drawing_takes_the_colours_of_the_page():
    drawn = svg(figure())

    assert "var(--ink)" in drawn
    assert INK not in drawn
    assert FAINT not in drawn


def test_equal_figures_are_equal_texts():
    assert svg(figure()) == svg(figure())


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (["1", "2,000.5", "-"], True),
        (["12 s", "1.5 GiB", ""], True),
        (["96.3 %", "-0.1"], True),
        (["0.95 ± 0.01"], True),
        (["ssp:3", "1"], False),
        (["worker-0"], False),
        (["/srv/1"], False),
    ],
)
def test_columns_of_numbers_stand_right_and_others_left(cells, right):
    found = table(Table(["name", "column"], [["a", cell] for cell in cells]))

    assert ('<td class="number">' in found) == right


def test_sections_can_be_reached_by_their_links():
    html = page("A page", [], [Section("Where the time went", []), Section("Bytes", [])])

    assert set(re.findall(r'href="#([^"]+)"', html)) == set(re.findall(r'section id="([^"]+)"', html))
