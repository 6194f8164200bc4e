"""the reliability report, made of what build/chaos/results.jsonl says was run; nothing in it is an estimate."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.commits import named
from tests.chaos.own.dying_server import POINTS
from tests.chaos.results import ROOT, read
from tests.chaos.rounds import BATCH, SERVERS, WORKERS
from tests.mutants.planting import mutants

PAGE = (ROOT / "docs" / "failures" / "reliability-report").with_suffix(".md")
TEXTS = Path(__file__).with_name("report_texts.txt")
"""What the page says around its tables, by name."""
PLANTED = ROOT / "build" / "chaos" / "mutants.json"
"""What `make mutants` wrote."""


def write() -> None:
    """Writes the page; a section whose tries have not been repeated stays as it is."""
    rounds = [kills(), points(), power(), text("EARLIER")] if read("round") else [kept("Kills")]
    others = [
        bits() or kept("The same bits"),
        virtual() or kept("Virtual time"),
        soaks() or kept("Long runs"),
        planted() or kept("Planted defects"),
    ]
    PAGE.write_text("\n".join(part for part in [text("HEAD"), *rounds, *others, text("TAIL")] if part))
    print(f"wrote {PAGE}")


def kept(title: str) -> str:
    """This section of the page as it is, where there is no new try; '' where there is none."""
    page = PAGE.read_text() if PAGE.exists() else ""
    begin = page.find(f"## {title}\n")
    return "" if begin < 0 else page[begin : page.find("\n## ", begin)].strip() + "\n"


def text(name: str) -> str:
    """One of the texts."""
    parts = dict(part.split("\n", 1) for part in TEXTS.read_text().split("%% ")[1:])
    return parts[name].strip() + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """In markdown; numbers with commas."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]) + "\n"


def cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def section(name: str, head: Sequence[str], rows: Iterable[Sequence[object]], **facts: object) -> str:
    """A text with these facts, and its table."""
    return text(name).format(**facts) + "\n" + table(head, rows)


# rounds
def kills() -> str:
    """What became of the rounds, by kind and retention."""
    every = read("round")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    seeds: dict[str, list[int]] = {}
    for one in every:
        retained = "as set by default" if one["retain"] is None else f"{one['retain']} bytes"
        groups.setdefault((one["kind"], retained), []).append(one)
        seeds.setdefault(one["kind"], []).append(one["seed"])
    sums = [figures(rounds) for rounds in groups.values()]
    rows = [[*group, *each] for group, each in zip(groups, sums, strict=True)]
    rows.append(["all", "", *map(sum, zip(*sums, strict=True))])
    head = ["policy", "retained", "rounds", "kills", "answered pushes", "lost", "counted twice", "rounds not good"]
    said = section("ROUNDS", head, rows, workers=WORKERS, servers=SERVERS, batch=BATCH, on=named(every, ROOT))
    said += "\n" + table(
        ["policy", "seeds"], [[kind, ", ".join(map(str, sorted(each)))] for kind, each in seeds.items()]
    )
    bad = ", ".join(f"{one['kind']} {one['seed']}" for one in every if not one["good"])
    return said + (f"\nSeeds of the rounds that were not good: {bad}.\n" if bad else "")


