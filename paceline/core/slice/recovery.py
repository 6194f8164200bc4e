"""Writes a slice's snapshots, and brings a slice back from one."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace

from paceline.core.policies.clocks import Clocks, Entry
from paceline.core.slice.copies import Copies
from paceline.core.slice.folding import Folding, Sum
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState, Snapshot
from paceline.core.values import Outcome, Switch, Vector


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
        if half.policy.rounds:
            facts["round_examples"] = clocks.round_examples
        if clocks.discarded:
            facts["discarded"] = clocks.discarded
        if half.missed:
            facts["missed"] = sorted(half.missed.items())
        open_sum = self._open_sum
        shares = {} if open_sum is None else open_sum.shares
        if open_sum is not None:
            facts |= open_sum.facts
        half.copies.finish()
        copies = half.copies = Copies(self._changing(), self._spare)
        made, weights = copies.made, self._folding.keep()
        slots = [made[_slot(index)] for index in range(len(half.slots))]
        values, total, lag = made.get("weights", weights.values), made.get("gathered"), made.get("lag")
        return Snapshot(SliceState(values, slots, facts | self._folding.facts, total, lag, shares), copies, weights)

    @property
    def lacks(self) -> int:
        """Arrays of the slice's length that a snapshot would have to make: they are quicker made before, without the lock."""
        return max(0, len(self._changing()) - len(self._spare)) + self._folding.lacks

    def supply(self, arrays: Iterable[Vector]) -> None:
        """Takes arrays for the next snapshot: new ones, or the last one's when it is written."""
        for values in arrays:
            if self._folding.lacks:
                self._folding.supply(values)
            else:
                self._spare.append(values)

    @property
    def _open_sum(self) -> Sum | None:
        """The pushes that are summed outside of rounds, and are in the snapshot."""
        gathered = self._folding.sum
        return gathered if gathered is not None and self._half.policy.gathers and gathered.pushes else None

    def _changing(self) -> dict[str, Vector]:
        """What a snapshot holds and training changes in place, by name."""
        found = {_slot(index): slot for index, slot in enumerate(self._half.slots)} | self._folding.changing
        return found if self._open_sum is None else found | self._open_sum.changing

    def restore(self, state: SliceState) -> None:
        """Restores what `state` returned."""
        clocks, half, facts = self._clocks, self._half, state.table
        clocks.version = facts["version"]
        clocks.pushes = facts["pushes"]
        clocks.examples = facts["examples"]
        clocks.discarded = facts.get("discarded", 0)
        clocks.begin_round(facts.get("round_examples", clocks.trained / max(1, clocks.version)))
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
        if "gathered" in facts and gathered is not None:
            gathered.restore(state)
            clocks.buffered = gathered.pushes
        clocks.forget_pushes()

    def go_back(self, state: SliceState) -> None:
        """Takes over weights, optimizer and place in the schedule of an older snapshot. The clocks stay: what was pushed since
        is counted, and discarded."""
        clocks, half, facts = self._clocks, self._half, state.table
        half.copies.finish()
        clocks.discarded = clocks.examples - facts["examples"] + facts.get("discarded", 0)
        clocks.begin_round(clocks.round_examples)
        half.rate.restore(facts["rate"])
        if len(state.slots) == len(half.slots):
            half.slots = list(state.slots)
            half.steps = facts["steps"]
            half.missed = Counter(dict(facts.get("missed", ())))
        else:  # the memory was the workers' then
            half.renew_slots()
        self._folding.start(state.weights, clocks.version)


def _slot(index: int) -> str:
    return f"slot{index}"
