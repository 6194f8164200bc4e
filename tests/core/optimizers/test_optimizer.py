"""Each optimizer against worked numbers and against torch, its bits, and how its options are refused."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.optimizers.builtin.adagrad import Adagrad
from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.adamw import AdamW
from paceline.core.optimizers.builtin.rmsprop import RmsProp
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.optimizer import PACKAGE, Optimizer, build_optimizer
from paceline.core.settings.config import Options

NAMES = registry.names(PACKAGE)


def build(**options: Any) -> Optimizer:
    return build_optimizer(Options.model_validate(options))


def having(option: str) -> list[str]:
    """Those that have such an option."""
    return [name for name in NAMES if option in type(build(name=name)).model_fields]


def after(optimizer: Optimizer, weight: float, *gradients: float, scale: float = 1.0) -> float:
    """One weight after a step on each gradient."""
    weights, slots = np.array([weight], np.float32), optimizer.new_slots(1)
    for count, gradient in enumerate(gradients, start=1):
        optimizer.step(weights, weights, np.array([gradient], np.float32), scale, optimizer.lr, slots, count)
    return float(weights[0])


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-6)


# worked out
@pytest.mark.parametrize(
    ("options", "weight", "gradients", "scale", "expected"),
    [
        ({}, 1, [1 + 3], 1 / 2, 0.8),
        ({}, 1, [0 + 2], 1 / 2, 0.9),
        ({}, 1, [2, 1], 1, 0.7),
        ({"lr": 0.5, "momentum": 0.5}, 0, [1, 0, 0], 1, -(0.5 + 0.25 + 0.125)),
        # m = 1, move 1 + m/2 = 1.5; then m = 0.5, move 0 + m/2 = 0.25
        ({"lr": 0.5, "momentum": 0.5, "nesterov": True}, 0, [1], 1, -0.75),
        ({"lr": 0.5, "momentum": 0.5, "nesterov": True}, 0, [1, 0], 1, -0.875),
        ({"weight_decay": 0.5}, 2, [4], 0.25, 2 - 0.1 * (1 + 1)),
    ],
    ids=["bsp's mean", "bsp, other weight", "asp, one after the other", "momentum", "nesterov", "and again", "decay"],
)
def test_sgd_steps_as_by_hand(
    options: dict[str, Any], weight: float, gradients: list[float], scale: float, expected: float
) -> None:
    sgd = Sgd(**{"lr": 0.1, "momentum": 0, "weight_decay": 0, **options})

    assert after(sgd, weight, *gradients, scale=scale) == near(expected)


def test_adagrad_divides_by_the_root_of_all_squares_so_far() -> None:
    # 9 -> 3/3; 9 + 16 = 25 -> 4/5
    assert after(Adagrad(lr=0.1), 1, 3) == near(0.9)
    assert after(Adagrad(lr=0.1), 1, 3, 4) == near(0.82)
    assert after(Adagrad(lr=0.1), 1, 6, scale=0.5) == near(0.9)
    assert after(Adagrad(lr=0.1, initial_accumulator_value=16), 1, 3) == near(1 - 0.1 * 3 / 5)


def test_rmsprop_divides_by_the_root_of_a_running_mean_of_squares() -> None:
    # squares: 4/4 = 1, then 3/4 * 1 + 1/4 * 1 = 1; with momentum the second move is 2/2 + 1
    assert after(RmsProp(lr=0.1, alpha=0.75), 1, 2) == near(0.8)
    assert after(RmsProp(lr=0.1, alpha=0.75), 1, 2, 1) == near(0.7)
    assert after(RmsProp(lr=0.1, alpha=0.75, momentum=0.5), 1, 2, 1) == near(0.6)


def test_adams_first_step_is_the_learning_rate_whatever_the_gradient() -> None:
    # g = 2: mean 0.2 / (1 - 0.9) = 2, square 0.004 / (1 - 0.999) = 4, so the move is 2 / sqrt(4)
    assert after(Adam(lr=0.1), 1, 2) == near(0.9)
    assert after(Adam(lr=0.1), 1, 8, scale=0.25) == near(0.9)
    assert after(Adam(lr=0.1), 1, -500) == near(1.1)


def test_adams_second_step_corrects_both_means_for_two_steps() -> None:
    # means 0.9 * 0.2 = 0.18 and 0.999 * 0.004 = 0.003996, over 1 - 0.81 = 0.19 and 1 - 0.998001 = 0.001999
    move = (0.18 / 0.19) / (0.003996 / 0.001999) ** 0.5

    assert after(Adam(lr=0.1), 1, 2, 0) == near(0.9 - 0.1 * move)


def test_adamw_takes_its_decay_from_the_weight_and_not_through_the_division() -> None:
    # Adam: the gradient is 2 + 0.5, the first step 0.1 nevertheless. AdamW: 1 - 0.1 * 0.5 * 1, and the step
    assert after(Adam(lr=0.1, weight_decay=0.5), 1, 2) == near(0.9)
    assert after(AdamW(lr=0.1, weight_decay=0.5), 1, 2) == near(0.95 - 0.1)


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "adam"])
def test_a_weight_that_never_had_a_gradient_stays(name: str) -> None:
    assert after(build(name=name), 3, 0, 0) == 3


# against torch
CASES: list[tuple[dict[str, Any], str]] = [
    ({"name": "sgd", "lr": 0.05, "momentum": 0.0, "weight_decay": 0.0}, "SGD"),
    ({"name": "sgd", "lr": 0.05, "momentum": 0.0, "weight_decay": 0.01}, "SGD"),
    ({"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0}, "SGD"),
    ({"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}, "SGD"),
    ({"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0, "nesterov": True}, "SGD"),
    ({"name": "sgd", "lr": 0.05, "momentum": 0.5, "weight_decay": 0.01, "nesterov": True}, "SGD"),
    ({"name": "adagrad"}, "Adagrad"),
    ({"name": "adagrad", "lr": 0.1, "eps": 0.01, "initial_accumulator_value": 0.5, "weight_decay": 0.1}, "Adagrad"),
    ({"name": "rmsprop"}, "RMSprop"),
    ({"name": "rmsprop", "lr": 0.02, "alpha": 0.9, "eps": 0.01, "weight_decay": 0.1}, "RMSprop"),
    ({"name": "rmsprop", "lr": 0.02, "alpha": 0.9, "momentum": 0.9, "weight_decay": 0.1}, "RMSprop"),
    ({"name": "adam"}, "Adam"),
    ({"name": "adam", "lr": 0.1, "betas": [0.5, 0.9], "eps": 0.01, "weight_decay": 0.1}, "Adam"),
    ({"name": "adam", "lr": 0.1, "betas": [0.0, 0.9]}, "Adam"),
    ({"name": "adamw"}, "AdamW"),
    ({"name": "adamw", "lr": 0.1, "betas": [0.5, 0.9], "eps": 0.01, "weight_decay": 0.5}, "AdamW"),
]
EACH_CASE = pytest.mark.parametrize(
    ("options", "kind"), CASES, ids=[" ".join(str(value) for value in options.values()) for options, _ in CASES]
)


@EACH_CASE
def test_fifty_steps_are_those_of_torch(options: dict[str, Any], kind: str) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    ours = random.standard_normal(257, dtype=np.float32)
    start = ours.copy()
    theirs = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    optimizer = build(**options)
    reference = getattr(torch.optim, kind)([theirs], **{key: value for key, value in options.items() if key != "name"})
    slots = optimizer.new_slots(257)

    for count in range(1, 51):
        gradient = random.standard_normal(257, dtype=np.float32)
        lr = optimizer.lr * (1 - count / 100)
        reference.param_groups[0]["lr"] = lr
        theirs.grad = torch.from_numpy(gradient.copy())
        reference.step()
        optimizer.step(ours, ours, gradient, 1.0, lr, slots, count)

    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert np.abs(ours - start).max() > 100 * 1e-6


@pytest.mark.parametrize(
    ("name", "kind"), [("adagrad", "Adagrad"), ("rmsprop", "RMSprop"), ("adam", "Adam"), ("adamw", "AdamW")]
)
def test_options_left_out_are_torchs(name: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.optim, kind)([torch.nn.Parameter(torch.zeros(1))]).defaults

    ours = build(name=name).model_dump(exclude={"groups", "averaged"})

    assert ours == {key: theirs[key] for key in ours}


# bits
@EACH_CASE
@given(length=st.integers(0, 200), cuts=st.lists(st.integers(0, 200), max_size=3), offset=st.integers(0, 17))
def test_slices_have_the_bits_of_the_whole_model(
    options: dict[str, Any], kind: str, length: int, cuts: list[int], offset: int
) -> None:
    optimizer = build(**options)
    random = np.random.default_rng(length)
    whole = random.standard_normal(length, dtype=np.float32)
    parts = random.standard_normal(length + offset, dtype=np.float32)[offset:]
    parts[:] = whole
    edges = list(pairwise([0, *sorted(min(cut, length) for cut in cuts), length]))
    slots, slots_of = optimizer.new_slots(length), [optimizer.new_slots(end - start) for start, end in edges]

    for count in (1, 2):
        gradient = random.standard_normal(length, dtype=np.float32)
        optimizer.step(whole, whole, gradient, 0.3, 0.1, slots, count)
        for (start, end), own in zip(edges, slots_of, strict=True):
            optimizer.step(parts[start:end], parts[start:end], gradient[start:end], 0.3, 0.1, own, count)

    assert parts.tobytes() == whole.tobytes()
    for index, slot in enumerate(slots):
        assert b"".join(own[index].tobytes() for own in slots_of) == slot.tobytes()


@EACH_CASE
def test_a_step_to_another_array_leaves_the_weights_and_has_the_bits_of_one_in_place(
    options: dict[str, Any], kind: str
) -> None:
    optimizer = build(**options)
    weights, gradient = np.random.default_rng(0).standard_normal((2, 1003), dtype=np.float32)
    before, out = weights.copy(), np.empty_like(weights)
    slots, other_slots = optimizer.new_slots(1003), optimizer.new_slots(1003)

    optimizer.step(weights, out, gradient, 0.3, 0.1, slots, 1)

    assert weights.tobytes() == before.tobytes()
    optimizer.step(weights, weights, gradient, 0.3, 0.1, other_slots, 1)
    assert out.tobytes() == weights.tobytes()
    assert [slot.tobytes() for slot in slots] == [slot.tobytes() for slot in other_slots]


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_may_lie_anywhere_in_a_received_message(name: str) -> None:
    optimizer = build(name=name)
    gradient = np.random.default_rng(0).standard_normal(33, dtype=np.float32)
    received = np.frombuffer(b"x" + gradient.tobytes(), np.float32, offset=1)
    weights, other = np.ones(33, np.float32), np.ones(33, np.float32)

    optimizer.step(weights, weights, received, 1.0, 0.1, optimizer.new_slots(33), 1)

    optimizer.step(other, other, gradient, 1.0, 0.1, optimizer.new_slots(33), 1)
    assert weights.tobytes() == other.tobytes()


@EACH_CASE
def test_the_slots_are_as_many_arrays_of_the_slices_length_as_it_says(options: dict[str, Any], kind: str) -> None:
    optimizer = build(**options)

    slots = optimizer.new_slots(3)

    assert [(slot.shape, slot.dtype) for slot in slots] == [((3,), np.float32)] * optimizer.slots


def test_slots_are_kept_only_where_they_are_needed() -> None:
    assert [Sgd(momentum=0).slots, Sgd(momentum=0.9).slots, Sgd(nesterov=True).slots] == [0, 1, 1]
    assert [RmsProp().slots, RmsProp(momentum=0.9).slots] == [1, 2]
    assert [Adagrad().slots, Adam().slots, AdamW().slots] == [1, 2, 2]
    assert Sgd(momentum=0).new_slots(3) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_slice_takes_steps_too(name: str) -> None:
    optimizer, nothing = build(name=name), np.empty(0, np.float32)

    optimizer.step(nothing, nothing, nothing, 1.0, 0.1, optimizer.new_slots(0), 1)

    assert len(nothing) == 0


# config
@pytest.mark.parametrize("name", NAMES)
def test_each_optimizer_is_built_by_its_name_and_has_a_learning_rate(name: str) -> None:
    optimizer = build(name=name, lr=0.25)

    assert (optimizer.name, optimizer.lr) == (name, 0.25)
    assert build(name="sgd", lr="0.05") == Sgd(lr=0.05, momentum=0.9, weight_decay=1e-4)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        *((name, "lr", value) for name in NAMES for value in (-1, 0, "fast", float("nan"), float("inf"))),
        *(
            (name, "weight_decay", value)
            for name in having("weight_decay")
            for value in (-1e-4, float("inf"), float("nan"))
        ),
        *(("sgd", "momentum", value) for value in (1, -0.1, "heavy", float("nan"))),
        *((name, "eps", value) for name in having("eps") for value in (0, -1e-8, 1e-50, float("inf"))),
        *(("adagrad", "initial_accumulator_value", value) for value in (-0.1, float("inf"))),
        *(("rmsprop", "alpha", value) for value in (-0.1, 1)),
        *(("rmsprop", "momentum", value) for value in (-0.1, 1)),
        *((name, "betas", 0.9) for name in ("adam", "adamw")),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_key_and_value(name: str, key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        build(name=name, **{key: value})

    assert str(caught.value).startswith(f"optimizer.{key}: got {value!r}; ")


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"momentum": 0.9}, r"optimizer\.momentum: there is no such .* Known here: averaged, betas, eps"),
        ({"betas": [0.9, 1.0]}, r"^optimizer\.betas\.1: got 1\.0; input should be less than 1"),
        ({"betas": [-0.1, 0.9]}, r"^optimizer\.betas\.0: got -0\.1; input should be greater than or equal to 0"),
        ({"betas": [0.9]}, r"^optimizer\.betas\.1: got \[0\.9\]; field required"),
        ({"betas": [0.9, 0.99, 0.999]}, r"^optimizer\.betas: got \[0\.9, 0\.99, 0\.999\]; .*at most 2 items"),
    ],
)
def test_options_of_others_and_betas_out_of_range_are_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(name=name, **options)
