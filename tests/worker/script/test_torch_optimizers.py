"""Torch optimizers as settings: what servers do by them is what torch does, with the same gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.optimizers.groups import grouped
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Options, PlanConfig
from paceline.core.slice.plan import make_plan
from tests.support.one_slice import OneSlice

torch = pytest.importorskip("torch")
torch_optimizers = pytest.importorskip("paceline.worker.script.torch_optimizers")
replicas = pytest.importorskip("paceline.worker.script.script_replica")
optim, nn = torch.optim, torch.nn
described, held, manner = torch_optimizers.described, torch_optimizers.held, torch_optimizers.manner


class Net(nn.Module):
    """Two layers, a norm, a part that is not always used, a tied and a frozen tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.aside = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4, bias=False)
        self.last.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, inputs: Any, uses_aside: bool = True) -> Any:
        found = self.norm(self.first(inputs))
        return self.last(found + self.aside(found) if uses_aside else found)


def all_of(model: Any) -> list[Any]:
    return [{"params": list(model.parameters())}]


def decay_or_not(model: Any) -> list[Any]:
    """As nanoGPT's configure_optimizers and HuggingFace's examples do it."""
    found = [one for one in model.parameters() if one.requires_grad]
    return [
        {"params": [one for one in found if one.dim() >= 2], "weight_decay": 0.1},
        {"params": [one for one in found if one.dim() < 2], "weight_decay": 0.0},
    ]


def three(model: Any) -> list[Any]:
    return [
        {"params": model.first.parameters()},
        {"params": model.norm.parameters(), "lr": 0.05, "weight_decay": 0.0},
        {"params": model.aside.parameters(), "lr": 0.002, "eps": 1e-4},
    ]


def momenta(model: Any) -> list[Any]:
    return [
        {"params": [*model.first.parameters(), *model.norm.parameters()], "momentum": 0.0, "nesterov": False},
        {"params": model.aside.parameters(), "lr": 0.03},
    ]


def warm_up(optimizer: Any) -> Any:
    return optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))


def cosine(optimizer: Any) -> Any:
    return optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)


def apart(optimizer: Any) -> Any:
    last = len(optimizer.param_groups) - 1
    shapes = [lambda step: 0.9**step, *[lambda step: 1.0] * (last - 1), lambda step: 1 / (1 + step)][: last + 1]
    return optim.lr_scheduler.LambdaLR(optimizer, shapes)


def one_cycle(optimizer: Any) -> Any:
    return optim.lr_scheduler.OneCycleLR(optimizer, [3 * group["lr"] for group in optimizer.param_groups], 20)


class Decaying(optim.lr_scheduler.LambdaLR):
    """The decay of the first group ends."""

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)
        self.optimizer.param_groups[0]["weight_decay"] *= 0.5


def decaying(optimizer: Any) -> Any:
    return Decaying(optimizer, lambda step: 0.9**step)


