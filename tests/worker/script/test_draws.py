"""What a script draws at random in its steps, from torch, numpy and Python's `random`."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
StepDraws = pytest.importorskip("paceline.worker.script.draws").StepDraws


def drawn() -> tuple[int, int, int]:
    return int(torch.randint(1 << 30, ())), int(np.random.randint(1 << 30)), random.randrange(1 << 30)


def of_steps(*steps: int, script_seed: int | None = None) -> list[tuple[int, int, int]]:
    """What a process draws in these steps, whose script gives torch this seed."""
    torch.manual_seed(0)
    if script_seed is not None:
        torch.manual_seed(script_seed)
    draws, found = StepDraws(0), []
    for step in steps:
        draws.seed(step)
        found.append(drawn())
    return found


@pytest.mark.parametrize("script_seed", [None, 1337, 2**63 + 5])
def test_each_generator_draws_other_numbers_in_each_step_and_the_same_in_a_process_that_starts_there(
    script_seed: int | None,
) -> None:
    found = of_steps(11, 12, 2**32 - 1, script_seed=script_seed)

    assert all(len(set(numbers)) == 3 for numbers in zip(*found, strict=True))
    assert of_steps(12, script_seed=script_seed) == found[1:2]


def test_a_seed_that_the_script_gives_torch_changes_what_is_drawn() -> None:
    by_seed = {seed: of_steps(11, script_seed=seed)[0] for seed in (None, 1, 2)}

    assert all(len(set(numbers)) == 3 for numbers in zip(*by_seed.values(), strict=True))
    assert of_steps(11, script_seed=0) == of_steps(11)
