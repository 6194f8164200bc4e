"""Writes a slice's snapshots, and brings a slice back from one."""

from collections import Counter
from dataclasses import asdict

from paceline.core.slice.folding import Folding
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState
from paceline.core.sync.clocks import Clocks, Entry
from paceline.core.values import AS_SET, Manner, Outcome, Switch


class Recovery:
    """A restarted slice is as old as its snapshot. It takes no pushes until every member has reported which of its clocks
    were answered. Pushes since the snapshot stay lost; the slice does not ask for them again. Not thread-safe."""

    def __init__(self, clocks: Clocks, half: ServerHalf, folding: Folding) -> None:
        self._clocks = clocks
        self._half = half
        self._folding = folding
        self._resumed: set[str] = set()

    def state(self) -> SliceState:
        """A consistent copy of the whole state, without the pushes of an open round."""
        clocks, half, gathered = self._clocks, self._half, self._folding.sum
        table = {worker: asdict(entry) for worker, entry in clocks.table.items()}
        open_round = gathered.contributors if gathered is not None else {}
        for worker in open_round:
            table[worker]["clock"] -= 1
        facts = {
            "version": clocks.version,
            "pushes": clocks.pushes - len(open_round),
            "steps": half.steps,
            "examples": clocks.examples - sum(open_round.values()),
            "clocks": table,
            "policy": half.policy.state(),
            "rate": half.rate.state(),
            "switch": None if half.made is None else asdict(half.made),
        }
        if half.missed:
            facts["missed"] = sorted(half.missed.items())
        total = None
        if gathered is not None and half.policy.gathers and gathered.pushes:
            facts["gathered"] = [gathered.pushes, gathered.examples]
            if any(manner != AS_SET for manner in gathered.manners):
                facts["manners"] = [asdict(manner) for manner in gathered.manners]
            total = gathered.total.copy()
        return self._folding.state([slot.copy() for slot in half.slots], facts, total)

    def restore(self, state: SliceState) -> None:
        """Restores what `state` returned."""
        clocks, half, facts = self._clocks, self._half, state.table
        clocks.version = facts["version"]
        clocks.pushes = facts["pushes"]
        clocks.examples = facts["examples"]
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
            pushes, examples = facts["gathered"]
            manners = [Manner(tuple(each["rates"]), tuple(each["untouched"])) for each in facts.get("manners", ())]
            gathered.restore(state.gathered, pushes, examples, manners or [AS_SET] * pushes)
            clocks.buffered = gathered.pushes
        clocks.is_recovering = True

    def resumed(self, worker: str, clock: int) -> None:
        """A worker reports which of its clocks was answered last (0: unknown)."""
        self._clocks.reach(worker, clock)
        self._resumed.add(worker)

    @property
    def is_complete(self) -> bool:
        """Whether every member has reported its clocks."""
        view = self._clocks.view
        return view.number > 0 and view.seats.keys() <= self._resumed

    def end(self) -> None:
        """Accepts pushes again. Rounds continue from the slowest member's, whatever was lost."""
        clocks = self._clocks
        if self._half.policy.rounds:
            clocks.version = max(clocks.version, clocks.slowest())
            self._folding.renumber()
        clocks.forget_pushes()
        clocks.is_recovering = False
