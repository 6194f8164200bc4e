"""A script's model as one vector: other precisions, running statistics, models inside of others, own steps of torch's."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.optimizers.groups import grouped
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.builtin.bsp import Bsp
from paceline.core.policies.builtin.kbuffered import Kbuffered
from paceline.core.policies.builtin.local_sgd import LocalSgd
from paceline.core.policies.builtin.ssp import Ssp
from paceline.core.settings.config import Options

torch = pytest.importorskip("torch")
nn = torch.nn
TorchDispatchMode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode
scripts = pytest.importorskip("paceline.worker.script.script_replica")


def normed() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))


def replica_of(model: Any, **more: Any) -> Any:
    return scripts.ScriptReplica("train.py", model, [torch.optim.SGD(model.parameters(), lr=0.1)], **more)


def backward(model: Any, seed: int) -> None:
    model(torch.randn(16, 3, generator=torch.Generator().manual_seed(seed)) + seed).square().sum().backward()


# running statistics


def test_the_vector_ends_with_running_statistics_and_their_gradient_is_how_far_they_went_back() -> None:
    model = normed()
    replica = replica_of(model)
    assert [name for name, _ in replica.shapes[-2:]] == ["0.running_mean", "0.running_var"]

    before = model[0].running_mean.clone()
    backward(model, 1)
    step = replica.gathered(None, 16)

    assert step.gradient[-6:-3] == pytest.approx((before - model[0].running_mean).numpy())
    assert replica.local[-6:-3] == pytest.approx(model[0].running_mean.numpy())


def test_servers_keep_the_mean_of_the_workers_statistics_and_one_push_what_it_adds() -> None:
    models = [normed(), normed()]
    replicas = [replica_of(model) for model in models]
    shapes = replicas[0].shapes
    section = {"name": "adam", "lr": 0.01, "averaged": ["0.running_mean", "0.running_var"]}
    optimizer = grouped(build_optimizer(Options(**section)), Layout.whole(shapes))
    first = replicas[0].local.copy()
    pushes = []
    for seed, (model, replica) in enumerate(zip(models, replicas, strict=True)):
        backward(model, seed)
        pushes.append(replica.gathered(None, 16).gradient)

    lock_step, loose = first.copy(), first.copy()
    optimizer.step(lock_step, lock_step, pushes[0] + pushes[1], 0.5, 0.01, optimizer.new_slots(len(first)), 1)
    optimizer.step(loose, loose, pushes[1], 1.0, 0.01, optimizer.new_slots(len(first)), 1)

    both = np.mean([replica.local[-6:] for replica in replicas], axis=0)
    assert lock_step[-6:] == pytest.approx(both, abs=1e-6)
    assert loose[-6:] == pytest.approx(replicas[1].local[-6:], abs=1e-6)
    assert not np.array_equal(lock_step[:-6], first[:-6])


def test_first_counts_the_statistics_of_place_0_alone() -> None:
    found = []
    for place in (0, 1):
        model = normed()
        replica = replica_of(model, buffers="first")
        replica.place, replica.workers = place, 2
        replica.begins_policy(Bsp())
        backward(model, 1)
        replica.thread.ask = lambda what: scripts.Answer(16)
        found.append(replica.gradient(np.zeros(1), np.zeros(1), 0, None).gradient)

    moved = 1 - 0.9  # BatchNorm's momentum
    assert found[0][-6:-3] == pytest.approx(2 * -moved * _mean_of(1), abs=1e-5)
    assert not found[1][-6:].any()
    assert found[1][:-6].any()


def test_a_change_of_policy_changes_how_much_the_statistics_of_place_0_count() -> None:
    replica = replica_of(normed(), buffers="first")
    replica.workers, weights = 4, []

    for policy in (Bsp(), Ssp(), Kbuffered(), LocalSgd()):
        replica.begins_policy(policy)
        weights.append(replica.statistics_weight)

    assert weights == [4, 4, 2, 1]


def _mean_of(seed: int) -> Any:
    return (torch.randn(16, 3, generator=torch.Generator().manual_seed(seed)) + seed).mean(0).numpy()


def test_own_statistics_stay_with_the_worker() -> None:
    assert all("running" not in name for name, _ in replica_of(normed(), buffers="own").shapes)


# gradients


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_that_have_a_gradient_themselves_are_pushed_and_clipped_as_others() -> None:
    model = normed()
    replica = replica_of(model)
    model(torch.ones(2, 3)).square().sum().backward(create_graph=True)
    expected = torch.cat([parameter.grad.detach().flatten() for parameter in model.parameters()]).numpy()

    found = replica.gathered(None, 2).gradient
    assert found[: replica.weights_end] == pytest.approx(expected)
    replica.steps_itself = True
    found *= 0.5
    replica.clipped()

    assert model[1].bias.grad.tolist() == pytest.approx(expected[-2:] / 2)


# precision


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64"])
def test_parameters_of_other_precisions_are_rounded_from_float32(kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2).to(getattr(torch, kind)))
    replica = replica_of(model)
    assert replica.local.dtype == np.float32
    (model[0](torch.ones(1, 3)).sum() + model[1](torch.ones(1, 3, dtype=getattr(torch, kind))).float().sum()).backward()

    assert replica.gathered(None, 1).gradient.tolist() == [1.0] * 20
    replica.local += 1e-5
    before = model[1].weight.detach().clone()
    for _ in range(400):
        replica.local += 1e-4
    replica.refresh()

    assert model[1].weight.dtype == getattr(torch, kind)
    moved = (model[1].weight.detach().float() - before.float()).mean()
    assert float(moved) == pytest.approx(0.04, abs=4e-3)  # steps that bfloat16 alone would lose


@pytest.mark.filterwarnings("ignore:Complex modules")
def test_many_small_tensors_take_as_many_calls_as_a_few_and_a_tensor_without_gradient_is_untouched() -> None:
    class Count(TorchDispatchMode):
        """Calls of torch."""

        found = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.found += 1
            return function(*args, **(kwargs or {}))

    calls = []
    for many in (4, 400):
        model = nn.ParameterList([nn.Parameter(torch.ones(3)) for _ in range(many)])
        replica = replica_of(model)
        for place, parameter in enumerate(model):
            parameter.grad = None if place == 1 else torch.full((3,), float(place))
        with Count() as count:
            step = replica.gathered(None, 1)
        calls.append(count.found)
        wanted = np.arange(many, dtype=np.float32)
        wanted[1] = 0
        assert step.gradient.tolist() == np.repeat(wanted, 3).tolist()
        assert replica._flat.untouched == (1,)
        assert model[1].grad is None
    assert calls[0] == calls[1]


def test_what_is_no_floating_number_can_not_be_trained() -> None:
    model = nn.Linear(2, 2)
    model.to(torch.complex64)
    with pytest.raises(ConfigError, match="complex64"):
        replica_of(model)


# models inside of others


def test_the_model_inside_of_data_parallel_and_compiled_ones_is_trained() -> None:
    model = normed()

    assert scripts.inner(nn.DataParallel(model)) is model
    assert scripts.inner(torch.compile(nn.DataParallel(model))) is model


def test_a_model_on_several_devices_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(ConfigError, match=r"The model of train\.py is on cpu, meta"):
        replica_of(model)


# own steps


@pytest.mark.parametrize(
    ("kind", "decay", "plainly"),
    [(torch.optim.NAdam, 0.0, 0.0), (torch.optim.AdamW, 0.2, 0.1), (torch.optim.Adam, 0.2, 0.2)],
)
def test_own_steps_are_those_of_the_scripts_optimizer_at_what_the_run_makes_of_its_rate_and_decay(
    kind: Any, decay: float, plainly: float
) -> None:
    own, plain = normed(), normed()
    optimizer = kind(own.parameters(), lr=0.01, weight_decay=decay)
    other = kind(plain.parameters(), lr=0.005, weight_decay=plainly)
    replica = scripts.ScriptReplica("train.py", own, [optimizer], rate=0.01)
    stepper = replica.own_steps(build_optimizer(Options(name="sgd", lr=0.01)), 0.5)
    assert stepper is not None
    assert replica.own_steps(None) is None

    for seed in range(3):
        for model in (own, plain):
            model.zero_grad()
            backward(model, seed)
        other.step()
        gradient = replica.gathered(None, 16).gradient
        stepper.step(replica.local, replica.local, gradient, 1.0, 0.005, stepper.new_slots(replica.length), seed + 1)

    expected = torch.cat([each.detach().flatten() for each in plain.parameters()])
    assert replica.local[:-6] == pytest.approx(expected.numpy(), abs=1e-6)
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]) == (0.01, decay)


def test_a_warm_up_that_was_made_before_the_wrap_counts_once() -> None:
    from paceline.worker.script.wrapped_optimizer import wrap

    model, said = normed(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1)
    run = SimpleNamespace(
        script="train.py",
        settings=SimpleNamespace(policy=Options(name="local_sgd")),
        train=lambda replica, section, *_: said.append((replica, section)),
        described=([], {}),
        models=[],
        schedulers=[],
        notes=lambda _: None,
        epoch_of=None,
    )
    wrap(run, optimizer, model, 1, "own")
    ((replica, section),) = said
    stepper = replica.own_steps(build_optimizer(Options(name="sgd", lr=0.5)))

    before = model[1].weight.detach().clone()
    backward(model, 1)
    step, gradient = replica.gathered(None, 16), model[1].weight.grad.clone()
    stepper.step(replica.local, replica.local, step.gradient, 1.0, section["lr"], [], 1)
    assert torch.allclose(before - model[1].weight, 0.05 * gradient, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_what_is_clipped_is_clipped_for_the_scripts_own_steps_too(kind: torch.dtype) -> None:
    model = nn.Linear(3, 2).to(kind)
    replica = replica_of(model, buffers="own")
    replica.own_steps(build_optimizer(Options(name="sgd", lr=0.1)))
    model(torch.ones(4, 3, dtype=kind)).sum().backward()
    step, before = replica.gathered(None, 4), model.weight.grad.clone()

    np.multiply(step.gradient, np.float32(0.5), out=step.gradient)
    replica.clipped()

    assert torch.allclose(model.weight.grad.float(), 0.5 * before.float())


def test_weights_that_are_loaded_after_the_wrap_are_those_that_the_run_begins_with() -> None:
    model = nn.Linear(3, 2).to(torch.bfloat16)  # not a view of the flat model, like one on a GPU
    replica = replica_of(model, buffers="own")
    model.load_state_dict({"weight": torch.full((2, 3), 0.5), "bias": torch.full((2,), 0.25)})

    replica.begins()

    assert replica.local.tolist() == [0.5] * 6 + [0.25] * 2
    assert model.weight.tolist() == [[0.5] * 3] * 2


def test_own_steps_begin_again_without_what_they_remember() -> None:
    moved = []
    for earlier, forgets in ((False, False), (True, True), (True, False)):
        model = normed()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        replica = scripts.ScriptReplica("train.py", model, [optimizer], rate=0.1)
        stepper = replica.own_steps(build_optimizer(Options(name="sgd", lr=0.1)))
        for is_last in (False, True) if earlier else (True,):
            model.load_state_dict(normed().state_dict())
            model.zero_grad()
            backward(model, 1 if is_last else 2)
            if is_last and forgets:
                replica.forget_steps()
            stepper.step(replica.local, replica.local, replica.gathered(None, 16).gradient, 1.0, 0.1, [], 1)
        moved.append(torch.cat([each.detach().flatten() for each in model.parameters()]))

    assert torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])


@pytest.mark.parametrize(
    ("policy", "is_refused"),
    [
        ({"name": "shat", "local_step": "optimizer"}, True),
        ({"name": "ensemble", "local_step": "optimizer"}, False),
        ({"name": "local_sgd"}, False),
        ({"name": "downpour"}, True),
    ],
)
def test_an_optimizer_that_servers_have_not_is_for_policies_whose_servers_take_no_such_steps(
    policy: dict[str, str], is_refused: bool
) -> None:
    from paceline.worker.script.wrapped_optimizer import wrap

    model, described = normed(), []
    run = SimpleNamespace(
        script="train.py",
        settings=SimpleNamespace(policy=Options(**policy)),
        train=lambda replica, section, *_: described.append(section),
        described=([], {}),
        models=[],
        schedulers=[],
        notes=lambda _: None,
        epoch_of=None,
    )
    with pytest.raises(ConfigError, match="Servers can't do the steps of NAdam") if is_refused else nullcontext():
        wrap(run, torch.optim.NAdam(model.parameters(), lr=0.01), model, 1, "own")

    assert [section["name"] for section in described] == ([] if is_refused else ["sgd"])


@pytest.mark.parametrize(
    ("steps_itself", "has_state", "is_said"), [(False, True, 1), (False, False, 0), (True, True, 0)]
)
def test_state_that_servers_do_not_take_is_told_once(
    steps_itself: bool, has_state: bool, is_said: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from paceline.worker.script.wrapped_optimizer import WrappedOptimizer

    model = normed()
    optimizer = torch.optim.Adam(model.parameters())
    backward(model, 1)
    if has_state:
        optimizer.step()
    pushed: list[object] = []
    section = {"name": "adam", "lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "maximize": False}
    facts = {"described": ([optimizer], section), "steps_itself": steps_itself, "look": int}
    wrapped = WrappedOptimizer(
        optimizer, SimpleNamespace(schedulers=[], large_inputs="", step=lambda *what: pushed.append(what), **facts)
    )

    for _ in range(2):
        wrapped.step()

    assert len(pushed) == 2
    assert capsys.readouterr().err.count("begin with empty state") == is_said
