"""Emulated slow workers: how long they pause, and that it is the same in every run."""

from paceline.worker.training.emulated_slowness import Slowness


def pauses(settings: dict[str, str], place: int, clocks: int = 4, share: float = 1.0, seed: int = 0) -> list[float]:
    found: list[float] = []
    slowness = Slowness(settings, place, 0.02, seed, found.append)
    for clock in range(1, clocks + 1):
        slowness.delay(clock, share)
    return found


def test_a_worker_10_times_as_slow_pauses_9_nominal_steps() -> None:
    assert pauses({"1": "10x"}, place=1, clocks=2) == [9 * 0.02] * 2
    assert pauses({"1": "10x"}, place=0) == []


def test_a_smaller_part_of_a_mini_batch_takes_as_much_less() -> None:
    assert pauses({"1": "11x"}, place=1, clocks=1, share=0.25) == [0.25 * 10 * 0.02]


def test_random_steps_are_slow_as_often_as_asked_and_the_same_ones_in_every_run() -> None:
    found = pauses({"all": "3x@25%"}, place=2, clocks=400)
    assert 60 < len(found) < 140
    assert set(found) == {2 * 0.02}
    assert found == pauses({"all": "3x@25%"}, place=2, clocks=400)
    assert len(found) != len(pauses({"all": "3x@25%"}, place=3, clocks=400))


def test_two_rules_for_one_worker_add_up() -> None:
    assert pauses({"all": "2x", "0": "3x"}, place=0, clocks=1) == [(1 + 2) * 0.02]