MADE: dict[str, Callable[[Any, Any], Any]] = {
    "sgd": lambda groups, model: optim.SGD(groups(model), lr=0.1),
    "momentum": lambda groups, model: optim.SGD(groups(model), lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda groups, model: optim.SGD(groups(model), lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda groups, model: optim.Adam(groups(model), lr=torch.tensor(0.01), betas=(0.8, 0.95), weight_decay=0.1),
    "decoupled": lambda groups, model: optim.Adam(
        groups(model), lr=0.01, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "adamw": lambda groups, model: optim.AdamW(groups(model), lr=0.01, foreach=True),
    "adagrad": lambda groups, model: optim.Adagrad(groups(model), lr=0.1, initial_accumulator_value=0.1),
    "rmsprop": lambda groups, model: optim.RMSprop(groups(model), lr=0.01, momentum=0.5, alpha=0.9, weight_decay=0.1),
}
TRIALS = [
    *((name, groups, cosine) for name in MADE for groups in (all_of, decay_or_not)),
    *((name, three, apart) for name in MADE if "sgd" not in name and "momentum" not in name and name != "nesterov"),
    ("nesterov", momenta, apart),
    ("momentum", momenta, warm_up),
    ("adamw", decay_or_not, warm_up),
    *((name, all_of, one_cycle) for name in ("sgd", "momentum", "adam", "rmsprop")),
    *((name, decay_or_not, one_cycle) for name in ("nesterov", "adamw")),
    *((name, decay_or_not, decaying) for name in ("nesterov", "adamw")),
]


@pytest.mark.parametrize(("name", "groups", "schedule"), TRIALS)
def test_slices_that_are_told_what_is_described_step_as_torch_does(
    name: str, groups: Callable[[Any], Any], schedule: Callable[[Any], Any]
) -> None:
    torch.manual_seed(0)
    plain, ours = Net(), Net()
    ours.load_state_dict(plain.state_dict())
    there, here = (MADE[name](groups, model) for model in (plain, ours))
    section = described(here, ours)
    named = [group["parameters"] for group in section.get("groups", ())]
    replica = replicas.ScriptReplica("train.py", ours, [here], held(here, ours), groups=named)
    plan = make_plan(replica.shapes, 3, PlanConfig(alignment=1))
    optimizer = build_optimizer(Options(**section))
    slices = [
        OneSlice("asp", ["a"], np.concatenate(part), optimizer, layout=plan.layout(server))
        for server, part in enumerate(plan.split(replica.local))
    ]
    schedules = schedule(there), schedule(here)

    for step in range(15):
        inputs = torch.randn(5, 4)
        for model, mine in ((plain, there), (ours, here)):
            mine.zero_grad()
            model(inputs, step % 3 != 0).square().mean().backward()
        there.step()
        replica.thread.ask = lambda question: replicas.Answer(5, 1.0, True, manner(here, section))
        told = replica.gradient(np.zeros(0), np.zeros(0), 0, None)
        aside = {"aside.weight", "aside.bias"} if step % 3 == 0 else set()
        aside |= {"frozen"} & {name for name, _ in replica.shapes}
        assert {replica.shapes[tensor][0] for tensor in told.manner.untouched} == aside
        here._opt_called = True  # torch's schedulers want step() to be called before theirs
        for one, parts in zip(slices, plan.split(told.gradient), strict=True):
            one.push("a", *np.concatenate(parts), manner=told.manner)
        for one, parts in zip(slices, plan.split(replica.local), strict=True):
            ends = np.cumsum([len(part) for part in parts])[:-1]
            for part, values in zip(parts, np.split(np.array(one.weights, np.float32), ends), strict=True):
                part[:] = values
        for each in schedules:
            each.step()

    for (key, value), mine in zip(plain.state_dict().items(), ours.state_dict().values(), strict=True):
        np.testing.assert_allclose(mine, value, rtol=2e-4, atol=2e-5, err_msg=key)


def test_a_section_names_main_options_and_groups_that_differ() -> None:
    model = Net()

    found = described(optim.AdamW(decay_or_not(model), lr=0.001), model)

    assert found == {
        "name": "adamw",
        "lr": 0.001,
        "weight_decay": 0.1,
        "maximize": False,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "groups": [{"parameters": ["first.bias", "norm.weight", "norm.bias", "aside.bias"], "weight_decay": 0.0}],
    }


def test_frozen_parameters_are_named_in_no_group_tied_ones_once_and_an_empty_group_is_none() -> None:
    model = Net()
    groups = [{"params": [model.frozen]}, {"params": []}, {"params": [model.first.bias, model.last.weight], "lr": 0.5}]
    optimizer = optim.SGD(groups, lr=1.0)

    section = described(optimizer, model)
    optimizer.param_groups[2]["lr"] = 0.25

    assert section["groups"] == [{"parameters": ["first.bias", "first.weight"], "lr": 0.5}]
    assert manner(optimizer, section).rates == (1.0, 0.5)


def test_parameters_of_a_group_lie_side_by_side_so_that_each_is_stepped_at_once() -> None:
    """Weights with decay and biases without, layer by layer."""
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(20)))
    optimizer = optim.AdamW(decay_or_not(model))
    section = described(optimizer, model)

    named = [group["parameters"] for group in section["groups"]]
    replica = replicas.ScriptReplica("train.py", model, [optimizer], groups=named)

    asked = build_optimizer(Options(**section))
    assert len(grouped(asked, Layout.whole(replica.shapes)).stretches) == 2
    assert {name for name, _ in replica.shapes} == {name for name, _ in model.named_parameters()}
    replica.local[:] = np.arange(replica.length)
    replica.refresh()
    assert model[0].weight.flatten().tolist() == list(range(9))
    assert model[0].bias.tolist() == [180, 181, 182]


def test_what_the_optimizer_does_not_step_is_left_out_of_the_run() -> None:
    model = Net()
    optimizer = optim.SGD([model.first.weight, model.norm.bias], lr=1.0)

    found = held(optimizer, model)

    assert found == {"first.weight", "norm.bias"}
    assert [name for name, _ in replicas.ScriptReplica("train.py", model, [optimizer], found, "own").shapes] == [
        "first.weight",
        "norm.bias",
    ]


def test_a_rate_of_a_warm_up_that_has_begun_is_a_factor_of_the_one_it_leads_to() -> None:
    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    warm_up(optimizer)

    section = described(optimizer, model)

    assert (section["lr"], manner(optimizer, section).rates) == (0.01, (0.0,))


def test_a_rate_of_zero_is_a_factor_of_a_usual_one() -> None:
    model = Net()
    optimizer = optim.Adam(
        [{"params": model.first.parameters()}, {"params": model.norm.parameters(), "lr": 0.0}], lr=0.01
    )

    section = described(optimizer, model)

    assert (section["groups"][0]["lr"], manner(optimizer, section).rates) == (0.001, (1.0, 0.0))


def test_rates_that_nobody_has_changed_are_not_told() -> None:
    model = Net()
    optimizer = optim.AdamW(three(model), lr=0.001)
    section = described(optimizer, model)

    assert manner(optimizer, section).rates == ()
    optimizer.param_groups[2]["lr"] /= 4
    assert manner(optimizer, section).rates == (1.0, 1.0, 0.25)


class Own(optim.SGD):
    """A step of the user's own."""


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda model: Own(model.parameters(), lr=0.1), "the steps of Own. Use one of torch.optim: SGD, Adam,"),
        (lambda model: optim.NAdam(model.parameters()), "Servers can't do the steps of NAdam"),
        (lambda model: optim.Adam(model.parameters(), amsgrad=True), "amsgrad=True, which servers can't do"),
        (lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.1), "uses dampening=0.1"),
        (lambda model: optim.RMSprop(model.parameters(), centered=True), "uses centered=True"),
        (lambda model: optim.Adagrad(model.parameters(), lr_decay=0.1), r"Let a scheduler do it \(LambdaLR\)"),
        (lambda model: optim.Adam(model.parameters(), differentiable=True), "uses differentiable=True"),
        (lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=1.5), "optimizer.momentum: got 1.5"),
    ],
)
def test_what_servers_can_not_do_is_told_with_what_to_do(made: Callable[[Any], Any], told: str) -> None:
    model = Net()

    with pytest.raises(ConfigError, match=told) as error:
        described(made(model), model)

    assert "or train under a policy with own steps, like --policy local_sgd" in str(error.value).replace("; or", ", or")


