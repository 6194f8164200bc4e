"""The one look of all pages that Paceline writes. A page comes in parts: each function takes plain text, which it escapes, and
gives HTML; `page` makes one whole file of them. No part refers to another file, and a policy in its head forbids the browser
to load or run anything."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from typing import NamedTuple, NewType

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --paper: #ffffff; --faint: #6b6b70; --line: #d5d5da; --band: #f4f4f6;
  --mark: #0072b2; --warn: #b34700; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --paper: #17171a; --faint: #a5a5ad; --line: #3c3c43; --band: #222226; --mark: #56b4e9;
    --warn: #ff9d5c; }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1.2rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: .2rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { max-width: 46rem; margin: .4rem 0; }
a { color: var(--mark); }
code { font-size: .92em; }
pre { background: var(--band); padding: .6rem .8rem; border-radius: 6px; overflow-x: auto; font-size: .86rem;
  max-width: 100%; }
.faint { color: var(--faint); }
.result, .warning { font-size: 1.1rem; border-left: 4px solid var(--mark); padding-left: .8rem; margin: .8rem 0; }
.warning { font-size: 1rem; border-color: var(--warn); }
.contents { font-size: .92rem; margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.numbers div { background: var(--band); border-radius: 6px; padding: .5rem .8rem; }
.numbers dd { font-size: 1.25rem; font-weight: 600; margin: 0; font-variant-numeric: tabular-nums; }
.numbers dt { font-size: .84rem; color: var(--faint); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 0 1.6rem; }
.pair > * { min-width: 0; }
figure { margin: .8rem 0; }
figcaption { font-size: .9rem; color: var(--faint); max-width: 46rem; }
svg { display: block; max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; margin: .6rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td { max-width: 36rem; }
thead th { vertical-align: bottom; background: var(--band); }
td:first-child, .number { white-space: nowrap; }
.number { text-align: right; }
thead .number { white-space: normal; }
tr.best { font-weight: 600; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .4rem; font-size: .84rem;
  color: var(--faint); }
@media (max-width: 30rem) {
  body { margin: 1rem auto; padding: 0 .9rem; }
  .numbers { grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); }
  th, td { padding: .25rem .5rem; }
}
@media print {
  :root { --ink: #000; --paper: #fff; --faint: #444; --line: #bbb; --band: #f4f4f6; }
  @page { margin: 14mm; }
  body { margin: 0; padding: 0; max-width: none; font-size: 10pt; }
  figure, svg, tr { break-inside: avoid; }
  h2, h3, p { break-after: avoid; }
  .wide { overflow: visible; }
  .contents { display: none; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
}
"""
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
