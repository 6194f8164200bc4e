"""The page of all tables and figures, and the table of one, as Markdown. It is made from finished runs alone."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, isinf
from statistics import stdev
from textwrap import fill
from typing import Any

from paceline.base.intervals import FEWEST, of_mean
from paceline_papers.reproduce.artefacts import PAPERS, Artefact
from paceline_papers.reproduce.claims import Claim, Numbers
from paceline_papers.reproduce.recipe import Runs
from paceline_papers.reproduce.rule import RULE, Verdict

SOURCES, GPUS = "sources", "../../docs/run/laptop"
TITLE = "# Reproduction: the papers' tables and figures"
HEAD = f"""{TITLE}

Each table and figure that the five [papers]({SOURCES}.md) take their results from, made again
by `paceline reproduce`. The papers' numbers are next to ours. That command writes this page; each
part says when its runs were made.

The small size is for a machine with two cores, where `paceline reproduce all --small` took 111
minutes from a fresh clone (27 November 2026). Most of it has other data and other models than the
papers, so their values can't be met there. What can be met is what they say about their values.
`--full` takes the papers' models, data and settings ([below](#the-full-size)). Its results come
behind those of the small size.

## The rule

"""
FULL = f"""## The full size

<!-- not run: needs CIFAR-10, and days on GPUs -->
```sh
paceline reproduce shat/table-2 --full --data cifar-10-binary.tar.gz
paceline reproduce sharding/table-2 --full --data cifar-10-binary.tar.gz --seeds 1 --set precision=bf16 --out in-bf16
```