def test_an_optimizer_that_computes_its_loss_several_times_a_step_is_refused_under_every_policy() -> None:
    model = Net()
    torch_optimizers.refuse_closures(optim.NAdam(model.parameters()))

    with pytest.raises(ConfigError, match="LBFGS computes the loss several times in each step"):
        torch_optimizers.refuse_closures(optim.LBFGS(model.parameters()))


def test_a_parameter_that_is_not_the_models_is_told() -> None:
    model = Net()
    optimizer = optim.SGD([*model.parameters(), nn.Parameter(torch.ones(2, 3))], lr=0.1)

    with pytest.raises(ConfigError, match=r"group 0 .* holds 1 that the model does not have, .* of shape \(2, 3"):
        described(optimizer, model)


def test_an_optimizer_of_frozen_parameters_alone_is_told() -> None:
    model = Net()

    with pytest.raises(ConfigError, match="nothing to train"):
        described(optim.SGD([model.frozen], lr=0.1), model)


def test_other_options_may_not_change() -> None:
    model = Net()
    optimizer = optim.Adam(model.parameters())
    section = described(optimizer, model)
    optimizer.param_groups[0]["eps"] = 1e-3

    with pytest.raises(
        ConfigError, match=r"eps 0\.001 now, but had 1e-08 .* changes of lr, momentum, betas, weight_decay"
    ):
        manner(optimizer, section)


def test_a_group_that_comes_later_is_told() -> None:
    model = Net()
    optimizer = optim.SGD(model.first.parameters(), lr=0.1)
    section = described(optimizer, model)
    optimizer.add_param_group({"params": model.norm.parameters()})

    with pytest.raises(ConfigError, match="has 2 parameter groups now, but had 1"):
        manner(optimizer, section)
