"""The picture of a run with one slow worker (experiments/slow_worker.py)."""

from pathlib import Path

import pytest

from experiments.slow_worker import FACTOR, SAYS, SLOW, UNTIL, WORKERS, Watched, draw, watch
from paceline.plot_style import png


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    shards = tmp_path_factory.mktemp("slow-worker") / "shards"
    return {policy: watch(policy, shards) for policy in SAYS}


def busy(run: Watched, rank: int) -> float:
    return sum(length for begin, length in run.spans[rank] if begin + length <= UNTIL)


def test_under_bsp_all_workers_make_the_same_number_of_steps(runs: dict[str, Watched]) -> None:
    assert len({len(spans) for spans in runs["bsp"].spans}) == 1


def test_under_ssp_an_equal_worker_is_never_more_than_its_bound_ahead(runs: dict[str, Watched]) -> None:
    done = [[begin + length for begin, length in spans] for spans in runs["ssp:3"].spans]
    for rank in set(range(WORKERS)) - {SLOW}:
        for step, end in enumerate(done[rank]):
            of_the_slow = sum(1 for each in done[SLOW] if each <= end)
            assert step - of_the_slow <= 4  # the bound, and the step that is under way when the bound is reached


def test_under_shat_equal_workers_wait_for_messages_only(runs: dict[str, Watched]) -> None:
    assert all(busy(runs["shat"], rank) > 0.75 * UNTIL for rank in range(WORKERS) if rank != SLOW)


def test_the_looser_the_policy_the_more_examples_are_trained(runs: dict[str, Watched]) -> None:
    bsp, ssp, shat = (runs[policy].examples for policy in SAYS)
    assert bsp < ssp < shat
    assert shat > FACTOR / 2 * bsp


def test_the_picture_has_a_panel_for_each_policy(runs: dict[str, Watched], tmp_path: Path) -> None:
    figure = draw(runs)
    assert [axes.get_title(loc="left").partition(":")[0] for axes in figure.axes] == ["bsp", "ssp", "shat"]
    assert png(figure).startswith(b"\x89PNG")
