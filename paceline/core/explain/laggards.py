"""Which workers are slower than the others, and in what. Three causes share it, so that only one of them names a worker."""

from dataclasses import dataclass

from paceline.core.chief.straggler import FACTOR, slow_workers
from paceline.core.chief.worker_time import LEAST, OWN, Part, WorkerTime, middle, share_of
from paceline.core.explain.evidence import Evidence

SHORT_FACTOR, SHORT = 2.0, 20.0
"""Factor where fewer seconds are looked at: a busy machine makes single seconds uneven. The straggler's mark in the live table
has the lower one even then: it stands next to the figures that it is judged by, and advises nothing."""
WAITS = 0.15
"""Share of the others' time above which they wait for it: equal workers in lock-step wait for each other, too, but evenly."""
WORTH = 0.05
"""Share of the workers' time that it costs at least."""


@dataclass(frozen=True, slots=True)
class Laggards:
    """The workers that are slower than the others."""

    workers: tuple[str, ...]
    """Their names."""
    part: Part
    """Of what their steps take more: compute, data or exchange."""
    factor: float
    """How many times as long that takes them."""
    each: float
    """How long that takes them in a step (seconds)."""
    traffic: float
    """Bytes of their step, there and back."""
    share: float
    """What it costs of all workers' time (ratio)."""
    told: str
    """That in words: what the others do."""
    are_waited_for: bool
    """Whether the others wait."""
    have_links: bool
    """Whether any of them is known to reach servers over a network."""


def laggards(evidence: Evidence) -> Laggards | None:
    """The workers that hold the others up, or lag behind; None where all are about equal, and of a run so short that a pause of
    one process would tell."""
    workers = evidence.workers
    if evidence.seconds < LEAST:
        return None
    factor = SHORT_FACTOR if evidence.seconds < SHORT else FACTOR
    steps = {worker.name: worker.each(*OWN) for worker in workers}
    slow, usual = slow_workers(steps, factor), middle(steps.values())
    late = [worker for worker in workers if worker.name in slow]
    others = [worker for worker in workers if worker not in late]
    if not late or not others:
        return None
    waited = share_of(others, "wait")
    are_waited_for = waited >= WAITS and share_of(late, "wait") < waited / 2
    share = sum(each.wait for each in others) / sum(each.total for each in workers) if are_waited_for else 0.0
    if not are_waited_for:
        share = sum(1 - usual / steps[name] for name in slow) / len(workers)
    if share < WORTH:
        return None
    part, mine, theirs = _part(late, others)
    names = tuple(worker.name for worker in late)
    told = f"nobody waits for {' and '.join(names)}"
    if are_waited_for:
        whose = "the other worker's" if len(others) == 1 else f"the {len(others)} other workers'"
        told = f"{waited:.0%} of {whose} time went into waiting for {' and '.join(names)}"
    traffic = middle(worker.traffic / worker.steps for worker in late)
    times = mine / theirs if theirs > 0 else float("inf")
    have_links = any(worker.has_link for worker in late)
    return Laggards(names, part, times, mine, traffic, share, told, are_waited_for, have_links)


def _part(late: list[WorkerTime], others: list[WorkerTime]) -> tuple[Part, float, float]:
    """Of what the late ones take more, and how long it takes them and the others in a step (seconds)."""
    found = {part: (middle(w.each(part) for w in late), middle(w.each(part) for w in others)) for part in OWN}
    part = max(OWN, key=lambda each: found[each][0] - found[each][1])
    return part, *found[part]


def times(factor: float) -> str:
    """'5.0 times as long', however long."""
    return f"{factor:.1f} times as long" if factor < 1000 else "far longer"
