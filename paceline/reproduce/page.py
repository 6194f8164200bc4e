"""The page of all tables and figures, and the table of one, as Markdown. It is made from finished runs alone."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isinf
from textwrap import fill
from typing import Any

from paceline.reproduce.artefacts import PAPERS, Artefact
from paceline.reproduce.claims import Claim
from paceline.reproduce.recipe import Runs
from paceline.reproduce.rule import RULE, Interval, of_mean

SOURCES = "papers/sources"
HEAD = f"""# Reproduction: the papers' tables and figures

Each table and figure that the five [papers]({SOURCES}.md) take their results from, made again
by `paceline reproduce`. The papers' numbers are next to ours. That command writes this page; each
part says when its runs were made.

The small size is for a machine with two cores. It has other data and other models than the papers,
so their values can't be met there. What can be met is what they say about their values.

## The rule

"""
NONE = "none yet"
WIDTH = 100
"""Columns of prose."""


@dataclass(frozen=True, slots=True)
class Made:
    """A table or figure whose runs are finished. `about`: what the file of its runs says; `seconds` that they took."""

    artefact: Artefact
    runs: Runs
    about: Mapping[str, Any]
    seconds: float

    @property
    def verdicts(self) -> str:
        """'3 agree, 1 cannot tell'."""
        recipe = self.artefact.recipe
        found = Counter(claim.verdict(recipe.paper, self.runs) for claim in recipe.claims)
        return ", ".join(f"{count} {verdict}" for verdict, count in found.items()) or "nothing to judge"


def whole(made: Sequence[Made], known: Sequence[Artefact], folder: str) -> str:
    """The page. `folder`: where the pictures are, as seen from it."""
    done = {each.artefact.name: each for each in made}
    lines = [
        HEAD + "\n\n".join(fill(paragraph, WIDTH) for paragraph in RULE),
        "",
        "## All of them",
        "",
        "| name | paper | shows | result |",
        "|---|---|---|---|",
    ]
    for each in known:
        result = done[each.name].verdicts if each.name in done else NONE
        lines.append(f"| `{each.name}` | {each.title} | {each.recipe.shows} | {result} |")
    for paper, group in groupby(made, lambda each: each.artefact.paper):
        lines += ["", f"## {PAPERS[paper]}"]
        for one in group:
            lines += ["", *_part(one, folder)]
    return "\n".join(lines) + "\n"


def _part(made: Made, folder: str) -> Iterator[str]:
    artefact, recipe, about = made.artefact, made.artefact.recipe, made.about
    yield f"### {recipe.number}: {recipe.shows}"
    yield ""
    made_by = f"`paceline reproduce {artefact.name} --seeds {made.runs.seeds}`"
    took = f"{made.runs.seeds} seeds took {_duration(made.seconds)} on {about['cores']} cores, {about['date']}"
    yield fill(f"{recipe.small} {took}: {made_by}.", WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""
    yield f"![{recipe.number}]({folder}/{about['size']}/{artefact.name}/picture.png)"
    yield ""
    yield from table(made.runs)
    if recipe.claims:
        yield ""
        yield "| the paper says | paper | ours | difference | verdict | why |"
        yield "|---|---|---|---|---|---|"
        yield from (_claim(claim, made.runs) for claim in recipe.claims)


def table(runs: Runs) -> list[str]:
    """Mean and interval of each row and column; the paper's number behind it where it has one."""
    recipe = runs.recipe
    with_paper = [name for name in recipe.columns if any(name in row for row in recipe.paper.values())]
    heads = [
        head for name, column in recipe.columns.items() for head in [column.name, *["paper"] * (name in with_paper)]
    ]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for row in recipe.rows:
        cells = []
        for name, column in recipe.columns.items():
            cells.append(_ours(of_mean(runs.of(row, name)), column.form))
            if name in with_paper:
                number = recipe.paper.get(row, {}).get(name)
                cells.append("" if number is None else f"{number:{column.form}}")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _claim(claim: Claim, runs: Runs) -> str:
    numbers = runs.recipe.paper
    paper, ours, verdict = claim.paper(numbers), claim.ours(runs), claim.verdict(numbers, runs)
    between = "" if isinf(ours.low) else f" ({ours.low:.4g} to {ours.high:.4g})"
    cells = [
        claim.says,
        "words" if paper is None else f"{paper:.4g}",
        f"{ours.middle:.4g}{between}",
        "" if paper is None else f"{ours.middle - paper:+.3g}",
        f"**{verdict}**",
        claim.why.get(verdict, ""),
    ]
    return f"| {' | '.join(cells)} |"


def _duration(seconds: float) -> str:
    """'42 s' or '25 minutes'."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _ours(interval: Interval, form: str) -> str:
    if isinf(interval.low):
        return f"{interval.middle:{form}}"
    return f"{interval.middle:{form}} ± {interval.high - interval.middle:{form}}"
