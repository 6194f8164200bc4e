"""the reliability report, made of what build/chaos/results.jsonl says was run; nothing in it is an estimate."""

import json
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
BEFORE = (
    ("asp", 3, 15, 11028, 4508, 83),
    ("ssp", 3, 15, 7764, 3238, 65),
    ("bsp", 3, 15, 4368, 1265, 61),
    ("kbuffered", 3, 15, 10688, 3617, 49),
    ("dana", 3, 15, 12604, 3943, 63),
    ("easgd", 3, 15, 11930, 2832, 47),
    ("svm", 3, 15, 6908, 1220, 44),
)
"""Kind, rounds, kills, answered pushes on all slices, those lost, the most on one slice (per cent): the same rounds on commit
8c09b34, 23 November 2026. One of the rounds of bsp did not go on, and counts no pushes."""


def write() -> None:
    """Writes the page; a section whose tries have not been repeated stays as it is."""
    rounds = [kills(), points(), power(), before()] if read("round") else [kept("Kills")]
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


# rounds
def kills() -> str:
    """What became of the rounds, by kind and retention."""
    every = read("round")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in every:
        retained = "as set by default" if one["retain"] is None else f"{one['retain']} bytes"
        groups.setdefault((one["kind"], retained), []).append(one)
    rows = [[*group, *figures(rounds)] for group, rounds in groups.items()]
    head = ["policy", "retained", "rounds", "kills", "answered pushes", "lost", "counted twice", "rounds not good"]
    total = ["all", "", *(sum(int(row[index]) for row in rows) for index in range(2, len(head)))]
    seeds = ", ".join(f"{one['kind']} {one['seed']}" for one in every if not one["good"])
    numbers: dict[str, list[int]] = {}
    for one in every:
        numbers.setdefault(one["kind"], []).append(one["seed"])
    tried = "\n" + table(["policy", "seeds"], [[kind, in_steps(each)] for kind, each in numbers.items()])
    bad = f"\nSeeds of the rounds that were not good: {seeds}.\n" if seeds else ""
    return text("ROUNDS").format(workers=WORKERS, servers=SERVERS, batch=BATCH, on=named(every, ROOT)) + (
        "\n" + table(head, [*rows, total]) + tried + bad
    )


def in_steps(seeds: Sequence[int]) -> str:
    """The seeds, in order; three or more at equal distances as '5 to 33 by 7'."""
    found, left = [], sorted(seeds)
    while left:
        run = left[:1]
        while len(run) < len(left) and left[len(run)] - run[-1] == left[1] - left[0]:
            run.append(left[len(run)])
        step = run[1] - run[0] if len(run) > 2 else 0
        run = run if step else run[:1]
        found.append(f"{run[0]} to {run[-1]} by {step}" if step else str(run[0]))
        left = left[len(run) :]
    return ", ".join(found)


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
    died: dict[str, dict[str, int]] = {}
    for one in read("round"):
        form = "sparse" if one["kind"] == "svm" else "dense" if one["variant"]["codec"] == "none" else "coded"
        for point in one.get("points", ()):
            column = f"{form}, {one['variant']['transport']}"
            died.setdefault(column, dict.fromkeys(POINTS, 0))[point] += 1
    if not died:
        return ""
    columns = sorted(died)
    rows = [[point, *(died[column][point] for column in columns)] for point in POINTS]
    return text("POINTS") + "\n" + table(["the server dies", *columns], rows)


def power() -> str:
    """How often the power went with a server."""
    hit = [one for one in read("round") if one["variant"].get("power")]
    if not hit:
        return ""
    losses = sum(len(kill["servers"]) for one in hit for kill in one["kills"])
    files, bad = sum(one["dropped"] for one in hit), figures(hit)[5]
    return text("POWER").format(rounds=len(hit), losses=f"{losses:,}", files=f"{files:,}", bad=bad)


def before() -> str:
    """What the same rounds lost before Paceline kept every push."""
    rows = [
        [kind, rounds, kills, pushes, lost, f"{100 * lost / pushes:.0f} %", f"{most} %"]
        for kind, rounds, kills, pushes, lost, most in BEFORE
    ]
    head = ["policy", "rounds", "kills", "answered pushes", "lost", "share", "most on one slice"]
    return text("EARLIER") + "\n" + table(head, rows)


# lock-step
def bits() -> str:
    """The final slices of the newest runs in lock-step, by what was done to them."""
    newest = {one["form"]: one for one in read("bits")}
    if not newest:
        return ""
    said = text("BITS").format(on=named(newest.values(), ROOT))
    for form, one in newest.items():
        rows = [
            [name, *(f"`{digest[:12]}`" for _, _, digest in (each.partition(" ") for each in slices))]
            for name, slices in one["slices"].items()
        ]
        result = "All slices are the same." if one["good"] else f"Not good: {one['why'] or 'other bits'}."
        versions = {each.partition(" ")[0] for slices in one["slices"].values() for each in slices}
        rounds = ", ".join(sorted(versions))
        said += f"\n{form.capitalize()}, {rounds} rounds. {result}\n\n" + table(["run", "server 0", "server 1"], rows)
    return said


# virtual time
def virtual() -> str:
    """Schedules in virtual time."""
    every = read("schedules")
    if not every:
        return ""
    done: dict[str, int] = {}
    for one in every:
        for policy, number in one["done"].items():
            done[policy] = done.get(policy, 0) + number
    failures = [why for one in every for why in one["failures"]]
    failed = {policy: sum(f", {policy}, " in why for why in failures) for policy in done}
    rows = [[policy, number, failed[policy]] for policy, number in done.items()]
    rows.append(["all", sum(done.values()), len(failures)])
    seeds = ", ".join(str(one["seed"]) for one in every)
    return (
        text("VIRTUAL").format(on=named(every, ROOT), seeds=seeds)
        + "\n"
        + table(["policy", "schedules", "not good"], rows)
    )


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
        if grown:
            rows = [[name, size(name, each["first"]), size(name, each["last"])] for name, each in grown.items()]
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
    return text("MUTANTS") + "\n" + table(["defect", "what goes wrong with it", "tests that catch it", "result"], rows)