def figures(rounds: Sequence[dict[str, Any]]) -> list[int]:
    """Of some rounds: their number, kills, pushes over all slices, lost ones, ones counted twice, rounds not good."""
    slices = [balance for one in rounds for balance in one["balances"]]
    return [
        len(rounds),
        sum(len(one["kills"]) for one in rounds),
        sum(balance["pushes"] for balance in slices),
        -(-sum(round(balance["missing"]) for balance in slices) // BATCH),
        -(-sum(round(balance["surplus"]) for balance in slices) // BATCH),
        sum(not one["good"] for one in rounds),
    ]


def points() -> str:
    """At which points of a push servers died, by form and transport."""
    died = Counter[tuple[str, str]]()
    for one in read("round"):
        form = "sparse" if one["kind"] == "svm" else "dense" if one["variant"]["codec"] == "none" else "coded"
        died.update((f"{form}, {one['variant']['transport']}", point) for point in one.get("points", ()))
    columns = sorted({column for column, _ in died})
    rows = [[point, *(died[column, point] for column in columns)] for point in POINTS]
    return section("POINTS", ["the server dies", *columns], rows) if died else ""


def power() -> str:
    """How often the power went with a server."""
    hit = [one for one in read("round") if one["variant"].get("power")]
    if not hit:
        return ""
    losses = sum(len(kill["servers"]) for one in hit for kill in one["kills"])
    files, bad = sum(one["dropped"] for one in hit), figures(hit)[5]
    return text("POWER").format(rounds=len(hit), losses=f"{losses:,}", files=f"{files:,}", bad=bad)


# lock-step
def bits() -> str:
    """The final slices of the newest runs in lock-step, by what was done to them."""
    newest = {one["form"]: one for one in read("bits")}
    if not newest:
        return ""
    said = text("BITS").format(on=named(newest.values(), ROOT))
    for form, one in newest.items():
        slices = {name: [each.split() for each in both] for name, both in one["slices"].items()}
        rounds = ", ".join(sorted({version for both in slices.values() for version, _ in both}))
        result = "All slices are the same." if one["good"] else f"Not good: {one['why'] or 'other bits'}."
        rows = [[name, *(f"`{digest[:12]}`" for _, digest in both)] for name, both in slices.items()]
        said += f"\n{form.capitalize()}, {rounds} rounds. {result}\n\n" + table(["run", "server 0", "server 1"], rows)
    return said


# virtual time
def virtual() -> str:
    """Schedules in virtual time."""
    every = read("schedules")
    done = Counter[str]()
    for one in every:
        done.update(one["done"])
    failures = [why for one in every for why in one["failures"]]
    rows = [[policy, number, sum(f", {policy}, " in why for why in failures)] for policy, number in done.items()]
    rows.append(["all", done.total(), len(failures)])
    seeds = ", ".join(str(one["seed"]) for one in every)
    head = ["policy", "schedules", "not good"]
    return section("VIRTUAL", head, rows, on=named(every, ROOT), seeds=seeds) if every else ""


# soaks
def soaks() -> str:
    """Long runs, and what their processes held."""
    runs, held = read("soak"), {(one["kind"], one["seed"]): one for one in read("held")}
    if not runs:
        return ""
    told = text("SOAK").format(on=named(runs, ROOT))
    for run in runs:
        lost, doubled = figures([run])[3:5]
        told += (
            f"\n`{run['kind']}`, seed {run['seed']}: {run['seconds'] / 60:.0f} minutes, {len(run['kills'])} faults, "
            f"{sum(balance['pushes'] for balance in run['balances']):,} answered pushes, {lost} lost, {doubled} counted "
            "twice.\n"
        )
        mine = held.get((run["kind"], run["seed"]), {})
        grown = {name: each for name, each in mine.items() if isinstance(each, dict)}
        rows = [[name, *(size(name, each[part]) for part in ("first", "last"))] for name, each in grown.items()]
        if rows:
            told += "\n" + table(["median of", "first quarter of the time", "last quarter"], rows)
    return told


def size(name: str, value: float) -> str:
    return f"{value:.0f}" if name.endswith("files") else f"{value / 2**20:.1f} MiB"


# mutants
def planted() -> str:
    """The defects that were planted, and the tests that caught them."""
    if not PLANTED.exists():
        return ""
    tried = {one["name"]: one for one in json.loads(PLANTED.read_text())}
    rows = []
    for mutant in mutants():
        if mutant.name in tried:
            result = "survives" if tried[mutant.name]["survived"] else "caught"
            tests = "<br>".join(f"`{test.rpartition('::')[2]}`" for test in mutant.caught_by)
            rows.append([mutant.name, mutant.breaks.rstrip("."), tests, result])
    return section("MUTANTS", ["defect", "what goes wrong with it", "tests that catch it", "result"], rows)
