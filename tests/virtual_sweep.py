"""By hand: many more seeds than the tests run. `python tests/virtual_sweep.py [policies|switches] FIRST LAST`."""

import sys
from collections import Counter
from collections.abc import Iterator

import test_virtual_cluster as whole
from conftest import Ledger


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


def main(kind: str, first: int, last: int) -> None:
    """Prints each failure and the number of schedules."""
    run, failed = Counter[str](), Counter[str]()
    for group, failure in {"policies": policies}[kind](first, last):
        run[group] += 1
        if failure is not None:
            failed[group] += 1
            print(failure[:600], flush=True)
    print(f"{sum(run.values())} schedules, {sum(failed.values())} failed: {dict(failed)}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
