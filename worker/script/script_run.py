"""A script of the user's own as one worker of a run: what `paceline.wrap`, `loader`, `epochs` and the like speak to.

Nothing is joined before all is said: model and optimizer, training data, and how long. The first `next()` of `epochs` or of
the loader joins; from then on `optimizer.step()` is the exchange with the servers."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from paceline.core.chief.workers import ENDED_EARLY
from paceline.core.errors import ConfigError, PacelineError, TryAgain
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.core.values import AS_SET, Manner
from paceline.data.dataset import Rows
from paceline.rpc.channel import call, open_channel
from paceline.rpc.process import make_log
from paceline.settings.load_settings import load
from paceline.v1.run_service_pb2 import StatusRequest
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from paceline.worker.command_line import ToldLaunched
from paceline.worker.module_worker import Listen
from paceline.worker.script.asked_scores import AskedScores
from paceline.worker.script.course import OwnBatches, PresentEpoch, TrainingRows, beyond_own
from paceline.worker.script.describe import describe
from paceline.worker.script.guard import refuse_import
from paceline.worker.script.loop_thread import FINAL, Stopping
from paceline.worker.script.mini_batches import MiniBatches
from paceline.worker.script.schedulers import Schedulers
from paceline.worker.script.script_replica import Answer, ScriptReplica
from paceline.worker.script.script_scorer import ScriptScorer
from paceline.worker.script.script_worker import ScriptWorker
from paceline.worker.script.tell import tell
from paceline.worker.script.training_plan import TrainingPlan
from paceline.worker.startup.run_process import check_addresses, run_process
from paceline.worker.startup.start import Start
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.way import Streams, Way

_PATIENCE = 5.0
"""Longest time in which the chief answers whether this worker has joined (seconds)."""


class ScriptRun:
    """This process's one run. Not thread-safe, but for what the loop's thread calls while the script waits."""

    is_alone = False

    def __init__(self, told: ToldLaunched) -> None:
        self.told = told
        self._credentials = told.credentials()
        self.settings: Config = told.load()
        """Before the join what is known without the script; then all."""
        self.rank = self.settings.workers if told.evaluates else told.rank
        self.workers = self.settings.workers
        self.seed = self.settings.seed
        """What all processes begin with."""
        self._takes_seed = "seed" not in self.settings.model_fields_set
        """Whether the seed that the script gives torch before its loop is the run's; the user's own wins."""
        self.name = told.name
        self.accumulate = 1
        """Mini-batches of the script for each step."""
        self.say = make_log(told.name)
        self._plan = TrainingPlan()
        self._has_joined = False
        self._batches = MiniBatches()
        self._epoch = -1
        """The one that the script is in, from 0."""
        self.steps_made = 0
        """Steps of this process."""
        self.steps_per_epoch = 0
        self.is_over = False
        self._is_final_due = False
        """Whether the loop waits until this process has scored the final version."""
        self.models: list[nn.Module] = []
        self.described: tuple[list[Optimizer], dict[str, Any]] = [], {}
        """The script's optimizers, and these in the run's words."""
        self.schedulers: list[Schedulers] = []
        """Of each optimizer; none where the script's loop keeps them where the run is."""
        self._worker: ScriptWorker | None = None

    @property
    def steps_itself(self) -> bool:
        """Whether the script's optimizers step the model, and not the servers."""
        return self._plan.replica is not None and self._plan.replica.steps_itself

    def look(self) -> None:
        """Before a step: see ScriptReplica."""
        if self._has_joined and not self.is_over and self._plan.replica is not None:
            self._plan.replica.look()

    @property
    def large_inputs(self) -> str:
        """The line on columns of large numbers, once a mini-batch is computed; paceline.train shows it before the start."""
        return "" if self._worker is None or self.told.objects is not None else self._worker.large_inputs

    def notes(self, optimizer: int) -> Path | None:
        """The file with what outlives this process of the schedulers of an optimizer, by its number from 1."""
        number = "" if optimizer == 1 else f"-{optimizer}"
        return self.told.residuals / f"{self.name}.schedulers{number}.json" if self.told.residuals else None

    @property
    def position(self) -> int:
        """Mini-batches of this worker that are done, those of earlier starts, too."""
        return self._batches.counts.done

    @property
    def script(self) -> str:
        """The name of its file."""
        return Path(self.settings.task).name

    # what the script says
    def train(
        self, replica: ScriptReplica, optimizer: dict[str, Any], accumulate: int, clip_norm: float | None = None
    ) -> None:
        """What is trained, and by which settings of the optimizer; each step takes `accumulate` mini-batches of the script, and
        its gradient has this norm at most."""
        self._refuse_late("paceline.wrap")
        if self._plan.replica is not None and (accumulate, clip_norm) != (self.accumulate, self._plan.clip_norm):
            raise ConfigError(
                "paceline.wrap got another accumulate or clip_norm for a second optimizer. Give the same to both."
            )
        if accumulate < 1:
            raise ConfigError(
                f"paceline.wrap: accumulate is {accumulate}; expected 1 or more mini-batches for each step."
            )
        self._plan.replica = replica
        self._plan.optimizer = optimizer
        self._plan.clip_norm = clip_norm
        self.accumulate = accumulate
        self._batches.present = PresentEpoch(accumulate)

    def bring(self, data: TrainingRows) -> None:
        """What is trained on. ConfigError: the second one."""
        self._refuse_late("paceline.loader")
        if self._plan.data is not None:
            raise ConfigError(
                "The script has a second paceline.loader or sampler, but a run trains on one data set. Use "
                "torch's DataLoader for validation data."
            )
        self._plan.data = data

    def evaluate(self, asked: AskedScores) -> None:
        """What scores the model, and what its scores decide."""
        self._refuse_late("paceline.evaluate")
        self._plan.asked = asked

    def epochs(self, count: int) -> Iterator[int]:
        """0, 1, ... below `count`; after a restart from where the run is. The last one lasts until the run is over."""
        self._check_length("paceline.epochs", count)
        self._plan.length = {"epochs": count}
        return self._epochs(count)

    def steps(self, count: int) -> Iterator[int]:
        """0, 1, ... below `count`, in each worker, for scripts that draw their own mini-batches. A step is the run's epoch."""
        self._check_length("paceline.steps", count)
        if self._plan.data is not None:
            raise ConfigError(
                "paceline.steps is for scripts without paceline.loader. With a loader use paceline.epochs."
            )
        self._plan.data = OwnBatches(self.workers)
        self._plan.length = {"epochs": count}
        return self._steps(count)

    def _check_length(self, what: str, count: int) -> None:
        self._refuse_late(what)
        if self._plan.length:
            raise ConfigError(f"{what} was called a second time, but a run has only one length. Call it once.")
        if not isinstance(count, int) or count < 1:
            raise ConfigError(f"{what}({count!r}): expected a whole number of 1 or more.")

    def _refuse_late(self, what: str) -> None:
        if self._has_joined:
            raise ConfigError(f"{what} was called after training had begun. Call it before the first epoch.")

    def _epochs(self, count: int) -> Iterator[int]:
        if self.told.evaluates:
            self._score()
        if self._plan.data is not None:
            self.join()
        bodies = self._pass
        if bodies >= count and self._ends_by_itself:
            self.finish()  # an earlier process has had all of its epochs
        while not self.is_over:
            before = self.steps_made
            self._epoch = min(count - 1, max(self._epoch + 1, self._pass))
            yield self._epoch
            if not self._has_joined:
                self._complete()
            if not self.is_over and self.steps_made == before:
                if self._batches.is_short:  # others have done what was to be done
                    self.finish()
                    break
                raise ConfigError(
                    "An epoch had no optimizer.step() of the optimizer that paceline.wrap returned. Call it once "
                    f"for each {self._batches.present.mini_batches}."
                )
            self._end_body()
            self._leave_out()
            bodies += 1
            self._score_midway(bodies)
            if bodies == count:
                self.finish()
        self._take_final()

    def _steps(self, count: int) -> Iterator[int]:
        if self.told.evaluates:
            self._score()
        self.join()
        while not self.is_over and self.position < count:
            before = self.steps_made
            self._batches.counts.draw(self.position + 1)
            yield self.position
            if not self.is_over and self.steps_made == before:
                raise ConfigError(
                    "A step of paceline.steps had no optimizer.step(). Call it at least once in each step."
                )
            self._end_body()
            self._score_midway(self.position)
        self.finish()

    def _end_body(self) -> None:
        """The script has done all of its epoch or step, and with an epoch its scheduler has had the score."""
        self._batches.counts.end()
        for schedulers in self.schedulers:
            schedulers.note(self.position)

    @property
    def _pass(self) -> int:
        """The pass over this worker's data that the next mini-batch belongs to, from 0."""
        return self.position // self.steps_per_epoch if self.steps_per_epoch else 0

    # joining
    def join(self) -> None:
        """Joins the run, if that has not been done; returns when the model has the run's weights, or the run is over."""
        if self._has_joined:
            return
        replica, data, config = self._complete()
        shards = data.dealt(config)
        replica.begins()
        self._has_joined = True
        self.settings = config
        start = Start(self.told, config, self._credentials)
        replica.thread.start(lambda stopping: self._work(start, replica, shards, stopping))
        self._wait()
        self._take_final()
        if self.is_over and not (self._worker and self._worker.has_model):
            tell("the run was over before this worker could join it. Its script ends here: its model is untrained.")
            sys.exit(0)
        for schedulers in () if self.is_over else self.schedulers:
            schedulers.go_on(self.position)

    def _complete(self) -> tuple[ScriptReplica, TrainingRows, Config]:
        """What is needed to join, and the whole settings. ConfigError names what the script has not said."""
        refuse_import(self.script)
        if lacking := self._plan.lacking():
            raise ConfigError(f"{self.script} trains, but {lacking}")
        assert self._plan.replica is not None
        assert self._plan.data is not None
        config = self.so_far()
        if config.stopping is not None and self._plan.asked is None:
            raise ConfigError(
                f"stopping looks at scores, and {self.script} has none. Call paceline.evaluate(function), or leave it out."
            )
        return self._plan.replica, self._plan.data, config

    def so_far(self) -> Config:
        """The run's settings; before the join with what the script has said so far."""
        return (
            self.settings
            if self._has_joined
            else load(self.told.config, self.told.overrides(), self._script_settings())
        )

    def _script_settings(self) -> dict[str, Any]:
        """What the script asks for, below the run's file and flags."""
        worker_scores = bool(self.told.models) and not self.told.evaluates
        asked = self._plan.settings(build_policy(self.settings.policy), self.accumulate, worker_scores)
        if self._takes_seed and (seed := torch.initial_seed()) != self.seed:
            asked["seed"] = seed
        return asked

    @property
    def can_join(self) -> bool:
        """Whether the script has said what it trains and how long; a loader only gives a look at the data before."""
        return self._plan.replica is not None and bool(self._plan.length) and not self.told.evaluates

    def _work(self, start: Start[ToldLaunched], replica: ScriptReplica, data: Any, stopping: Stopping) -> int:
        """In the loop's thread: a whole worker's life; its exit code."""
        told = self.told

        def work(around: Any, shards: Any) -> None:
            self._describe(around)
            listen = Listen(told.peer_host, told.peer_port, told.bind)
            scorer = self._scorer if around.config.scored_by == "worker" and told.models else None
            self._worker = ScriptWorker(
                around,
                shards,
                replica,
                listen=listen,
                on_seat=self._seated,
                ends_by_itself=lambda: self._ends_by_itself,
                epochs=self._plan.length["epochs"],
                scorer=scorer,
            )
            self._worker.run()

        return run_process(start, work, stopping, shards=data)

    def epoch_of(self, position: int) -> int:
        """The script's epoch, from 0, after that number of steps of this worker."""
        return min(position // self.steps_per_epoch, self.settings.epochs - 1)

    def _describe(self, around: Any) -> None:
        """Tells the servers what the script asks for; the evaluator too, which may be the first to come in a pod."""
        describe(
            self._script_settings(),
            self.told.name,
            around.addresses,
            around.credentials,
            around.config.deadline,
            around.stop,
            around.say,
        )

    def _seated(self, position: int, streams: Streams, way: Way) -> MiniBatches:
        """In the loop's thread, while the script waits."""
        self._batches.sit(position, streams, way)
        self.steps_per_epoch = streams.steps
        return self._batches

    def _score(self) -> None:
        """This process is the evaluator: scores until the run is finished, and ends."""
        _, data, config = self._complete()
        self.settings = config
        start = Start(self.told, config, self._credentials)

        def work(around: Any, shards: Any) -> None:
            self._describe(around)
            self._scorer(around).run()

        code = run_process(start, work, shards=data)
        self.is_over = True
        sys.exit(code)

    def _scorer(self, around: Surroundings) -> ScriptScorer:
        assert self._plan.replica is not None
        return ScriptScorer(around, self._plan.replica, self.told.models, self._plan.asked, self.told.final_threads)

    def _score_midway(self, epoch: int) -> None:
        """After this many epochs of the script (steps, with `paceline.steps`), while the loop waits for a gradient; the last
        one has the final score."""
        worker, is_last = self._worker, epoch >= self._plan.length["epochs"]
        if self._plan.asked is None or self.is_over or is_last or epoch % self._plan.asked.every:
            return
        assert worker is not None
        if worker.scores:
            with worker.scoring():
                worker.scorer.midway(epoch)

    def _take_final(self) -> None:
        """When training is over, and the script's epoch, too: scores the final version where that is left to this worker."""
        if not self._is_final_due:
            return
        self._is_final_due = False
        assert self._plan.replica is not None
        assert self._worker is not None
        self._worker.scorer.run()
        self._plan.replica.thread.answer(True)
        self._wait()

    # training
    def rows(self, position: int) -> Rows:
        """The data set's rows that make this worker's mini-batch at this position, from 1."""
        rows = self._batches.rows(position)
        assert rows is not None
        return rows

    def positions(self) -> Iterator[int]:
        """Those of this epoch's mini-batches, from the next one on: to the end of the epoch, or until the run is over, for
        which the last one waits where other workers' examples count, too."""
        self.join()
        is_last, batches = self._epoch == self._plan.length["epochs"] - 1, self._batches

        def ends(position: int) -> bool:
            return not is_last or (self._ends_by_itself and not batches.is_left(position))

        yield from batches.epoch(ends, lambda: self.is_over)

    @property
    def _ends_by_itself(self) -> bool:
        """Whether this worker's part ends with its epochs; see the same of the chief's Run."""
        in_force = self._worker.in_force if self._worker else None
        return self.settings.budget == "per_worker" or (in_force is not None and in_force.may_change)

    def drew(self, position: int, seconds: float = 0.0) -> None:
        """The script gets the mini-batch at this position, or a part of it, which took this long to load (seconds)."""
        self._batches.drew(position, seconds)

    def drew_all(self) -> None:
        """The script has had all mini-batches of its epoch."""
        self._batches.present.drew_all()

    def _leave_out(self) -> None:
        """Counts the missing steps as left out if an epoch's mini-batches were all drawn, so that epochs stay whole."""
        missing = 0 if self.is_over else self._batches.present.missing(self._batches.counts.skipped)
        if missing:
            tell(f"optimizer.step() was not called for {missing} of an epoch's steps; they are left out.")
        for _ in range(missing):
            self.step(finite=False)

    def step(
        self,
        loss: float | None = None,
        finite: bool = True,
        manner: Manner = AS_SET,
        searches: bool = False,
        optimizer: Optimizer | None = None,
    ) -> None:
        """Pushes the gradients in `.grad`, and returns when the model can go on. `manner`: what schedulers make of what is
        described; `searches`: as in Step; `optimizer`: whose step it is. Does nothing after the run's end, for a loader has
        mini-batches in store."""
        self.join()
        if self.is_over:
            return
        assert self._plan.replica is not None
        self.steps_made += 1
        self._batches.count_step(finite)
        self._check_ahead()
        on = self._batches.stepped()
        answer = Answer(on.examples, loss, finite, manner, on.loaded, searches, on.position, optimizer)
        self._plan.replica.thread.answer(answer)
        self._wait()

    def _check_ahead(self) -> None:
        """ConfigError where the script steps several times for a mini-batch and nobody knows for which."""
        batches, is_own = self._batches, self._ends_by_itself
        if is_own and not batches.counts.drawn and self.position > batches.present.end:
            raise ConfigError(
                "optimizer.step() was called more often than the epoch has mini-batches. That is possible with "
                "paceline.loader(dataset, batch_size=..., num_workers=...); your DataLoader with a paceline.sampler and "
                "num_workers reads ahead, so that Paceline can't know which mini-batch a step is for."
            )

    def _wait(self) -> None:
        """Until the loop wants a gradient, or the run is over."""
        assert self._plan.replica is not None
        asked = self._plan.replica.thread.wait()
        self.is_over, self._is_final_due = asked in (None, FINAL), asked == FINAL

    def stop(self, reason: str) -> None:
        """Ends the run early, for all workers; returns when it is over. This worker's steps until then are left out."""
        self.join()
        if not self.is_over:
            assert self._worker is not None
            self._worker.chief.stop(reason)
        while not self.is_over:
            self.step(finite=False)

    def end(self) -> None:
        """The script has ended, and well. ConfigError where it has not come to its loop: the others would wait for it."""
        if not self._has_joined and not self.is_over and not self._trains_elsewhere():
            raise ConfigError(
                f"{self.script} ended in {self.name} without training, and the run waits for each worker. Wrap the optimizer "
                "(paceline.wrap), take the training data from paceline.loader, and train in `for epoch in "
                "paceline.epochs(10):`. What one worker alone should do stands behind `if paceline.rank() == 0:`, without "
                "an exit. A task file, with data() and model(), is trained by `paceline run`."
            )
        self.finish()

    def _trains_elsewhere(self) -> bool:
        """Whether a process that the script has started has joined in its place, as far as the chief can still say."""
        address = check_addresses(self.told.servers, self.settings)[0]
        with closing(open_channel(address, self._credentials)) as channel:
            try:
                status = call(RunServiceStub(channel).Status, StatusRequest(), _PATIENCE)
            except TryAgain:  # it has gone, with the run
                return True
            except PacelineError:  # it waits for a script that describes the run
                return False
        return any(each.worker == self.name for each in status.workers)

    def finish(self) -> None:
        """The script has left its loop before the run's end: this worker's share is done."""
        self._take_final()
        if not self._has_joined or self.is_over:
            return
        assert self._plan.replica is not None
        of = self.steps_per_epoch * self._plan.length["epochs"]
        if self.position < of and not self._batches.is_short:
            tell(f"{self.script} has ended after {self.position:,} of {of:,} steps; {self.told.name} has finished.")
            if self._worker is not None:
                self._worker.progress.figure(**{ENDED_EARLY: 1.0})
        self._plan.replica.thread.finish()
        self._wait()
        self._take_final()

    @property
    def has_trained(self) -> bool:
        """Whether all is done that the run wants of this process, so that only the script's own lines are left."""
        return self._has_joined and self.is_over and not self._is_final_due

    @property
    def overtime(self) -> str:
        """What to say of an error in the steps that a fast worker makes beyond its own; empty where it makes none."""
        own = self.steps_per_epoch * self._plan.length.get("epochs", 0)
        if not own or self.settings.budget != "total" or self.position < own:
            return ""
        return beyond_own(self.name, self.position, own, self.settings.policy.name)

    def close(self) -> None:
        """Leaves the run that it has not finished; the others go on, or wait for its next process."""
        if self._plan.replica is not None and self._has_joined and (self._is_final_due or not self.is_over):
            self.is_over, self._is_final_due = True, False
            self._plan.replica.thread.close(is_failure=True)
