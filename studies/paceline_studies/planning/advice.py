"""One sentence of advice, and what it rests on. It never contradicts the table."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline_studies.planning.rows import Row

ALIKE = 0.05
"""Forecasts that differ by less count as alike (ratio)."""
LOOSER = 0.25
"""What a tighter policy costs at least before a looser one is advised, since stale pushes cost accuracy (ratio)."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Which row to take."""

    row: Row
    fastest: Row
    cheapest: Row | None
    """None where nothing has a price."""
    why: str
    """The evidence, as half a sentence."""


def advise(rows: Sequence[Row]) -> Advice | None:
    """The row to take of those that this machine can run; None where there are none: the fewest workers with which one is as
    fast as any, then the tightest policy, unless a looser one saves more than `LOOSER`, then the fewest servers. With prices
    cost times time replaces time: what is dearer than the cheapest must be as much faster."""
    able = [row for row in rows if not row.lacks]
    if not able:
        return None
    fastest = min(able, key=lambda row: row.seconds)
    priced = [row for row in able if row.cost is not None]
    cheapest = min(priced, key=_cost, default=None)
    fewest = min(row.choice.workers for row in _within(able, ALIKE))
    same = _within([row for row in able if row.choice.workers == fewest], LOOSER)
    tightest = min(_stale(row) for row in same)
    alike = _within([row for row in same if _stale(row) == tightest], ALIKE)
    row = min(alike, key=lambda row: (row.choice.servers, not row.choice.is_own, _price(row)))
    return Advice(row, fastest, cheapest, _why(row, able, fastest, cheapest))


def _within(rows: Sequence[Row], share: float) -> list[Row]:
    """Those that are not worse than the best by more than this share."""
    best = min(map(_price, rows))
    return [row for row in rows if _price(row) <= best * (1 + share)]


def _stale(row: Row) -> float:
    """How loose it is: its staleness, rounded."""
    return round(row.staleness, 1)


def _cost(row: Row) -> float:
    assert row.cost is not None
    return row.cost


def _price(row: Row) -> float:
    """What should be small."""
    return row.seconds if row.cost is None else row.seconds * row.cost


def _why(row: Row, rows: Sequence[Row], fastest: Row, cheapest: Row | None) -> str:
    """What speaks for the row against the others."""
    parts = [_against_fastest(row, fastest), _against_cheapest(row, cheapest)]
    if tighter := _tighter(row, rows):
        slower = tighter.seconds / row.seconds
        parts.append(
            f"under {tighter.choice.policy} workers wait {tighter.waiting:.0%} of the time, and it takes {slower:.2g} times as "
            "long"
        )
    if fewer := _next(row, rows, -1):
        parts.append(f"with {_workers(fewer)} it takes {fewer.seconds / row.seconds:.2g} times as long")
    if more := _next(row, rows, 1):
        gain = row.seconds / more.seconds
        parts.append(f"{_workers(more)} are {'not faster' if gain <= 1 else f'{gain:.2f} times as fast'}")
    return "; ".join(part for part in parts if part)


def _against_fastest(row: Row, fastest: Row) -> str:
    ratio = row.seconds / fastest.seconds
    if ratio <= 1 + ALIKE:
        return "nothing here is faster" + (f" by more than {ALIKE:.0%}" if row is not fastest else "")
    stale = f" but has a staleness of {fastest.staleness:.1f}" if _stale(fastest) > _stale(row) else ""
    return f"{name(fastest)} is {ratio:.2f} times as fast{stale}"


def _against_cheapest(row: Row, cheapest: Row | None) -> str:
    if cheapest is None or row is cheapest:
        return "" if cheapest is None else "nothing here is cheaper"
    if not cheapest.cost:
        return f"{name(cheapest)} costs nothing"
    dearer = _cost(row) / cheapest.cost
    return f"it costs {dearer:.2f} times as much as {name(cheapest)}, and is {cheapest.seconds / row.seconds:.2f} times as fast"


def _tighter(row: Row, rows: Sequence[Row]) -> Row | None:
    """The same with the tightest policy, where that is another one and slower."""
    same = [
        each for each in rows if (each.choice.workers, each.choice.servers) == (row.choice.workers, row.choice.servers)
    ]
    tightest = min(same, key=lambda each: (each.staleness, each.seconds))
    is_slower = tightest.seconds > row.seconds * (1 + ALIKE) and tightest.waiting > row.waiting
    return tightest if is_slower and tightest.staleness < row.staleness else None


def _next(row: Row, rows: Sequence[Row], way: int) -> Row | None:
    """The fastest with the next higher number of workers (`way` 1), or the next lower one (-1)."""
    others = [each for each in rows if (each.choice.workers - row.choice.workers) * way > 0]
    nearest = min((abs(each.choice.workers - row.choice.workers) for each in others), default=0)
    there = [each for each in others if abs(each.choice.workers - row.choice.workers) == nearest]
    return min(there, key=lambda each: each.seconds, default=None)


def _workers(row: Row) -> str:
    return f"{row.choice.workers} worker{'s' * (row.choice.workers != 1)}"


def name(row: Row) -> str:
    """A row in words."""
    servers = row.choice.servers
    return f"{row.choice.policy} with {_workers(row)} and {servers} server{'s' * (servers != 1)}"
