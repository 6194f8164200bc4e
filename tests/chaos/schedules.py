"""Many more virtual schedules with restarts than the suite runs: the promises of tests/runs/test_virtual_cluster.py and
test_virtual_divergence.py, and the bits of lock-step (tests/support/virtual_lock_step.py)."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice, product

from tests.runs import test_virtual_cluster as whole
from tests.runs import test_virtual_divergence as diverging
from tests.support.ledger import Ledger
from tests.support.virtual_lock_step import check_bits

BITS = "lock-step"
"""Runs of which every bit is known, in which servers, the chief and workers die."""
SPARSE = ("asp sparse", "bsp sparse")
"""As the SVM: a push names the weights that it changes."""
DIVERGING = "diverging"
"""Runs that diverge and go back to older weights, under each policy and with all kinds of trouble in turn."""
POLICIES = ("asp", "ssp:1", "bsp", "kbuffered:2", "dana", "easgd:1", *SPARSE, BITS, DIVERGING)
RESTARTS = tuple(happenings for happenings in whole.HAPPENINGS if "restart" in happenings)
Schedule = tuple[int, str, tuple[str, ...]]


def schedules(policy: str, number: int, first: int) -> Iterator[Schedule]:
    """`number` of them, from this seed on, of all kinds of trouble with restarts in turn; lock-step draws its own, and those
    with sparse updates share the number."""
    if policy == BITS:
        return ((seed, policy, ()) for seed in range(first, first + number))
    if policy == DIVERGING:
        kinds = list(product(diverging.CHAOTIC, diverging.TROUBLES))
        return islice(((seed, f"{policy} {one}", what) for seed in count(first) for one, what in kinds), number)
    every = ((seed, policy, happenings) for seed in count(first) for happenings in RESTARTS)
    return islice(every, number // len(SPARSE) if policy in SPARSE else number)


def failure(schedule: Schedule) -> tuple[str, str]:
    """The policy or kind, and what went wrong ('': nothing)."""
    seed, policy, happenings = schedule
    kind = DIVERGING if policy.startswith(DIVERGING) else policy
    try:
        if policy == BITS:
            check_bits(seed)
        elif kind == DIVERGING:
            diverging.run_schedule(seed, policy.removeprefix(f"{DIVERGING} "), happenings, Ledger())
        else:
            whole.run_schedule(seed, policy, happenings, Ledger())
    except Exception as error:
        return kind, str(error)[:500]
    return kind, ""


def run(number: int, first: int, processes: int) -> tuple[Counter[str], list[str]]:
    """Runs `number` of each policy; returns how many there were of each, and all failures."""
    done, failures = Counter[str](), []
    every = (schedule for policy in POLICIES for schedule in schedules(policy, number, first))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for policy, why in pool.imap_unordered(failure, every, chunksize=20):
            done[policy] += 1
            if why:
                failures.append(why)
                print(f"FAILED {why}", flush=True)
    return done, failures
