"""What a script draws at random in its steps, from torch, numpy and Python's `random`."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
seed_all = pytest.importorskip("paceline.worker.script.draws").seed_all
seed_torch = pytest.importorskip("paceline.worker.training.device").seed_torch


def drawn() -> tuple[int, int, int]:
    return int(torch.randint(1 << 30, ())), int(np.random.randint(1 << 30)), random.randrange(1 << 30)


def of_steps(*steps: int) -> list[tuple[int, int, int]]:
    """What a process draws in steps with these seeds."""
    found = []
    for step in steps:
        seed_all(step, seed_torch)
        found.append(drawn())
    return found


def test_each_generator_draws_other_numbers_in_each_step_and_the_same_in_a_process_that_starts_there() -> None:
    found = of_steps(11, 12, 2**32 - 1)

    assert all(len(set(numbers)) == 3 for numbers in zip(*found, strict=True))
    assert of_steps(12) == found[1:2]
