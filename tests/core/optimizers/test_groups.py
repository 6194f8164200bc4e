"""Groups of parameters, rates that change and tensors that are left alone, step as in torch.optim, on slices that cut through
tensors; with the same gradients."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.optimizers.builtin.sgd import plain_sgd, plainly
from paceline.core.optimizers.effective import Pool, effective
from paceline.core.optimizers.groups import Grouped, Grouping, grouped
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Options, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import AS_SET, Manner
from tests.support.one_slice import OneSlice

SHAPES = (("body.weight", (3, 4)), ("body.bias", (3,)), ("head.weight", (2, 3)), ("head.bias", (2,)), ("scale", (1,)))
SIZES = [12, 3, 6, 2, 1]
PLAN = make_plan(SHAPES, 3, PlanConfig(alignment=1))
LAYOUT = Layout.whole(SHAPES)
STEPS = 25


def asked_of(name: str, **options: Any):
    return build_optimizer(Options(name=name, **options))


CASES = [
    pytest.param("sgd", "SGD", {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}, id="sgd"),
    pytest.param("sgd", "SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, id="momentum"),
    pytest.param("sgd", "SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}, id="nesterov"),
    pytest.param("adam", "Adam", {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}, id="adam"),
    pytest.param("adamw", "AdamW", {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": 0.3}, id="adamw"),
    pytest.param(
        "adagrad", "Adagrad", {"initial_accumulator_value": 0.1, "weight_decay": 0.1, "lr": 0.05}, id="adagrad"
    ),
    pytest.param("rmsprop", "RMSprop", {"lr": 0.01, "alpha": 0.9, "momentum": 0.5, "weight_decay": 0.1}, id="rmsprop"),
]
DIFFERENT = {
    "sgd": [{"lr": 0.02, "weight_decay": 0.0}, {"momentum": 0.5, "lr": 0.3}],
    "adam": [{"weight_decay": 0.0}, {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3}],
    "adamw": [{"weight_decay": 0.0}, {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3}],
    "adagrad": [{"weight_decay": 0.0, "lr": 0.5}, {"lr": 0.1, "eps": 1e-3}],
    "rmsprop": [{"weight_decay": 0.0, "momentum": 0.0}, {"alpha": 0.5, "lr": 0.1}],
}
NAMED = [["*.bias"], ["head.weight", "scale"]]


def manners(groups: int, changes: bool) -> list[Manner]:
    """For each step the factors of the rates, and who is left alone: each tensor at some steps, at first too."""
    if not changes:
        return [AS_SET] * STEPS
    rng = np.random.default_rng(1)
    rates = rng.uniform(0, 2, (STEPS, groups))
    alone = rng.random((STEPS, len(SHAPES))) < 0.3
    alone[0] = [True, False, True, True, False]
    steps = zip(rates, alone, strict=True)
    return [Manner(tuple(map(float, rate)), tuple(np.flatnonzero(row).tolist())) for rate, row in steps]


def by_torch(kind: str, options: dict[str, Any], groups: int, first: Any, gradients: Any, asked: list[Manner]) -> Any:
    torch = pytest.importorskip("torch")
    cuts = np.cumsum(SIZES)[:-1]
    tensors = [torch.tensor(part.copy(), requires_grad=True) for part in np.split(first, cuts)]
    names = [name for name, _ in SHAPES]
    of = [0] * len(names)
    for number, patterns in enumerate(NAMED[: groups - 1], 1):
        for index, name in enumerate(names):
            if name in patterns or any(pattern[0] == "*" and name.endswith(pattern[1:]) for pattern in patterns):
                of[index] = number
    own = [{}, *DIFFERENT[kind.lower()]]
    params = [
        {"params": [one for one, number in zip(tensors, of, strict=True) if number == group], **own[group]}
        for group in range(groups)
    ]
    optimizer = getattr(torch.optim, kind)(params, **options)
    base = [group["lr"] for group in optimizer.param_groups]
    for gradient, manner in zip(gradients, asked, strict=True):
        for number, (group, rate) in enumerate(zip(optimizer.param_groups, base, strict=True)):
            group["lr"] = rate * (manner.rates[number] if manner.rates else 1)
        for number, (tensor, part) in enumerate(zip(tensors, np.split(gradient, cuts), strict=True)):
            tensor.grad = None if number in manner.untouched else torch.tensor(part)
        optimizer.step()
    return np.concatenate([tensor.detach().numpy() for tensor in tensors])


def settings(name: str, options: dict[str, Any], groups: int) -> dict[str, Any]:
    own = DIFFERENT[name][: groups - 1]
    named = [{"parameters": who, **each} for who, each in zip(NAMED[: groups - 1], own, strict=True)]
    return options | ({"groups": named} if named else {})


def drawn() -> Any:
    """The first weights, and a gradient for each step."""
    rng = np.random.default_rng(0)
    return rng.normal(size=24).astype(np.float32), rng.normal(size=(STEPS, 24)).astype(np.float32)


@pytest.mark.parametrize("changes", [False, True], ids=["as_set", "rates_and_untouched"])
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_slices_step_as_torch_does(name, kind, options, groups, changes):
    first, gradients = drawn()
    asked, optimizer = manners(groups, changes), asked_of(name, **settings(name, options, groups))
    slices = [
        OneSlice("asp", ["a"], np.concatenate(part), optimizer, layout=PLAN.layout(server))
        for server, part in enumerate(PLAN.split(first))
    ]

    for gradient, manner in zip(gradients, asked, strict=True):
        for one, part in zip(slices, PLAN.split(gradient), strict=True):
            one.push("a", *np.concatenate(part), manner=manner)
    found = np.zeros(24, np.float32)
    for one, parts in zip(slices, PLAN.split(found), strict=True):
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        for part, values in zip(parts, np.split(np.array(one.weights, np.float32), cuts), strict=True):
            part[:] = values

    np.testing.assert_allclose(found, by_torch(kind, options, groups, first, gradients, asked), rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_a_server_that_comes_back_goes_on_as_torch_does(name, kind, options):
    first, gradients = drawn()
    asked, optimizer = manners(3, True), asked_of(name, **settings(name, options, 3))
    one = OneSlice("asp", ["a"], first, optimizer, layout=LAYOUT)

    for step, (gradient, manner) in enumerate(zip(gradients, asked, strict=True)):
        one.push("a", *gradient, manner=manner)
        if step % 7 == 0:
            one.restart()

    np.testing.assert_allclose(one.weights, by_torch(kind, options, 3, first, gradients, asked), rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_groups_that_do_not_differ_give_the_same_bits_as_none(name, kind, options):
    first, gradients = drawn()
    none, some = asked_of(name, **options), asked_of(name, **options, groups=[{"parameters": "*.bias"}])
    plain, cut = (OneSlice("asp", ["a"], first, each, layout=LAYOUT) for each in (none, some))

    for gradient in gradients:
        plain.push("a", *gradient)
        cut.push("a", *gradient)

    assert plain.weights == cut.weights
    assert plain.slice.optimizer == none, "nothing stands between"


def test_by_hand_each_group_takes_its_rate_and_decay():
    groups = [{"parameters": "b", "lr": 0.5, "weight_decay": 0.2}]
    optimizer = asked_of("sgd", lr=0.1, momentum=0, weight_decay=0, groups=groups)
    one = OneSlice("asp", ["a"], [1, 1], optimizer, layout=Layout.whole([("a", (1,)), ("b", (1,))]))

    one.push("a", 1, 1)

    assert one.weights == pytest.approx([1 - 0.1 * 1, 1 - 0.5 * (1 + 0.2)])


def test_by_hand_rates_multiply_what_the_settings_say():
    one = OneSlice("asp", ["a"], [1, 1], plain_sgd(0.1), layout=Layout.whole([("a", (2,))]))

    one.push("a", 1, 1, manner=Manner(rates=(0.5,)))

    assert one.weights == pytest.approx([0.95, 0.95])


def test_slots_are_as_many_as_the_group_with_the_most_needs():
    optimizer = asked_of("rmsprop", groups=[{"parameters": "scale", "momentum": 0.9}])

    assert optimizer.slots == 1
    assert grouped(optimizer, LAYOUT).slots == 2
    assert len(OneSlice("asp", ["a"], [0.0] * 24, optimizer, layout=LAYOUT).slice.state().slots) == 2


def test_neighbours_that_step_alike_are_one_stretch():
    grouping = Grouping.of(asked_of("sgd", groups=[{"parameters": ["head.*"]}]), LAYOUT)

    assert [tuple(one) for one in grouping.stretches()] == [(0, 15, 0, 0), (15, 23, 1, 0), (23, 24, 0, 0)]
    left = [tuple(one) for one in grouping.stretches((0, 3), Counter({2: 4}))]
    assert left == [(12, 15, 0, 0), (15, 21, 1, 4), (23, 24, 0, 0)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"groups": [{"parameters": ["*.biass"]}]}, "optimizer.groups.0.parameters: no trained parameter is called '*.biass'"),
        ({"groups": [{"parameters": "scale"}, {"parameters": "s*"}]}, "parameter 'scale' is in group 0 and in group 1"),
        ({"groups": [{"parameters": "scale", "weight_decy": 0}]}, "optimizer.groups.0.weight_decy: there is no such setting. "
         "Did you mean 'weight_decay'?"),
        ({"groups": [{"parameters": "scale", "lr": -1}]}, "optimizer.groups.0.lr: got -1"),
        ({"groups": [{"parameters": "scale", "name": "adam"}]}, "optimizer.groups.0.name: got 'adam', but a group can't set "
         "this: it uses the run's optimizer, sgd"),
        ({"groups": [{"parameters": "scale", "groups": []}]}, "Leave out groups"),
        ({"groups": [{"lr": 1}]}, "optimizer.groups.0.parameters"),
        ({"groups": 3}, "optimizer.groups: got 3"),
    ],
)  # fmt: skip
def test_a_mistake_in_groups_is_told(options, told):
    with pytest.raises(ConfigError) as error:
        grouped(asked_of("sgd", **options), LAYOUT)

    assert told in str(error.value)


# what n workers make of groups
POOL = Pool(4, 0.25)
TWO = partial(asked_of, groups=[{"parameters": "*.bias", "lr": 0.02, "weight_decay": 0.0}])


def test_translations_go_to_each_group():
    asked, backup = grouped(TWO("adam", lr=0.01, betas=(0.9, 0.99)), LAYOUT), build_policy(Options(name="backup"))
    found = effective(Pool(4, 0.0625), asked, backup)

    assert isinstance(found, Grouped)
    assert [part.betas for part in found.parts] == [pytest.approx((0.98125, 0.998125))] * 2
    assert [part.lr for part in found.parts] == [0.01, 0.02]


def test_workers_keep_the_momentum_of_each_group_and_servers_step_plainly():
    asked = grouped(TWO("sgd", lr=0.1, momentum=0.5, weight_decay=0.1), LAYOUT)
    policy = build_policy(Options(name="asp"))
    kept, gradient, weights = POOL.half(asked, policy), np.ones(24, np.float32), np.ones(24, np.float32)

    kept.look_ahead(gradient, weights)

    assert effective(POOL, asked, policy) == plainly(asked)
    bias = [*range(12, 15), *range(21, 23)]
    np.testing.assert_allclose(gradient[bias], 1.5)
    np.testing.assert_allclose(np.delete(gradient, bias), 1.1 * 1.5)


def test_workers_begin_with_each_groups_own_memory():
    groups = [{"parameters": "*.bias", "initial_accumulator_value": 8.0}]
    half = POOL.half(grouped(asked_of("adagrad", groups=groups), LAYOUT), build_policy(Options(name="asp")))
    gradient = np.ones(24, np.float32)

    half.look_ahead(gradient, np.ones(24, np.float32))

    bias = [*range(12, 15), *range(21, 23)]
    np.testing.assert_allclose(gradient[bias], 1 / 3)
    np.testing.assert_allclose(np.delete(gradient, bias), 1.0)


def test_a_group_without_momentum_pushes_its_gradient_and_its_decay():
    asked = asked_of("sgd", momentum=0, weight_decay=0.1, groups=[{"parameters": "scale", "momentum": 0.5}])
    kept, gradient = POOL.half(grouped(asked, LAYOUT), build_policy(Options(name="asp"))), np.ones(24, np.float32)

    kept.look_ahead(gradient, np.ones(24, np.float32))

    np.testing.assert_allclose(gradient, [1.1] * 23 + [1.1 * 1.5])


def test_momentum_of_what_is_left_alone_stays():
    asked = asked_of("sgd", momentum=0.5, weight_decay=0)
    kept, grouping = POOL.half(asked, build_policy(Options(name="asp"))), Grouping.of(asked, LAYOUT)
    pushed = []
    for untouched in ((), (4,), ()):
        gradient = np.array([1.0] * 23 + [0.0 if untouched else 1.0], np.float32)
        kept.look_ahead(gradient, np.ones(24, np.float32), grouping, untouched)
        pushed.append([float(gradient[0]), float(gradient[23])])

    assert pushed == [[1.5, 1.5], [1.75, 0.0], [1.875, 1.75]]
