"""What processes count from 0 adds up to what all of them have counted, as far as somebody looked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.launch.status.evidence import Counters

LIVES = st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6), min_size=1, max_size=5)
"""Of each process what it counts until each look, and whether it is heard at that look."""


@given(LIVES)
def test_processes_with_numbers_add_up_however_much_they_count_before_they_are_looked_at(
    lives: list[list[tuple[int, bool]]],
) -> None:
    counters, total = Counters(), 0
    for start, life in enumerate(lives, 1):
        count = seen = 0
        for more, is_heard in life:
            count += more
            counters.add("worker-0", start, {"steps": count} if is_heard else {})
            seen = count if is_heard else seen
        total += seen
    assert counters.sums["worker-0"].get("steps", 0) == counters.total("steps") == total


@pytest.mark.parametrize("start", [0, 1])
def test_without_a_number_a_smaller_count_is_another_process_and_with_one_it_is_not(start: int) -> None:
    counters = Counters()
    for steps in (10, 4, 6):
        counters.add("worker-0", start, {"steps": steps, "sent": 100})
    assert counters.sums["worker-0"] == ({"steps": 12, "sent": 100} if start else {"steps": 16, "sent": 200})


def test_what_was_counted_before_it_began_is_left_out() -> None:
    counters = Counters()
    assert "server-0" not in counters
    counters.begin("server-0", 1, {"seconds": 30})
    assert "server-0" in counters
    counters.add("server-0", 1, {"seconds": 32})
    counters.add("server-0", 2, {"seconds": 40})
    assert counters.sums == {"server-0": {"seconds": 42}}
