"""Many more virtual schedules with restarts than the suite runs: the promises of tests/runs/test_virtual_cluster.py, and the
bits of lock-step (tests/support/virtual_lock_step.py)."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

from tests.conftest import Ledger
from tests.runs import test_virtual_cluster as whole
from tests.support.virtual_lock_step import check_bits

BITS = "lock-step"
"""Runs of which every bit is known, in which servers, the chief and workers die."""
SPARSE = ("asp sparse", "bsp sparse")
"""As the SVM: a push names the weights that it changes."""
POLICIES = ("asp", "ssp:1", "bsp", "kbuffered:2", "dana", "easgd:1", *SPARSE, BITS)
RESTARTS = tuple(happenings for happenings in whole.HAPPENINGS if "restart" in happenings)
Schedule = tuple[int, str, tuple[str, ...]]


def schedules(policy: str, number: int, first: int) -> Iterator[Schedule]:
    """`number` of them, from this seed on, of all kinds of trouble with restarts in turn; lock-step draws its own, and those
    with sparse updates share the number."""
    if policy == BITS:
        return ((seed, policy, ()) for seed in range(first, first + number))
    every = ((seed, policy, happenings) for seed in count(first) for happenings in RESTARTS)
    return islice(every, number // len(SPARSE) if policy in SPARSE else number)


def failure(schedule: Schedule) -> tuple[str, str]:
    """The policy, and what went wrong ('': nothing)."""
    seed, policy, happenings = schedule
    try:
        if policy == BITS:
            check_bits(seed)
        else:
            whole.run_schedule(seed, policy, happenings, Ledger())
    except Exception as error:
        return policy, str(error)[:500]
    return policy, ""


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
