"""The report as one HTML file: pictures inside as data URIs, numbers as tables, no script, nothing from elsewhere."""

import base64
from collections.abc import Mapping
from html import escape

from paceline.sharder.report.findings import PARTS, Part, Table, result, summary
from paceline.sharder.report.shard_set import Sets

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --paper: #ffffff; --faint: #6b6b70; --line: #d5d5da; --band: #f4f4f6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --paper: #17171a; --faint: #a5a5ad; --line: #3c3c43; --band: #222226; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; }
p { max-width: 46rem; margin: .4rem 0; }
.faint { color: var(--faint); }
.result { font-size: 1.1rem; border-left: 4px solid #0072B2; padding-left: .8rem; }
img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px;
  padding: 6px; box-sizing: border-box; margin: .8rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; margin: .6rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { white-space: normal; vertical-align: bottom; background: var(--band); }
@media print {
  :root { --ink: #000; --paper: #fff; --faint: #444; --line: #bbb; --band: #f4f4f6; }
  @page { margin: 14mm; }
  body { margin: 0; padding: 0; max-width: none; font-size: 10pt; }
  img, tr { break-inside: avoid; }
  h2, p { break-after: avoid; }
  .wide { overflow: visible; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
}
"""


def page(sets: Sets, pictures: Mapping[str, bytes]) -> str:
    """The whole file."""
    source, recipe = sets[0].manifest.source, sets[0].manifest.recipe
    examples = max(shards.manifest.train_examples for shards in sets)
    classes = f"{len(sets[0].classes)} classes{sets[0].of_task}"
    head = f"{examples:,} training examples of {classes}, task {recipe.task}, data {source}"
    body = [
        "<h1>How the shards compare</h1>",
        f'<p class="faint">{escape(head)}</p>',
        f'<p class="result">{escape(result(sets))}</p>',
        _table(summary(sets)),
        *(_section(part, pictures, sets) for part in PARTS),
    ]
    title = escape(f"Shards of {source}: {', '.join(shards.name for shards in sets)}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _section(part: Part, pictures: Mapping[str, bytes], sets: Sets) -> str:
    picture = pictures.get(part.picture)
    if picture is None:
        return f'<section><h2>{part.title}</h2>\n<p class="faint">{part.absent}</p></section>'
    data = base64.b64encode(picture).decode()
    image = f'<img alt="{part.title}" src="data:image/png;base64,{data}">'
    tables = [_details(table) if table.title else _table(table) for table in part.tables(sets)]
    return "\n".join([f"<section><h2>{part.title}</h2>", f"<p>{part.text}</p>", image, *tables, "</section>"])


def _details(table: Table) -> str:
    """A table that opens when asked to."""
    return f"<details><summary>{escape(table.title)}</summary>{_table(table)}</details>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.heads)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
