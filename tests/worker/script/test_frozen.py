"""What a script leaves untrained is compared between workers, for nobody sends it."""

import pytest
import torch
from torch import nn

from paceline.core.chief.membership import Membership
from paceline.core.chief.workers import Workers
from paceline.core.errors import ConfigError
from paceline.worker.script.frozen import sketch


def body(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [parameter.to(dtype) for parameter in nn.Linear(300, 300).parameters()]


def compared(first: tuple[float, float], other: tuple[float, float]) -> None:
    workers = Workers(Membership(2, 15.0, rounds=False))
    workers.compare("worker-0", *first)
    again = Workers(Membership(2, 15.0, rounds=False))
    again.restore(workers.state(), 0.0)
    again.compare("worker-1", *other)


@pytest.mark.parametrize("other", [sketch(body(1)), sketch(body(0)[:1]), sketch([])], ids=["seed", "fewer", "none"])
def test_other_frozen_weights_are_refused_at_the_join(other: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="worker-1 has other weights in the parameters that are not trained"):
        compared(sketch(body(0)), other)


def test_the_same_ones_pass_whatever_a_device_rounds() -> None:
    same = [parameter * (1 + 1e-6) for parameter in body(0)]
    compared(sketch(body(0)), sketch(same))
    compared(sketch(body(0)), sketch(body(0, torch.float64)))
    compared(sketch([]), sketch([]))


def test_one_weight_of_many_elements_is_not_hashed_whole() -> None:
    norm, product = sketch([torch.ones(10_000_000)])
    assert 0 < norm <= 300
    assert abs(product) < norm * norm
