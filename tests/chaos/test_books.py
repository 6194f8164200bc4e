"""What the chaos rounds measure with: schedules of kills that come from the seed alone, and books that show every defect."""

from pathlib import Path

import numpy as np
import pytest

from paceline.core.settings.config import Config
from paceline.core.slice.state import SliceState
from paceline.data.sampler import Sampler
from paceline.data.shards import open_shards
from paceline.sharder.sharding import make_shards
from tests.chaos.kills import schedule
from tests.chaos.ledger import balance, expected, found
from tests.chaos.own import numbered
from tests.chaos.own.dying_server import POINTS

WORKERS = {f"worker-{rank}": [rank] for rank in range(numbered.WORKERS)}
BATCH = 4
STEPS = numbered.EACH // BATCH


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    config = Config(task=numbered.__file__, workers=numbered.WORKERS, data={"validation": 0, "test": 0})
    make_shards(config, folder)
    return folder


def test_a_seed_is_a_schedule_and_all_manners_of_killing_come() -> None:
    many = list(schedule(1, 200, 2, 4))

    assert many == list(schedule(1, 200, 2, 4))
    assert many != list(schedule(2, 200, 2, 4))
    assert {(len(kill.servers), len(kill.workers)) for kill in many} == {(1, 0), (1, 1), (2, 2), (0, 1)}
    assert {kill.point for kill in many} == {"", *POINTS}
    assert not any(kill.point for kill in many if not kill.servers)


def test_an_epoch_has_every_example_once(shards: Path) -> None:
    counts = expected(shards, WORKERS, dict.fromkeys(WORKERS, STEPS), BATCH)

    assert counts.tolist() == [1.0] * numbered.WORKERS * numbered.EACH


def test_the_books_follow_the_clock_of_each_worker(shards: Path) -> None:
    counts = expected(shards, WORKERS, {"worker-1": STEPS + 3, "worker-2": 2}, BATCH)

    ids = open_shards(shards).ids(1)
    assert counts[ids].sum() == numbered.EACH + 3 * BATCH
    assert counts.sum() == numbered.EACH + 5 * BATCH


def state(
    shards: Path, clocks: dict[str, int], left_out: int = 0, twice: int = 0, pushes: int | None = None
) -> SliceState:
    """A slice that has folded these clocks, but for one of worker-0, and one of it twice."""
    opened, weights = open_shards(shards), np.zeros(2 * numbered.WORKERS * numbered.EACH, np.float32)
    for worker, clock in clocks.items():
        sampler = Sampler([numbered.EACH], BATCH, STEPS, 0, worker)
        for step in range(1, clock + 1):
            times = 1 if worker != "worker-0" else (step != left_out) + (step == twice)
            weights[2 * opened.ids(WORKERS[worker][0])[sampler.indices(step)]] += times
    total = sum(clocks.values()) if pushes is None else pushes
    return SliceState(
        weights, [], {"clocks": {name: {"clock": clock} for name, clock in clocks.items()}, "pushes": total}
    )


def books(shards: Path, state: SliceState, answered: dict[str, int] | None = None):
    clocks = {worker: entry["clock"] for worker, entry in state.table["clocks"].items()}
    return balance(state, found(state, 1.0, -BATCH), expected(shards, WORKERS, clocks, BATCH), answered or {})


CLOCKS = dict.fromkeys(WORKERS, 20)


def test_a_slice_that_has_every_push_once_is_even(shards: Path) -> None:
    assert books(shards, state(shards, CLOCKS), CLOCKS).is_even


def test_a_push_that_is_lost_or_folded_twice_is_seen_also_where_the_sums_agree(shards: Path) -> None:
    lost = books(shards, state(shards, CLOCKS, left_out=7))
    doubled = books(shards, state(shards, CLOCKS, twice=20))
    both = books(shards, state(shards, CLOCKS, left_out=7, twice=20))

    assert (lost.missing, lost.surplus, lost.is_even) == (4.0, 0.0, False)
    assert (doubled.missing, doubled.surplus, doubled.is_even) == (0.0, 4.0, False)
    assert both.missing == both.surplus > 0
    assert not both.is_even


def test_an_answered_clock_that_a_slice_does_not_have_is_seen(shards: Path) -> None:
    short = books(shards, state(shards, CLOCKS), CLOCKS | {"worker-3": 22})

    assert (short.unanswered, short.is_even) == (2, False)


def test_clocks_that_were_moved_over_a_gap_are_seen(shards: Path) -> None:
    assert not books(shards, state(shards, CLOCKS, pushes=60)).is_even


def test_what_waits_in_a_sum_counts(shards: Path) -> None:
    whole = state(shards, CLOCKS | {"worker-0": 21}, left_out=21)
    gathered = np.zeros_like(whole.weights)
    ids = open_shards(shards).ids(0)[Sampler([numbered.EACH], BATCH, STEPS, 0, "worker-0").indices(21)]
    gathered[2 * ids] = -BATCH

    assert not books(shards, whole).is_even
    assert books(shards, SliceState(whole.weights, [], whole.table, gathered)).is_even
