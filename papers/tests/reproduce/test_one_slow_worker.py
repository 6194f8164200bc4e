"""The picture of a run with one slow worker."""

import pytest

from paceline_papers.reproduce.recipe import Around, Figures
from paceline_papers.reproduce.recipes.ours.one_slow_worker import FACTOR, SAYS, SLOW, UNTIL, WORKERS, run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figures]:
    around = Around(tmp_path_factory.mktemp("slow-worker"))
    return {policy: run(around, policy, 0) for policy in SAYS}


def busy(run: Figures, rank: int) -> float:
    return sum(length for begin, length in run["spans"][rank] if begin + length <= UNTIL)


def test_under_bsp_all_workers_make_the_same_number_of_steps(runs: dict[str, Figures]) -> None:
    assert len({len(spans) for spans in runs["bsp"]["spans"]}) == 1


def test_under_ssp_an_equal_worker_is_never_more_than_its_bound_ahead(runs: dict[str, Figures]) -> None:
    done = [[begin + length for begin, length in spans] for spans in runs["ssp:3"]["spans"]]
    for rank in set(range(WORKERS)) - {SLOW}:
        for step, end in enumerate(done[rank]):
            of_the_slow = sum(1 for each in done[SLOW] if each <= end)
            assert step - of_the_slow <= 4  # the bound, and the step that is under way when the bound is reached


def test_under_shat_equal_workers_wait_for_messages_only(runs: dict[str, Figures]) -> None:
    assert all(busy(runs["shat"], rank) > 0.75 * UNTIL for rank in range(WORKERS) if rank != SLOW)


def test_the_looser_the_policy_the_more_examples_are_trained(runs: dict[str, Figures]) -> None:
    bsp, ssp, shat = (runs[policy]["examples"] for policy in SAYS)
    assert bsp < ssp < shat
    assert shat > FACTOR / 2 * bsp
