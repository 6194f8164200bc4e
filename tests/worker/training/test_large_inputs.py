"""Columns of numbers that no network learns from are found in the first mini-batch, unless the first layer scales them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from paceline.worker.training.large_inputs import LargeInputs  # noqa: E402

TIMES = torch.tensor([[0.5, 1.7e9], [0.1, 1.6e9]])
NAMED = ["inputs[:, 1] (up to 1.7e+09)"]


def linear() -> Any:
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


class Together(nn.Module):
    """Numbers next to a category that is embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.category, self.head = nn.Embedding(5, 2), nn.Linear(4, 1)

    def forward(self, numbers: Any) -> Any:
        return self.head(torch.cat([self.category(torch.zeros(len(numbers), dtype=torch.long)), numbers], 1))


@pytest.mark.parametrize(
    ("model", "batch", "named"),
    [
        (linear, TIMES, NAMED),
        (linear, TIMES.bfloat16().float(), NAMED),
        (linear, TIMES[:, None], ["inputs[..., 1] (up to 1.7e+09)"]),
        (lambda: nn.GRU(2, 3), TIMES[None], ["inputs[..., 1] (up to 1.7e+09)"]),
        (Together, TIMES, ["inputs[:, 3] (up to 1.7e+09)"]),
        (linear, torch.tensor([[float("inf"), 10_000.0]]), ["inputs[:, 0] (up to inf)"]),
        (linear, torch.tensor([[-20_000.0, float("nan")]]), ["inputs[:, 0] (up to 2e+04)"]),
        (linear, torch.randn(8, 2), []),
        (lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)), TIMES, []),
        (lambda: nn.Sequential(nn.Conv1d(2, 2, 1), nn.Linear(1, 1)), TIMES[..., None], []),
    ],
    ids=[
        "rows",
        "rounded",
        "sequences",
        "recurrent",
        "embedding",
        "infinite",
        "negative",
        "small",
        "scaled",
        "convolution",
    ],
)
def test_columns_are_named_that_the_first_layer_gets_unscaled(
    model: Callable[[], Any], batch: Any, named: list[str]
) -> None:
    net = model()
    found = LargeInputs(net)
    net(batch)
    net(batch * 1e6)
    assert found.columns == named
    assert bool(str(found)) == bool(named)


def test_a_table_names_its_columns() -> None:
    net = linear()
    found = LargeInputs(net, ["age", "a time stamp of a name that does not end soon enough"])
    net(TIMES)
    assert str(found) == (
        "large numbers: 'a time stamp of a name that does not end' (up to 1.7e+09); a network learns from about -1 to 1: "
        "scale them, or leave them out"
    )


def test_no_layer_is_watched_after_the_first_mini_batch_and_a_copy_has_a_look_of_its_own() -> None:
    net = linear()
    found = LargeInputs(net)
    other = copy.deepcopy(net)
    net(torch.randn(4, 2))
    other(TIMES)

    assert not any(layer._forward_pre_hooks for each in (net, other) for layer in each.modules())
    assert found.columns == []


def test_a_model_that_torch_compiles_or_maps_is_computed_as_ever() -> None:
    net = linear()
    expected = net(TIMES)
    LargeInputs(net)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert torch.equal(compiled(TIMES), expected)
    assert torch.allclose(torch.func.vmap(net)(TIMES), expected)
