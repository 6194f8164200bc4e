"""A script's schedulers go on where the run is, in a process that begins again."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.optim import lr_scheduler as of_torch  # noqa: E402

from paceline.api.script import wrap  # noqa: E402
from paceline.core.errors import ConfigError  # noqa: E402
from paceline.worker.live_objects.steps import Schedule  # noqa: E402
from paceline.worker.script.schedulers import Schedulers, notice  # noqa: E402
from paceline.worker.script.wrapped_optimizer import WrappedOptimizer  # noqa: E402
from tests.support.nights import some  # noqa: E402

notice()
PER_EPOCH, EPOCHS = 7, 6
LAST = PER_EPOCH * EPOCHS
SCORES = [3.0, 2.0, 2.5, 2.6, 2.7, 2.8]


def sequence(optimizer: Any) -> Any:
    parts = [of_torch.LinearLR(optimizer, 0.1, total_iters=2), of_torch.CosineAnnealingLR(optimizer, 4)]
    return of_torch.SequentialLR(optimizer, parts, milestones=[2])


def chain(optimizer: Any) -> Any:
    return of_torch.ChainedScheduler(
        [of_torch.ConstantLR(optimizer, 0.1, 3), of_torch.ExponentialLR(optimizer, 0.9)], optimizer=optimizer
    )


EACH: dict[str, tuple[Callable[[Any], Any], int]] = {
    "step of epochs": (lambda one: of_torch.StepLR(one, 2), PER_EPOCH),
    "cosine of epochs": (lambda one: of_torch.CosineAnnealingLR(one, EPOCHS), PER_EPOCH),
    "cosine of steps": (lambda one: of_torch.CosineAnnealingLR(one, LAST), 1),
    "one cycle": (lambda one: of_torch.OneCycleLR(one, 0.5, LAST), 1),
    "lambda of epochs": (lambda one: of_torch.LambdaLR(one, lambda epoch: 0.8**epoch), PER_EPOCH),
    "lambda of steps": (lambda one: of_torch.LambdaLR(one, lambda step: 1 / (1 + step)), 1),
    "sequence of epochs": (sequence, PER_EPOCH),
    "chain of epochs": (chain, PER_EPOCH),
    "plateau": (lambda one: of_torch.ReduceLROnPlateau(one, patience=0), PER_EPOCH),
    "every third step": (lambda one: of_torch.StepLR(one, 2), 3),
}


class Process:
    """A worker's process: the script's optimizer, its scheduler, and what Paceline keeps of it."""

    def __init__(self, kind: str, file: Path | None, position: int = 0) -> None:
        make, self.every = EACH.get(kind, (lambda _: None, LAST))
        parameter = torch.nn.Parameter(torch.ones(()))
        parameter.grad = torch.zeros(())
        self.run: Any = SimpleNamespace(
            position=position, schedulers=[], step=lambda *_: None, steps_itself=True, look=int, large_inputs=""
        )
        self.optimizer = WrappedOptimizer(torch.optim.SGD([parameter], lr=0.1), self.run)
        self.scheduler = make(self.optimizer)
        self.run.schedulers += [Schedulers(self.optimizer, file, lambda done: min(done // PER_EPOCH, EPOCHS - 1))]
        self.run.schedulers[0].go_on(position)

    def train(self, until: int) -> list[float]:
        """The rate of each step."""
        rates = []
        while self.run.position < until:
            self.optimizer.step()
            rates.append(float(self.optimizer.param_groups[0]["lr"]))
            self.run.position = done = self.run.position + 1
            if done % self.every == 0:
                plateau = isinstance(self.scheduler, of_torch.ReduceLROnPlateau)
                self.scheduler.step(*[SCORES[done // PER_EPOCH - 1]] if plateau else [])
        return rates


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("killed", some([1, 10, 3 * PER_EPOCH - 1, 3 * PER_EPOCH + 1, 33], [1, 3 * PER_EPOCH + 1]))
def test_a_worker_that_is_started_again_has_the_rates_of_one_that_never_stopped(
    kind: str, killed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight = Process(kind, None).train(LAST)
    file = tmp_path / "residuals" / "worker-0.schedulers.json"
    first = Process(kind, file).train(killed)

    rates = first + Process(kind, file, killed).train(LAST)

    late = int(
        killed == 1 and kind in ("cosine of steps", "lambda of steps")
    )  # it was killed before it had noted anything
    assert rates[killed + late :] == pytest.approx(straight[killed + late :])
    assert ("has no notes" in capsys.readouterr().err) == (killed == 1 and kind != "plateau")


def test_a_plateau_is_noted_with_the_step_after_its_score(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    seen = []
    for killed in (PER_EPOCH, PER_EPOCH + 1):
        Process("plateau", file).train(killed)
        seen.append(Process("plateau", file, killed).scheduler.best)

    assert seen == [float("inf"), SCORES[0]]


@pytest.mark.parametrize(
    "kind", ["step of epochs", "cosine of steps", "one cycle", "lambda of steps", "chain of epochs"]
)
@pytest.mark.parametrize("killed", [1, 10, 3 * PER_EPOCH - 1])
def test_without_its_notes_a_worker_guesses_says_so_and_finds_out(
    kind: str, killed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    straight = Process(kind, None).train(LAST)

    rates = Process(kind, None, killed).train(LAST)

    said = capsys.readouterr().err
    assert "has no notes of how it was stepped" in said
    assert ("is stepped after each step, and goes on" in said) == (kind in ("cosine of steps", "lambda of steps"))
    assert rates[3:] == pytest.approx(straight[killed + 3 :])


def test_an_irregular_scheduler_without_notes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Process("every third step", None, 10).train(20)

    assert "StepLR is stepped irregularly, and goes on from its step 1" in capsys.readouterr().err


def test_a_scheduler_that_the_script_has_brought_somewhere_stays_there(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    Process("lambda of epochs", file).train(10)
    process = Process("lambda of epochs", None)
    process.optimizer.step()
    process.scheduler.step()
    schedulers = Schedulers(process.optimizer, file, lambda done: done // PER_EPOCH)

    schedulers.go_on(30)

    assert process.scheduler.last_epoch == 1


@pytest.mark.parametrize("follows", [False, True])
def test_a_rate_that_the_script_sets_and_that_begins_again_is_told(
    follows: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.json"
    for position in (0, 10):
        process = Process("none", file, position)
        if not position:
            process.train(1)
        if follows or not position:
            process.optimizer.param_groups[0]["lr"] = 0.05
        process.train(position + 2)

    assert ("begins with the rate of the script's first step" in capsys.readouterr().err) != follows


class Kept:
    """Not one of torch's."""

    def __init__(self, optimizer: Any, **state: Any) -> None:
        self.optimizer, self.state = optimizer, state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def test_what_can_not_be_a_scheduler_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    own, other = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    for schedulers, words in (
        (of_torch.StepLR(own, 1), "is a StepLR; expected a list"),
        ([object()], "object without these"),
        ([Kept(other)], "Kept of another optimizer"),
    ):
        with pytest.raises(ConfigError, match=words):
            wrap(own, model, schedulers=schedulers)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="state_dict of Kept can't be kept"):
        Schedulers(own, tmp_path / "notes.json", int, [Kept(own, rate=lambda: 0.1)]).go_on(0)


class Scheduler:
    """Counts its steps."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1


def test_it_steps_up_to_where_the_run_is_and_never_twice() -> None:
    scheduler = Scheduler()
    schedule = Schedule(scheduler)
    seen = []
    for place in (0, 1, 1, 2, 7):  # 7: a worker that was started again
        schedule.reach(place)
        seen.append(scheduler.steps)
    assert seen == [0, 1, 1, 2, 7]


def test_without_a_scheduler_the_rate_stays() -> None:
    Schedule(None).reach(3)
