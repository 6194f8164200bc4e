"""A plan for people: what it rests on, the table, the sizes, and a sentence of advice."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Column, Table

from paceline.base.terminal import show
from paceline_studies.planning.advice import ALIKE, Advice, name
from paceline_studies.planning.choices import begins_as
from paceline_studies.planning.figures import Figures
from paceline_studies.planning.plan import Plan
from paceline_studies.planning.rows import Row, Site
from paceline_studies.planning.sizes import print_report


def print_plan(plan: Plan, console: Console, all_servers: bool = False) -> None:
    """All of it; the advice comes last. `all_servers`: a row for each number of servers, and not only for the best."""
    if plan.figures is None:
        print_report(plan.sizes, console)
        return
    show(console, _measured(plan.figures))
    show(console, f"forecast for {plan.place.text()}:")
    shown = plan.rows if all_servers else best_servers(plan.rows, plan.advice)
    console.print(_table(shown, plan.place, plan.advice))
    for row in {row.choice.policy: row for row in shown if begins_as(row.choice.config)}.values():
        own, before = row.choice.policy, begins_as(row.choice.config)
        show(
            console, f"{own} begins as {before}, and has its numbers; it changes where another policy is clearly faster"
        )
    for line in dict.fromkeys(row.lacks for row in shown if row.lacks):
        show(console, f"does not fit: {line}")
    for line in plan.refused:
        show(console, f"left out: {line}")
    show(console, "")
    print_report(plan.sizes, console)
    show(console, "")
    show(console, _advice(plan))


def _measured(figures: Figures) -> str:
    """What the forecast rests on."""
    if figures.worker_memory is None:
        return figures.told
    steps = " and ".join(f"{span(step.seconds)} for a mini-batch of {step.batch:,}" for step in figures.steps)
    return (
        f"{figures.told}: a worker takes {steps}, {span(figures.exchange)} for a push and a pull, and "
        f"{figures.worker_memory / 2**20:,.0f} MiB of memory; a server takes {span(figures.service)} for a push"
    )


def best_servers(rows: Sequence[Row], advice: Advice | None) -> list[Row]:
    """Of each policy and number of workers the row with the fewest servers that is as fast as any, and those with a mark."""
    found = []
    for row in rows:
        choice = row.choice
        same = [each for each in rows if (each.choice.policy, each.choice.workers) == (choice.policy, choice.workers)]
        alike = [each for each in same if each.seconds <= (1 + ALIKE) * min(other.seconds for other in same)]
        if row is min(alike, key=lambda each: each.choice.servers) or _marks(row, advice):
            found.append(row)
    return found


def _table(rows: Sequence[Row], place: Site, advice: Advice | None) -> Table:
    heads = ("workers", "servers", "examples/s", "stale", "wait", "time", *(["cost"] if place.prices else []))
    table = Table(Column("policy"), *(Column(head, justify="right", no_wrap=True) for head in heads), "full", "")
    table.padding = (0, 1, 0, 0)
    table.box = None
    for row in rows:
        choice, marks = row.choice, _marks(row, advice)
        cost = [place.prices.shown(row.cost)] if place.prices is not None and row.cost is not None else []
        table.add_row(
            *(
                choice.policy,
                str(choice.workers),
                str(choice.servers),
                f"{row.throughput:,.0f}",
                f"{row.staleness:.1f}",
            ),
            *(f"{row.waiting:.0%}", span(row.seconds), *cost, row.full, marks),
            style="bold" if advice is not None and row is advice.row else None,
        )
    return table


def _marks(row: Row, advice: Advice | None) -> str:
    """What is special about it."""
    if row.lacks or advice is None:
        return "does not fit" if row.lacks else ""
    named = {"advised": advice.row, "fastest": advice.fastest, "cheapest": advice.cheapest}
    return ", ".join(name for name, found in named.items() if found is row)


def _advice(plan: Plan) -> str:
    """The sentence, and the command."""
    if plan.advice is None:
        return "Advice: none of these fits on this machine; take fewer workers, or a machine for each (--link)."
    row = plan.advice.row
    return f"Advice: {name(row)}, {span(row.seconds)}: {plan.advice.why}. Start it: {plan.command}"


def span(seconds: float) -> str:
    """A time for people: 0.12 ms, 3.4 s, 12 min, 5.2 h, 3.1 days."""
    for unit, length, least in (("days", 86400.0, 2.0), ("h", 3600.0, 2.0), ("min", 60.0, 2.0), ("s", 1.0, 1.0)):
        if seconds >= least * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1000:.2g} ms"
