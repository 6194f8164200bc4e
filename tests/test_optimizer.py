"""SGD against the worked examples and against torch, and how its options are refused."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from paceline.core.config import Options
from paceline.core.errors import ConfigError
from paceline.core.optimizer import Optimizer, Sgd, build_optimizer
from paceline.core.values import Vector


def options(**settings: Any) -> Options:
    return Options.model_validate(settings)


def stepped(optimizer: Optimizer, weights: list[float], gradient: list[float], scale: float = 1.0) -> Vector:
    vector = np.array(weights, np.float32)
    slots = optimizer.new_slots(len(vector))
    optimizer.step(vector, vector, np.array(gradient, np.float32), scale, optimizer.lr, slots)
    return vector


def test_the_bsp_example_takes_one_step_on_the_mean_of_two_pushes() -> None:
    plain = Sgd(lr=0.1, momentum=0, weight_decay=0)

    np.testing.assert_allclose(stepped(plain, [1, 1], [1 + 3, 0 + 2], 1 / 2), [0.8, 0.9], rtol=1e-6)


def test_the_asp_example_folds_two_pushes_one_after_the_other() -> None:
    plain = Sgd(lr=0.1, momentum=0, weight_decay=0)

    after_a = stepped(plain, [1.0], [2.0])
    after_b = stepped(plain, after_a.tolist(), [1.0])

    np.testing.assert_allclose(after_a, [0.8], rtol=1e-6)
    np.testing.assert_allclose(after_b, [0.7], rtol=1e-6)


def test_momentum_goes_on_with_the_last_move() -> None:
    optimizer = Sgd(lr=0.5, momentum=0.5, weight_decay=0)
    weights, slots = np.zeros(1, np.float32), optimizer.new_slots(1)

    for gradient in (1.0, 0.0, 0.0):
        optimizer.step(weights, weights, np.array([gradient], np.float32), 1.0, 0.5, slots)

    assert weights.tolist() == [-(0.5 + 0.25 + 0.125)]
    assert slots[0].tolist() == [0.25]


def test_weight_decay_is_not_scaled_with_the_gradient() -> None:
    optimizer = Sgd(lr=0.1, momentum=0, weight_decay=0.5)

    np.testing.assert_allclose(stepped(optimizer, [2.0], [4.0], 0.25), [2 - 0.1 * (1 + 1)], rtol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_a_hundred_steps_are_those_of_torch(momentum: float, weight_decay: float) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    ours = random.standard_normal(257, dtype=np.float32)
    theirs = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    optimizer = Sgd(lr=0.05, momentum=momentum, weight_decay=weight_decay)
    reference = torch.optim.SGD([theirs], lr=0.05, momentum=momentum, weight_decay=weight_decay)
    slots = optimizer.new_slots(257)

    for step in range(100):
        gradient = random.standard_normal(257, dtype=np.float32)
        lr = 0.05 / (1 + step)
        reference.param_groups[0]["lr"] = lr
        theirs.grad = torch.from_numpy(gradient.copy())
        reference.step()
        optimizer.step(ours, ours, gradient, 1.0, lr, slots)

    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-6, atol=1e-6)


def test_slots_are_kept_only_where_there_is_momentum() -> None:
    assert [slot.tolist() for slot in Sgd(momentum=0.9).new_slots(3)] == [[0, 0, 0]]
    assert Sgd(momentum=0).new_slots(3) == []
    assert Sgd(momentum=0).slots == 0


def test_an_empty_slice_takes_steps_too() -> None:
    assert stepped(Sgd(), [], []).tolist() == []


# config
def test_the_default_config_builds_its_optimizer() -> None:
    assert build_optimizer(options(name="sgd", lr="0.05")) == Sgd(lr=0.05, momentum=0.9, weight_decay=1e-4)


def test_an_unknown_optimizer_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"no 'sdg' among the optimizers: sgd\. Did you mean 'sgd'\?"):
        build_optimizer(options(name="sdg"))


def test_a_misspelt_option_is_refused_with_the_nearest_key() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.momentun: .* Did you mean 'momentum'\?"):
        build_optimizer(options(name="sgd", momentun=0.9))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("lr", value) for value in (-1, 0, "fast", float("nan"), float("inf"))),
        *(("momentum", value) for value in (1, -0.1, "heavy")),
        *(("weight_decay", value) for value in (-1e-4, float("inf"))),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_key_and_value(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        build_optimizer(options(name="sgd", **{key: value}))

    assert str(caught.value).startswith(f"optimizer.{key}: got {value!r}; ")


def test_a_config_is_checked_without_loading_numba_or_torch() -> None:
    program = (
        "import sys; from paceline.core import optimizer, codec; from paceline.core.config import Config;"
        "optimizer.build_optimizer(Config().optimizer); [codec.load_codec(n) for n in ('none', 'fp16', 'bf16')];"
        "print([m for m in ('numba', 'torch', 'grpc') if m in sys.modules])"
    )

    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert seen.stdout.strip() == "[]"
