"""Lightning's Trainer as one worker, in this process: what its epochs, schedulers, callbacks and precisions make of a run. The
run is a fake one; tests/examples/test_scripts.py launches a Trainer in a real one."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.api import script
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config, Options
from paceline.core.values import AS_SET
from tests.support.script_run import FakeRun

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="pip install 'paceline[lightning]'")

from lightning.pytorch.callbacks import (  # noqa: E402
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
)
from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from lightning.pytorch.plugins.precision import MixedPrecision  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import paceline.lightning as ours  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS, BATCH = 40, 8
STEPS = ROWS // BATCH
"""Of an epoch."""


class Run(FakeRun):
    """A run of one worker whose servers step at once. `more`: its mini-batches beyond the epochs (less, where negative), as
    policies that don't wait have it; None: each worker makes its own."""

    script = "mine.py"
    steps_itself = False

    def __init__(
        self, *, more: int | None = 0, done: int = 0, rank: int = 0, workers: int = 1, policy: str = "ssp"
    ) -> None:
        super().__init__(rank, done=done, workers=workers)
        self.workers = workers
        budget = "per_worker" if more is None else "total"
        self.settings = Config(workers=workers, policy=Options(name=policy), budget=budget)
        self._more, self._done = more or 0, done
        self.described: Any = [], {}
        self.models: list[Any] = []
        self.schedulers: list[Any] = []
        self.steps_made = 0
        self.clip_norm: float | None = None
        self.told: list[tuple[bool, tuple[float, ...]]] = []
        """Of each step: whether its gradient was finite, and the rates."""
        self.stopped: str | None = None
        self.has_finished = False

    def train(self, replica: Any, optimizer: dict[str, Any], accumulate: int, clip_norm: float | None) -> None:  # type: ignore[override]
        self.accumulate, self.clip_norm = accumulate, clip_norm

    def look(self) -> None:
        """The weights are where they were."""

    def notes(self, optimizer: int) -> None:
        """Nothing outlives the run."""

    def epoch_of(self, position: int) -> int:
        return position // self.steps_per_epoch

    def epochs(self, count: int) -> Iterator[int]:
        self._epochs = count
        self.join()
        self.is_over = self.position >= count * self.steps_per_epoch + self._more
        while not self.is_over:
            self.epoch = min(count - 1, max(self.epoch + 1, self.position // self.steps_per_epoch))
            yield self.epoch
            if self.epoch == count - 1 and self.settings.budget == "per_worker":
                self.finish()

    def step(  # type: ignore[override]
        self, loss: Any = None, finite: bool = True, manner: Any = AS_SET, searches: bool = False, optimizer: Any = None
    ) -> None:
        self.steps_made += 1
        self.position = self.steps_made // len(self.described[0]) + self._done
        self.told.append((finite, manner.rates))
        if finite:
            type(optimizer).step(optimizer)
        last = self._epochs * self.steps_per_epoch + self._more
        self.is_over = self.settings.budget == "total" and self.position >= last

    def stop(self, reason: str) -> None:
        self.stopped, self.is_over = reason, True

    def finish(self) -> None:
        self.is_over = self.has_finished = True


class Net(lightning.LightningModule):
    """One layer. `schedule(optimizer, module)`: what its scheduler is made by, stepped after each `interval`."""

    def __init__(self, schedule: Any = None, interval: str = "epoch", manual: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self._schedule, self._interval = schedule, interval
        self.automatic_optimization = not manual
        self.factor = 1.0
        """The loss is multiplied by it."""

    def training_step(self, batch: Any, _index: int) -> Any:
        loss = self.factor * (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("train_loss", loss)
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def validation_step(self, batch: Any, _index: int) -> None:
        self.log("loss", (self.layer(batch[0]) - batch[1]).square().mean())

    test_step = validation_step

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        if self._schedule is None:
            return optimizer
        chosen = {"scheduler": self._schedule(optimizer, self), "interval": self._interval, "monitor": "loss"}
        return {"optimizer": optimizer, "lr_scheduler": chosen}


class Two(Net):
    """Weight and bias have an optimizer each, as generator and discriminator do."""

    def __init__(self) -> None:
        super().__init__(manual=True)

    def training_step(self, batch: Any, _index: int) -> None:
        for optimizer in self.optimizers():
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward((self.layer(batch[0]) - batch[1]).square().mean())
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([one], lr=0.1) for one in self.layer.parameters()]


class Seen(Callback):  # type: ignore[misc]
    """What a Trainer counts."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int]] = []
        """Epoch, mini-batch of it, and steps, after each mini-batch."""
        self.epochs: list[int] = []
        self.validated: list[int] = []
        self.rates: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.batches.append((trainer.current_epoch, batch_idx, trainer.global_step))

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self.epochs.append(trainer.current_epoch)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            self.validated.append(trainer.current_epoch)


def data() -> Any:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS, 3, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


class Trained:
    """A Trainer that has fitted `net` in `run`."""

    def __init__(self, folder: Path, run: Any, net: Any = None, *callbacks: Any, validate: bool = True, **options: Any):
        patched = pytest.MonkeyPatch()
        for module in (ours, script):
            patched.setattr(module, "current", lambda: run)
        self.run = run
        self.seen = Seen()
        self.net = net or Net()
        options = {"max_epochs": 3, "strategy": "paceline", "accelerator": "cpu", "logger": False} | options
        options.setdefault("enable_checkpointing", False)
        try:
            self.trainer = lightning.Trainer(
                callbacks=[self.seen, *callbacks],
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=folder,
                **options,
            )
            loaders = [DataLoader(data(), batch_size=BATCH, shuffle=True)]
            loaders += [DataLoader(data(), batch_size=ROWS)] if validate else []
            self.trainer.fit(self.net, *loaders)
        finally:
            patched.undo()

    @property
    def loss(self) -> float:
        """The last one that was validated."""
        return float(self.trainer.callback_metrics["loss"])


# epochs
def test_alone_the_strategy_is_chosen_by_its_name_and_trains(tmp_path: Path) -> None:
    done = Trained(tmp_path, script.current())

    assert isinstance(done.trainer.strategy, ours.PacelineStrategy)
    assert done.seen.epochs == [0, 1, 2]
    assert done.trainer.global_step == 3 * STEPS


@pytest.mark.parametrize("more", [0, 1, 2, 12, None])  # None: where each worker makes its own steps
def test_the_last_epoch_lasts_until_the_run_is_over_and_none_is_added(tmp_path: Path, more: int | None) -> None:
    done = Trained(tmp_path, Run(more=more))

    assert done.seen.epochs == done.seen.validated == [0, 1, 2]
    assert len(done.seen.batches) == done.run.position == 3 * STEPS + (more or 0)
    assert done.trainer.current_epoch == 3
    assert done.run.has_finished or more is not None
    assert not done.run.stopped


def test_a_worker_that_is_slower_than_the_others_ends_with_them(tmp_path: Path) -> None:
    done = Trained(tmp_path, Run(more=-STEPS - 2))

    assert done.seen.epochs == done.seen.validated == [0, 1]
    assert done.run.position == 2 * STEPS - 2


@pytest.mark.parametrize("clock", [STEPS, STEPS + 2, 2 * STEPS + 4])
def test_a_worker_that_is_started_again_counts_from_where_the_run_is(tmp_path: Path, clock: int) -> None:
    whole, rest = Trained(tmp_path, Run()), Trained(tmp_path, Run(done=clock))

    assert rest.seen.batches == whole.seen.batches[clock:]
    assert rest.seen.epochs == whole.seen.epochs[clock // STEPS :]


def test_a_worker_that_is_started_again_after_the_end_trains_nothing(tmp_path: Path) -> None:
    done = Trained(tmp_path, Run(done=3 * STEPS))

    assert not done.seen.batches


# schedulers
def cosine(optimizer: Any, net: Any) -> Any:
    return lr_scheduler.CosineAnnealingLR(optimizer, net.trainer.max_epochs)


def one_cycle(optimizer: Any, net: Any) -> Any:
    return lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=int(net.trainer.estimated_stepping_batches))


@pytest.mark.parametrize(("schedule", "interval"), [(cosine, "epoch"), (one_cycle, "step")])
@pytest.mark.parametrize("clock", [STEPS, STEPS + 2, 2 * STEPS + 4])
def test_the_schedulers_of_a_worker_that_is_started_again_go_on(
    tmp_path: Path, schedule: Any, interval: str, clock: int
) -> None:
    whole = Trained(tmp_path, Run(), Net(schedule, interval))
    rest = Trained(tmp_path, Run(done=clock), Net(schedule, interval))

    assert len({*whole.seen.rates}) > 2
    assert rest.seen.rates == pytest.approx(whole.seen.rates[clock:])


def test_a_schedule_that_is_at_its_end_stays_there_while_others_finish(tmp_path: Path) -> None:
    done = Trained(tmp_path, Run(more=4), Net(one_cycle, "step"))

    assert done.run.position == 3 * STEPS + 4
    assert done.seen.rates[-4:] == [done.seen.rates[3 * STEPS]] * 4


def test_the_servers_are_told_the_rates_of_a_schedule_by_scores(tmp_path: Path) -> None:
    def plateau(optimizer: Any, _net: Any) -> Any:
        return lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)

    done = Trained(tmp_path, Run(), Net(plateau))

    assert done.run.told[0] == (True, ())
    assert done.run.told[-1] == (True, (0.5,))


def test_the_monitor_of_rates_writes_them_beside_the_steps(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    Trained(tmp_path, Run(), Net(cosine), LearningRateMonitor(), logger=logger, log_every_n_steps=1)

    header, *rows = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("lr-SGD")
    found = [float(value) for row in rows if (value := row.split(",")[column])]
    assert found == pytest.approx([0.05 * (1 + math.cos(math.pi * epoch / 3)) for epoch in range(3)])


# callbacks
@pytest.mark.parametrize(("rank", "epochs", "why"), [(0, 2, "the Trainer of worker 0 has stopped"), (1, 9, None)])
def test_early_stopping_of_worker_0_ends_the_run_and_another_one_leaves_it_to_that(
    tmp_path: Path, rank: int, epochs: int, why: str | None
) -> None:
    rule = EarlyStopping("loss", mode="max", patience=1)
    done = Trained(tmp_path, Run(rank=rank, workers=rank + 1), None, rule, max_epochs=9)

    assert done.run.stopped == why
    assert done.seen.epochs == [*range(epochs)]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("more", "options", "first", "other"),
    [
        (0, {"max_time": {"microseconds": 1}}, 1, 3 * STEPS),
        (2, {"max_epochs": -1, "max_steps": 7}, 7, 2 * STEPS + 2),
    ],
    ids=["time that is over", "most steps"],
)
def test_a_limit_ends_the_run_by_worker_0(
    tmp_path: Path, rank: int, more: int, options: dict[str, Any], first: int, other: int
) -> None:
    done = Trained(tmp_path, Run(rank=rank, workers=2, more=more), **options)

    assert done.run.position == (other if rank else first)
    assert bool(done.run.stopped) == (rank == 0)


def test_checkpoints_are_kept_by_score_and_scored_after_the_fit(tmp_path: Path) -> None:
    best = ModelCheckpoint(tmp_path, monitor="loss", filename="{epoch}", save_last=True)
    done = Trained(tmp_path, Run(more=1), None, best, enable_checkpointing=True)
    loader = DataLoader(data(), batch_size=ROWS)

    ((validated,), (tested,)) = (
        done.trainer.validate(dataloaders=loader, ckpt_path=None, model=done.net, verbose=False),
        done.trainer.test(dataloaders=loader, ckpt_path="best", verbose=False),
    )

    assert {path.name for path in tmp_path.glob("*.ckpt")} == {"epoch=2.ckpt", "last.ckpt"}
    assert validated["loss"] == pytest.approx(tested["loss"])
    assert torch.load(tmp_path / "last.ckpt", weights_only=False)["global_step"] == 3 * STEPS + 1


def test_a_checkpoint_that_only_worker_0_has_is_told(tmp_path: Path) -> None:
    best = ModelCheckpoint(tmp_path, monitor="loss")
    done = Trained(tmp_path, Run(rank=1, workers=2), None, best, enable_checkpointing=True)

    with pytest.raises(ConfigError, match=r"Worker 1 has no checkpoint .*is_global_zero"):
        done.trainer.test(dataloaders=DataLoader(data(), batch_size=ROWS), ckpt_path="best", verbose=False)


# steps
def test_manual_optimisation_steps_once_for_each_mini_batch(tmp_path: Path) -> None:
    done = Trained(tmp_path, Run(more=1), Net(manual=True))

    assert done.run.position == done.trainer.global_step == 3 * STEPS + 1
    assert done.seen.epochs == [0, 1, 2]


def test_each_of_several_optimizers_steps_once_for_each_mini_batch(tmp_path: Path) -> None:
    done = Trained(tmp_path, Run(more=None), Two())

    assert done.run.position == 3 * STEPS
    assert done.trainer.global_step == done.run.steps_made == 2 * 3 * STEPS
    assert done.run.has_finished
    assert done.loss < 1


def test_accumulated_mini_batches_are_one_step(tmp_path: Path) -> None:
    done = Trained(tmp_path, Run(), accumulate_grad_batches=2, validate=False)

    assert done.run.position == done.trainer.global_step == 9  # of 16 rows
    assert len(done.seen.batches) == 18


@pytest.mark.parametrize(
    ("policy", "algorithm", "by_servers"), [("ssp", "norm", False), ("bsp", "value", False), ("bsp", "norm", True)]
)
def test_a_gradient_is_clipped_here_or_in_lock_step_by_the_servers(
    tmp_path: Path, policy: str, algorithm: str, by_servers: bool
) -> None:
    norms: list[float] = []
    run = Run(policy=policy)
    step = run.step

    def measured(*told: Any) -> None:
        norms.append(float(run.described[0][0].param_groups[0]["params"][0].grad.norm()))
        step(*told)

    run.step = measured  # type: ignore[method-assign]
    Trained(tmp_path, run, gradient_clip_val=0.01, gradient_clip_algorithm=algorithm)

    assert run.clip_norm == (0.01 if by_servers else None)
    assert (max(norms) <= 0.0174) is not by_servers


def test_bf16_mixed_trains_as_float32_does(tmp_path: Path) -> None:
    plain = Trained(tmp_path, Run(), gradient_clip_val=1.0)
    done = Trained(tmp_path, Run(), precision="bf16-mixed", gradient_clip_val=1.0)

    assert done.loss == pytest.approx(plain.loss, rel=0.1)
    assert all(parameter.dtype == torch.float32 for parameter in done.net.parameters())


def test_16_mixed_unscales_clips_and_tells_the_servers_what_is_not_finite(tmp_path: Path) -> None:
    precision = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=128.0))
    net = Net()
    run = Run()
    net.on_train_batch_start = lambda *_: setattr(net, "factor", math.inf if run.position == 3 else 1.0)

    done = Trained(tmp_path, run, net, plugins=[precision], gradient_clip_val=1.0)

    assert [number for number, (finite, _) in enumerate(run.told) if not finite] == [3]
    assert run.position == 3 * STEPS
    plain = Trained(tmp_path, Run(), gradient_clip_val=1.0)
    assert done.loss == pytest.approx(plain.loss, rel=0.3)


# refused
def test_a_module_without_an_optimizer_is_refused(tmp_path: Path) -> None:
    net = Net()
    net.configure_optimizers = lambda: None

    with pytest.raises(ConfigError, match="configure_optimizers of Net gives no optimizer"):
        Trained(tmp_path, Run(), net)


@pytest.mark.parametrize(
    ("option", "number", "told"),
    [
        ("limit_train_batches", 2, r"Trainer\(limit_train_batches=2\) takes only a part of each epoch"),
        ("overfit_batches", 2, r"Trainer\(overfit_batches=2\) takes only a part of each epoch"),
        ("max_epochs", -1, "needs the length of the run"),
    ],
)
def test_part_epochs_and_runs_without_a_length_are_refused(tmp_path: Path, option: str, number: int, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Trained(tmp_path, Run(), **{option: number})
