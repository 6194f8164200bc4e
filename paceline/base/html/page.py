"""A page in parts: each function takes plain text, which it escapes, and gives HTML; `page` makes one whole file of them.
No part refers to another file, and a policy in its head forbids the browser to load or run anything."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from typing import NamedTuple, NewType

from paceline.base.html.style import STYLE

Html = NewType("Html", str)
"""Text that is escaped already."""
_LOADS_NOTHING = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SMALLEST = 0.62
"""A picture on a narrow screen is at least this part of its size (ratio), or its letters can't be read; it then scrolls."""
_PIXELS = 96 / 72
"""Of a point."""
_NUMBER = re.compile(r"[-+−±]?[\d.,]+([ ±/×-]*[\d.,]+)*( ?[%×A-Za-z/]{1,12})?")
_ANCHOR = re.compile(r"\W+")


class Table(NamedTuple):
    """Text in rows; one with a title is of interest to few, and opens when asked to. `best`: the row to stress."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    best: int | None = None


class Section(NamedTuple):
    """A heading, by which it can be reached, and what follows it."""

    title: str
    parts: Sequence[Html]


def page(title: str, top: Iterable[Html], sections: Sequence[Section], heading: str = "") -> str:
    """The whole file. `title`: of the browser's tab, and the heading unless there is another; `top`: what comes
    between the heading and the list of sections."""
    links = "".join(f'<a href="#{_anchor(each.title)}">{escape(each.title)}</a>' for each in sections)
    body = [
        f"<h1>{escape(heading or title)}</h1>",
        *top,
        f'<nav class="contents">{links}</nav>' if len(sections) > 1 else "",
        *map(_section, sections),
        f"<footer>Paceline {escape(version('paceline'))}</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_LOADS_NOTHING}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    heading = f'<section id="{_anchor(section.title)}"><h2>{escape(section.title)}</h2>'
    return "\n".join([heading, *section.parts, "</section>"])


def _anchor(title: str) -> str:
    return _ANCHOR.sub("-", title.lower()).strip("-")


def text(words: str, kind: str = "") -> Html:
    """A paragraph. `kind`: '', 'faint' (in the background), 'result' (what matters most) or 'warning'."""
    return Html(f'<p class="{kind}">{escape(words)}</p>' if kind else f"<p>{escape(words)}</p>")


def subheading(words: str) -> Html:
    """A heading inside a section."""
    return Html(f"<h3>{escape(words)}</h3>")


def code(words: str) -> Html:
    """Lines as they are: a command, a file."""
    return Html(f"<pre><code>{escape(words)}</code></pre>")


def numbers(found: Iterable[tuple[str, str]]) -> Html:
    """Figures that everybody looks for, large: (what it is, its value with its unit)."""
    cells = "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>" for what, value in found)
    return Html(f'<dl class="numbers">{cells}</dl>')


def table(found: Table) -> Html:
    """Columns of numbers stand right, others left; a wide table scrolls by itself."""
    columns = zip(*found.rows, strict=True) if found.rows else [()] * len(found.heads)
    kinds = [' class="number"' if place and _is_numbers(column) else "" for place, column in enumerate(columns)]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(found.heads, kinds, strict=True))
    body = "\n".join(_row(row, kinds, number == found.best) for number, row in enumerate(found.rows))
    whole = Html(f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>')
    return details(found.title, whole) if found.title else whole


def _row(cells: Sequence[str], kinds: Sequence[str], is_best: bool) -> str:
    begin = '<tr class="best">' if is_best else "<tr>"
    inner = "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(cells, kinds, strict=True))
    return f"{begin}{inner}</tr>"


def _is_numbers(column: Iterable[str]) -> bool:
    cells = [cell for cell in column if cell not in ("", "-")]
    return all(_NUMBER.fullmatch(cell) for cell in cells)


def facts(found: Iterable[tuple[str, str]]) -> Html:
    """A table of two columns without heads: (what, how it is)."""
    rows = "\n".join(f'<tr><th scope="row">{escape(what)}</th><td>{escape(value)}</td></tr>' for what, value in found)
    return Html(f'<div class="wide"><table>\n<tbody>\n{rows}\n</tbody></table></div>')


def details(title: str, *parts: Html) -> Html:
    """What opens when asked to."""
    return Html(f"<details><summary>{escape(title)}</summary>{''.join(parts)}</details>")


def picture(drawing: str, what: str, caption: str = "") -> Html:
    """An SVG of `paceline.base.plot_style.svg`, which takes the page's colours. `what`: for those who can't see it."""
    width = float(drawing.split('viewBox="0 0 ', 1)[1].split()[0]) * _PIXELS
    look = f"width: {width:.0f}px; min-width: {_SMALLEST * width:.0f}px"
    drawn = drawing.replace("<svg", f'<svg role="img" aria-label="{escape(what)}" style="{look}"', 1)
    said = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return Html(f'<figure><div class="wide">{drawn}</div>{said}</figure>')


def beside(*parts: Html) -> Html:
    """Parts next to each other where the screen has room for that."""
    return Html(f'<div class="pair">{"".join(f"<div>{part}</div>" for part in parts)}</div>')
