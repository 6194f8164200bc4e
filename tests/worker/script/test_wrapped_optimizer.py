"""A wrapped optimizer in the hands of torch's GradScaler."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config, Options

torch = pytest.importorskip("torch")
from paceline.worker.script.wrapped_optimizer import WrappedOptimizer, tell_of_clipping, wrap  # noqa: E402


class Run:
    """Notes what would be pushed."""

    schedulers = ()
    position = 0
    steps_itself = True
    large_inputs = ""

    def __init__(self, parameter: Any) -> None:
        self.steps: list[tuple[bool, float]] = []
        self._parameter = parameter

        self.searched: list[bool] = []

    def look(self) -> None:
        """Nothing was moved."""

    def step(self, loss: float | None, finite: bool, rates: Any, searches: bool, _: Any) -> None:
        self.steps.append((finite, float(self._parameter.grad)))
        self.searched.append(searches)


@pytest.mark.parametrize("unscales", [False, True])
def test_a_grad_scaler_steps_with_gradients_of_the_right_size_and_says_which_are_not_finite(unscales: bool) -> None:
    parameter = torch.nn.Parameter(torch.ones(()))
    run: Any = Run(parameter)
    optimizer = WrappedOptimizer(torch.optim.SGD([parameter], lr=0.1), run)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in (2.0, 3.0, float("inf"), 4.0):
        optimizer.zero_grad()
        scaler.scale(parameter * factor).backward()
        if unscales:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    assert [finite for finite, _ in run.steps] == [True, True, False, True]
    assert [gradient for finite, gradient in run.steps if finite] == [2.0, 3.0, 4.0]
    assert scaler.get_scale() == 512.0


@pytest.mark.parametrize(("skipped", "searched"), [(3, 3), (30, 19)])
def test_a_scaler_that_looks_for_its_factor_is_told_from_a_model_without_gradients(skipped: int, searched: int) -> None:
    parameter = torch.nn.Parameter(torch.ones(()))
    run: Any = Run(parameter)
    optimizer = WrappedOptimizer(torch.optim.SGD([parameter], lr=0.1), run)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in [float("inf")] * skipped + [2.0, float("inf")]:
        optimizer.zero_grad()
        scaler.scale(parameter * factor).backward()
        scaler.step(optimizer)
        scaler.update()

    assert run.searched == [True] * searched + [False] * (skipped - searched + 2)


def test_a_state_that_is_loaded_reaches_the_optimizer_that_steps() -> None:
    parameter = torch.nn.Parameter(torch.ones(()))
    own = torch.optim.SGD([parameter], lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(own, 1, 0.1)  # made before the wrap, so it watches this one
    optimizer = WrappedOptimizer(own, Run(parameter))  # type: ignore[arg-type]
    other = torch.optim.SGD([parameter], lr=0.2, momentum=0.9)
    parameter.grad = torch.ones(())
    other.step()

    optimizer.load_state_dict(other.state_dict())

    assert own.param_groups is optimizer.param_groups
    assert (own.param_groups[0]["lr"], len(own.state)) == (0.2, 1)
    own.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02)


def test_a_step_before_any_gradient_is_refused() -> None:
    parameter = torch.nn.Parameter(torch.ones(()))
    run: Any = Run(parameter)
    optimizer = WrappedOptimizer(torch.optim.SGD([parameter], lr=0.1), run)

    with pytest.raises(ConfigError, match=r"Call loss\.backward"):
        optimizer.step()
    parameter.grad = torch.ones(())
    optimizer.step()
    assert len(run.steps) == 1


@pytest.mark.parametrize(
    "policy", [Options(name="local_sgd"), Options(name="downpour", push_every=4)], ids=lambda found: found.name
)
def test_the_statistics_of_worker_0_alone_are_refused_where_workers_push_their_models(policy: Options) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    run: Any = SimpleNamespace(settings=SimpleNamespace(policy=policy))

    with pytest.raises(ConfigError, match=rf"buffers is 'first', but workers of policy {policy.name} push .*='mean'"):
        wrap(run, torch.optim.SGD(model.parameters(), lr=0.1), model, 1, "first")


@pytest.mark.parametrize(
    ("servers", "workers", "norm", "said"),
    [
        (1, 2, None, "train.py, line 2: clip_grad_norm_ clips each worker's gradient, not the mean"),
        (1, 1, None, ""),
        (1, 2, 1.0, ""),
        (2, 2, 1.0, "server 0 holds the whole model"),
    ],
)
def test_in_lock_step_it_is_said_which_norm_is_clipped_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], servers: int, workers: int, norm: float | None, said: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("# clip_grad_norm_(1)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")
    settings = Config(task=str(script), servers=servers, workers=workers)

    tell_of_clipping(SimpleNamespace(settings=settings, script="train.py"), norm)

    told = capsys.readouterr().err
    assert said in told
    assert bool(said) == bool(told)
