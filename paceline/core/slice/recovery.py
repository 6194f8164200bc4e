"""Writes a slice's snapshots, and brings a slice back from one."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from paceline.core.policies.clocks import Clocks, Entry
from paceline.core.slice.copies import Copies
from paceline.core.slice.folding import Folding
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState, Snapshot
from paceline.core.values import AS_SET, GroupOption, Manner, Outcome, Switch, Vector


class Recovery:
    """A restarted slice is as old as its snapshot, and so are its clocks, which nobody else may move: by them workers find
    out which of their pushes to send again. Not thread-safe."""

    def __init__(self, clocks: Clocks, half: ServerHalf, folding: Folding) -> None:
        self._clocks = clocks
        self._half = half
        self._folding = folding
        self._spare: list[Vector] = []
        """Arrays that the next snapshot is copied to."""

    def state(self) -> SliceState:
        """A consistent copy of the whole state, without the pushes of an open round."""
        found = self.snapshot()
        found.copies.finish()
        self._folding.release(found.weights)
        return replace(found.state, weights=found.state.weights.copy())

    def snapshot(self) -> Snapshot:
        """The same, without a wait for copies: weights are pinned, and what changes in place is still to be copied."""
        clocks, half, gathered = self._clocks, self._half, self._folding.sum
        table = {worker: entry.facts() for worker, entry in clocks.table.items()}
        open_round = gathered.contributors if gathered is not None else {}
        for worker, examples in open_round.items():
            table[worker]["clock"] -= 1
            table[worker]["examples"] -= examples
            table[worker]["position"] = table[worker]["position_before"]
        facts = {
            "version": clocks.version,
            "pushes": clocks.pushes - len(open_round),
            "steps": half.steps,
            "examples": clocks.examples - sum(open_round.values()),
            "clocks": table,
            "policy": half.policy.state(),
            "rate": half.rate.state(),
            "switch": None if half.made is None else asdict(half.made),
            "rounds": half.policy.rounds,
        }
        if clocks.discarded:
            facts["discarded"] = clocks.discarded
        if half.missed:
            facts["missed"] = sorted(half.missed.items())
        if gathered is not None and self._has_sum:
            facts["gathered"] = [gathered.pushes, gathered.examples, gathered.open_examples]
            if any(manner != AS_SET for manner in gathered.manners):
                facts["manners"] = [asdict(manner) for manner in gathered.manners]
        half.copies.finish()
        copies = half.copies = Copies(self._changing(), self._spare)
        made, weights = copies.made, self._folding.keep()
        slots = [made[_slot(index)] for index in range(len(half.slots))]
        values, total, lag = made.get("weights", weights.values), made.get("gathered"), made.get("lag")
        return Snapshot(SliceState(values, slots, facts | self._folding.facts, total, lag), copies, weights)

    @property
    def lacks(self) -> int:
        """Arrays of the slice's length that a snapshot would have to make: they are quicker made before, without the lock."""
        needed = len(self._half.slots) + len(self._folding.changing) + self._has_sum
        return max(0, needed - len(self._spare)) + self._folding.lacks

    def supply(self, arrays: Iterable[Vector]) -> None:
        """Takes arrays for the next snapshot: new ones, or the last one's when it is written."""
        for values in arrays:
            if self._folding.lacks:
                self._folding.supply(values)
            else:
                self._spare.append(values)

    @property
    def _has_sum(self) -> bool:
        """Whether pushes are summed outside of rounds, and are in the snapshot."""
        gathered = self._folding.sum
        return gathered is not None and self._half.policy.gathers and gathered.pushes > 0

    def _changing(self) -> dict[str, Vector]:
        """What a snapshot holds and training changes in place, by name."""
        found = {_slot(index): slot for index, slot in enumerate(self._half.slots)} | self._folding.changing
        if self._folding.sum is not None and self._has_sum:
            found["gathered"] = self._folding.sum.total
        return found

    def restore(self, state: SliceState) -> None:
        """Restores what `state` returned."""
        clocks, half, facts = self._clocks, self._half, state.table
        clocks.version = facts["version"]
        clocks.pushes = facts["pushes"]
        clocks.examples = facts["examples"]
        clocks.discarded = facts.get("discarded", 0)
        for worker, entry in facts["clocks"].items():
            clocks.table[worker] = Entry(**(entry | {"outcome": Outcome(entry["outcome"])}))
        if facts["switch"] is not None:
            half.adopt(Switch(**facts["switch"]))
            self._folding.begin()
        half.policy.restore(facts["policy"])
        half.rate.restore(facts["rate"])
        half.slots = list(state.slots)
        half.steps = facts["steps"]
        half.missed = Counter(dict(facts.get("missed", ())))
        self._folding.restore(state)
        gathered = self._folding.sum
        if state.gathered is not None and gathered is not None:
            pushes, examples, *counted = facts["gathered"]
            manners = [_manner(each) for each in facts.get("manners", ())]
            gathered.restore(state.gathered, pushes, examples, manners or [AS_SET] * pushes, *counted)
            clocks.buffered = gathered.pushes
        clocks.forget_pushes()

    def go_back(self, state: SliceState) -> None:
        """Takes over weights, optimizer and place in the schedule of an older snapshot. The clocks stay: what was pushed since
        is counted, and discarded."""
        clocks, half, facts = self._clocks, self._half, state.table
        half.copies.finish()
        clocks.discarded = clocks.examples - facts["examples"] + facts.get("discarded", 0)
        half.rate.restore(facts["rate"])
        if len(state.slots) == len(half.slots):
            half.slots = list(state.slots)
            half.steps = facts["steps"]
            half.missed = Counter(dict(facts.get("missed", ())))
        else:  # the memory was the workers' then
            half.renew_slots()
        self._folding.start(state.weights, clocks.version)


def _manner(facts: dict[str, Any]) -> Manner:
    """That of one push in a sum; earlier snapshots have no options."""
    options = (GroupOption(group, name, tuple(values)) for group, name, values in facts.get("options", ()))
    return Manner(tuple(facts["rates"]), tuple(facts["untouched"]), tuple(options))


def _slot(index: int) -> str:
    return f"slot{index}"
