"""The report as one HTML file: a sentence, tables, and pictures with what they say."""

from collections.abc import Mapping

from paceline.base.html.page import Html, Section, picture, table, text
from paceline.base.html.page import page as whole_page
from paceline.sharder.report.findings import PARTS, Part, result, summary
from paceline.sharder.report.shard_set import Sets


def page(sets: Sets, drawings: Mapping[str, str]) -> str:
    """The whole file. `drawings`: SVG by the names of the parts' pictures."""
    source, recipe = sets[0].manifest.source, sets[0].manifest.recipe
    examples = max(shards.manifest.train_examples for shards in sets)
    classes = f"{len(sets[0].classes)} classes{sets[0].of_task}"
    head = f"{examples:,} training examples of {classes}, task {recipe.task}, data {source}"
    top = [text(head, "faint"), text(result(sets), "result"), table(summary(sets))]
    title = f"Shards of {source}: {', '.join(shards.name for shards in sets)}"
    return whole_page(title, top, [_section(part, drawings, sets) for part in PARTS], "How the shards compare")


def _section(part: Part, drawings: Mapping[str, str], sets: Sets) -> Section:
    drawing = drawings.get(part.picture)
    if drawing is None:
        return Section(part.title, [text(part.absent, "faint")])
    parts: list[Html] = [text(part.text), picture(drawing, part.title), *map(table, part.tables(sets))]
    return Section(part.title, parts)
