"""Cuts a model's slices again for another number of servers. All of their state is elementwise but for the tables, which slices
of one moment have alike; so the same training goes on, in lock-step with the same bits."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from paceline.core.slice.plan import Range, SlicePlan
from paceline.core.slice.state import SliceState
from paceline.core.values import Places, Sparse, Vector


def uneven(tables: Sequence[Mapping[str, Any]]) -> str:
    """Returns in words why slices with these tables (`SliceState.table`) are not of one moment, so that they can't be cut
    again; '' where they are. All must have the same pushes of each worker, in the weights or in a sum that is open."""
    if len({_change(table) for table in tables}) > 1:
        return "a change of policy has reached only some of them"
    if len({bool(table.get("rounds")) and table["version"] for table in tables}) > 1:
        return "they are of different rounds"
    workers = sorted({worker for table in tables for worker in table["clocks"]})
    for worker in workers:
        clocks = [table["clocks"].get(worker, {}).get("clock", 0) for table in tables]
        if len(set(clocks)) > 1:
            return f"they have {_listed(clocks)} pushes of {worker}"
    waiting = [table.get("gathered", [0])[0] for table in tables]
    if len(set(waiting)) > 1:
        return f"{_listed(waiting)} pushes wait in their sums"
    return ""


def recut(before: SlicePlan, states: Sequence[SliceState], after: SlicePlan) -> list[SliceState]:
    """Returns the state of each slice of the plan `after`, from those of the slices of `before`: the same model, and not
    `uneven`. Each new slice has the table of the one that most of it comes from; the first one, which the chief counts the run
    by, that of the first."""
    shared = np.array([[_shared(old, new) for old in before.slices] for new in after.slices], np.int64)
    bases = [0, *(int(row.argmax()) for row in shared[1:])]
    parts = shared / np.maximum(1, before.lengths)
    tables = [_table(states, base, part) for base, part in zip(bases, parts, strict=True)]

    def vectors(of: Callable[[SliceState], Vector]) -> list[Vector]:
        return after.parts(before.joined([of(state) for state in states]))

    def optional(of: Callable[[SliceState], Vector | None]) -> Sequence[Vector | None]:
        absent = [of(state) is None for state in states]
        if all(absent):
            return [None] * after.servers
        return vectors(
            lambda state: np.zeros(len(state.weights), np.float32) if (found := of(state)) is None else found
        )

    slots = [optional(partial(_slot, index)) for index in range(max(len(state.slots) for state in states))]
    cut = zip(
        vectors(lambda state: state.weights),
        zip(*slots, strict=True) if slots else [()] * after.servers,
        tables,
        optional(lambda state: state.gathered),
        optional(lambda state: state.lag),
        _shares(before, states, after),
        strict=True,
    )
    return [SliceState(weights, list(own), *more) for weights, own, *more in cut]


def _slot(index: int, state: SliceState) -> Vector | None:
    """Returns an array of the optimizer; None where the slice has none yet, as its momentum was 0 so far."""
    return state.slots[index] if index < len(state.slots) else None


def _table(states: Sequence[SliceState], base: int, parts: Sequence[float]) -> dict[str, Any]:
    """Returns the table of a new slice. `parts`: the share of each old slice that goes into it. What is a sum over a slice's
    elements is shared out by these, since nobody knows it by element."""
    table = copy.deepcopy(states[base].table)
    missed: dict[int, int] = {}
    for state in states:
        for tensor, steps in state.table.get("missed", ()):
            missed[tensor] = max(steps, missed.get(tensor, 0))
    if missed:
        table["missed"] = sorted([tensor, steps] for tensor, steps in missed.items())

    def total(of: Callable[[Mapping[str, Any]], float]) -> float:
        return float(sum(part * of(state.table) for part, state in zip(parts, states, strict=True)))

    if all("squares" in state.table for state in states):
        table["squares"] = total(lambda each: each["squares"])
    if all(state.table["rate"].get("adascale") for state in states):
        scale = table["rate"]["adascale"]
        for name in scale:
            scale[name] = total(lambda each, name=name: each["rate"]["adascale"][name])  # type: ignore[misc]
    return table


def _shares(before: SlicePlan, states: Sequence[SliceState], after: SlicePlan) -> list[dict[str, Sparse]]:
    """Returns by worker the sums of sparse pushes in each new slice."""
    found: list[dict[str, Sparse]] = [{} for _ in after.slices]
    workers = list(dict.fromkeys(worker for state in states for worker in state.shares))
    if not workers:
        return found
    old, new = ([_places(plan, server) for server in range(plan.servers)] for plan in (before, after))
    sorters = [np.argsort(places, kind="stable") for places in new]
    for worker in workers:
        mine = [
            (places, state.shares[worker]) for places, state in zip(old, states, strict=True) if worker in state.shares
        ]
        wide = np.concatenate([places[share.places] for places, share in mine])
        values = np.concatenate([share.values for _, share in mine])
        for places, at, shares in zip(new, sorters, found, strict=True):
            inside = np.isin(wide, places)
            own = at[np.searchsorted(places, wide[inside], sorter=at)]
            order = np.argsort(own, kind="stable")
            shares[worker] = Sparse(own[order], values[inside][order], len(places))
    return found


def _places(plan: SlicePlan, server: int) -> Places:
    """Returns where each element of that server's slice is in the flat model."""
    parts = [np.arange(part.start, part.stop, dtype=np.int64) for part in plan.slices[server]]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _shared(some: Sequence[Range], others: Sequence[Range]) -> int:
    """Returns the elements that two slices have in common."""
    return sum(max(0, min(a.stop, b.stop) - max(a.start, b.start)) for a in some for b in others)


def _change(table: Mapping[str, Any]) -> int:
    return 0 if table["switch"] is None else int(table["switch"]["number"])


def _listed(numbers: Sequence[int]) -> str:
    return f"{', '.join(f'{number:,}' for number in numbers[:-1])} and {numbers[-1]:,}"