This trains each run as `paceline run` does, on the GPUs that are visible
([GPUs]({GPUS}.md#gpus)). The runs are in `full/PAPER/runs` of the results' folder.
Ctrl-C ends the present one in order, and the same command goes on with it. Finished runs are not
repeated; the tables and figures of a paper share them. Of a finished run of [SHAT] or [Hogwild]
only logs and scores stay, since [SHAT]'s models have 100 to 500 MB each. `--seeds 1` makes fewer
runs. A run that diverges does not go back to a lower rate.

`--set` changes any setting that the recipe itself does not say. These results say so. Results of
other settings or other data don't mix: give another `--out`.

On CPUs it takes weeks. Our tests start, end and go on with a run of each table and figure on
made-up data, with a tiny model; and each of the papers' models makes a step. Runs of [Hogwild]'s
tables take seconds, and start over."""
NEVER = """

Nobody has run this size to its end yet."""
NONE = "none yet"
REFUSED = "can't be used: see `paceline reproduce`"
NOTHING = "no figure"
WHY = {
    Verdict.AGREES: "The sentence holds in the whole interval of {} runs.",
    Verdict.DOES_NOT: "The sentence holds nowhere in the interval of {} runs.",
    Verdict.NO_EFFECT: "The interval of {} runs lies around zero, within a tenth of the paper's effect.",
    Verdict.CANNOT: "The interval of {} runs does not decide it.",
}
"""Of runs for which the recipe has no sentence."""
WIDTH = 100
"""Columns of prose."""
DEVIATION = ".6f"
"""How standard deviations are written: [Sharding] has six digits."""


@dataclass(frozen=True, slots=True)
class Made:
    """A table or figure whose runs are finished. `about`: what the file of its runs says; `seconds` that they took, added up;
    `dates`: of the first one and the last one."""

    artefact: Artefact
    runs: Runs
    about: Mapping[str, Any]
    seconds: float
    dates: tuple[str, str]

    @property
    def verdicts(self) -> str:
        """'agrees: 3, cannot tell: 1'."""
        found = Counter(self.runs.verdicts)
        told = [f"{verdict}: {found[verdict]}" for verdict in Verdict if found[verdict]]
        return ", ".join(told) or "nothing to judge"


def whole(made: Sequence[Made], known: Sequence[Artefact], refused: Collection[tuple[str, bool]], folder: str) -> str:
    """The page. `refused`: name and whether it is of the full size, of runs that can't be used; `folder`: where the pictures
    are, as seen from it."""
    done = {(each.artefact.name, each.runs.is_full): each for each in made}

    def result(artefact: Artefact, is_full: bool) -> str:
        found = done.get((artefact.name, is_full))
        return found.verdicts if found else REFUSED if (artefact.name, is_full) in refused else NONE

    lines = [
        HEAD + "\n\n".join(fill(paragraph, WIDTH) for paragraph in RULE),
        "",
        FULL + NEVER * (not any(is_full for _, is_full in [*done, *refused])),
        "",
        "## All of them",
        "",
        "| name | paper | shows | small size | full size |",
        "|---|---|---|---|---|",
    ]
    for each in known:
        full = result(each, True) if each.recipe.full else ""
        lines.append(f"| `{each.name}` | {each.title} | {each.recipe.shows} | {result(each, False)} | {full} |")
    names = [each.name for each in known]
    ordered = sorted(made, key=lambda each: (names.index(each.artefact.name), each.runs.is_full))
    for paper, group in groupby(ordered, lambda each: each.artefact.paper):
        lines += ["", f"## {PAPERS[paper]}"]
        for one in group:
            lines += ["", *_part(one, folder)]
    return "\n".join(lines) + "\n"


def _part(made: Made, folder: str) -> Iterator[str]:
    artefact, recipe, about = made.artefact, made.artefact.recipe, made.about
    full = recipe.full if made.runs.is_full else None
    yield f"### {recipe.number}{' at full size' if full else ''}: {recipe.shows}"
    yield ""
    own = "".join([" --full --data PATH", *(f" --set {pair}" for pair in about.get("settings", ()))]) if full else ""
    made_by = f"`paceline reproduce {artefact.name}{own} --seeds {made.runs.seeds}`"
    on = f"{about['cores']} cores" + (f" and {about['gpus']} GPUs" if "gpus" in about else "")
    first, last = made.dates
    when = first if first == last else f"{first} to {last}"
    took = (
        "" if full else f"; the runs took {_duration(made.seconds)}, added up"
    )  # one that went on later has no such time
    trains = full.trains if full else recipe.small
    told = f"{trains} {made.runs.seeds} seeds on {on}, {when}{took}: {made_by}."
    yield fill(told, WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""
    yield f"![{recipe.number}]({folder}/{about['size']}/{artefact.name}/picture.png)"
    yield ""
    yield from table(made.runs)
    if recipe.claims:
        yield ""
        heads = ["we say", "measured"] if artefact.is_ours else ["the paper says", "paper", "ours", "difference"]
        heads += ["verdict", "why"]
        yield f"| {' | '.join(heads)} |"
        yield "|---" * len(heads) + "|"
        for claim, verdict in zip(recipe.claims, made.runs.verdicts, strict=True):
            yield _claim(claim, verdict, made.runs, artefact.is_ours)


def table(runs: Runs) -> list[str]:
    """Mean and interval of each row and column, the paper's number behind it where it has one; then the standard deviation of
    the runs, where the paper has that."""
    recipe = runs.recipe
    with_paper, with_deviation = (
        [name for name in recipe.columns if any(name in row for row in numbers.values())]
        for numbers in (recipe.paper, recipe.deviations)
    )
    heads = []
    for name, column in recipe.columns.items():
        heads += [column.name, *["paper"] * (name in with_paper), *["deviation", "paper"] * (name in with_deviation)]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for row in recipe.rows:
        cells = []
        for name, column in recipe.columns.items():
            values = runs.of(row, name)
            cells.append(_ours(values, column.form))
            if name in with_paper:
                cells.append(_theirs(recipe.paper, row, name, column.form))
            if name in with_deviation:
                cells += [_deviation(values), _theirs(recipe.deviations, row, name, DEVIATION)]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _claim(claim: Claim, verdict: Verdict, runs: Runs, is_ours: bool) -> str:
    paper, ours = claim.paper(runs.recipe.paper), claim.ours(runs)
    between = "" if isinf(ours.low) or isinf(ours.high) else f" ({ours.low:.4g} to {ours.high:.4g})"
    figure = f"{ours.middle:.4g}{between}" if isfinite(ours.middle) else NOTHING
    difference = "" if paper is None or not isfinite(ours.middle) else f"{ours.middle - paper:+.3g}"
    figures = [figure] if is_ours else ["words" if paper is None else f"{paper:.4g}", figure, difference]
    cells = [claim.says, *figures, f"**{verdict}**", _why(claim, verdict, runs)]
    return f"| {' | '.join(cells)} |"


def _why(claim: Claim, verdict: Verdict, runs: Runs) -> str:
    """The recipe's sentence, which is about its own runs; of other ones what their interval says."""
    if runs.seeds < FEWEST:
        return "Fewer than three runs tell nothing."
    is_about_these = not runs.is_full and runs.seeds == runs.recipe.seeds
    return claim.why.get(verdict, "") * is_about_these or WHY[verdict].format(runs.seeds)


def _duration(seconds: float) -> str:
    """'42 s' or '25 minutes'."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _ours(values: Sequence[float], form: str) -> str:
    """Mean and interval; where some runs have no such figure, in how many."""
    if without := sum(not isfinite(value) for value in values):
        return f"not in {without} of {len(values)} runs"
    interval = of_mean(values)
    if isinf(interval.low):
        return f"{interval.middle:{form}}"
    return f"{interval.middle:{form}} ± {interval.high - interval.middle:{form}}"


def _theirs(numbers: Numbers, row: str, column: str, form: str) -> str:
    """The paper's number; nothing where it has none."""
    number = numbers.get(row, {}).get(column)
    return "" if number is None else f"{number:{form}}"


def _deviation(values: Sequence[float]) -> str:
    """The standard deviation; nothing of one run alone, or where a run has no such figure."""
    return f"{stdev(values):{DEVIATION}}" if len(values) > 1 and all(map(isfinite, values)) else ""
