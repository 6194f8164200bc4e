"""Run it yourself: many more seeds than the tests run. `python -m tests.runs.virtual_sweep [policies|switches] FIRST LAST`."""

import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product

from tests.runs import test_virtual_cluster as whole
from tests.runs import test_virtual_switch as change
from tests.support.ledger import Ledger


def policies(first: int, last: int) -> Iterator[tuple[str, str | None]]:
    """Every policy through every kind of trouble: the schedule, and what went wrong."""
    for policy in whole.POLICIES + whole.OTHERS:
        for happenings in whole.HAPPENINGS:
            for seed in range(first, last):
                try:
                    whole.run_schedule(seed, policy, happenings, Ledger())
                    yield policy, None
                except Exception as error:
                    yield policy, str(error)


def switches(first: int, last: int) -> Iterator[tuple[str, str | None]]:
    """Every change of policy with trouble of every kind: the trouble, and what went wrong."""
    ledger = Ledger()
    for seed in range(first, last):
        for pair in product(change.COMPATIBLE, repeat=2):
            rng = random.Random(f"{seed} {pair}")
            trouble, third = rng.choice(change.TROUBLES), rng.choice([(), (rng.choice(change.COMPATIBLE),)])
            try:
                change.run_schedule(seed, pair + third, trouble, ledger)
                yield "+".join(trouble), None
            except Exception as error:
                yield "+".join(trouble), str(error)


def main(kind: str, first: int, last: int) -> None:
    """Prints each failure and the number of schedules."""
    run, failed = Counter[str](), Counter[str]()
    for group, failure in {"policies": policies, "switches": switches}[kind](first, last):
        run[group] += 1
        if failure is not None:
            failed[group] += 1
            print(failure[:600], flush=True)
    print(f"{sum(run.values())} schedules, {sum(failed.values())} failed: {dict(failed)}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
