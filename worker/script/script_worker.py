"""A worker whose model, data and loop are a script's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

from paceline.core.chief.leases import NOTHING, Lease
from paceline.core.chief.workers import WorkerPhase
from paceline.core.errors import Behind, Fenced, Stopped, TryAgain
from paceline.core.policies.policy import build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.rpc.conversions import switch_value
from paceline.v1.run_service_pb2 import SeatReply
from paceline.worker.module_worker import Listen, Worker
from paceline.worker.script.frozen import sketch
from paceline.worker.script.loop_thread import FINAL
from paceline.worker.script.mini_batches import MiniBatches
from paceline.worker.script.script_batches import ScriptBatches
from paceline.worker.script.script_replica import ScriptReplica
from paceline.worker.script.script_scorer import ScriptScorer
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.logged_values import LOGGED
from paceline.worker.training.step_result import Finished
from paceline.worker.training.training_state import Batches
from paceline.worker.training.way import Ask, Streams, Way

OnSeat = Callable[[int, Streams, Way], MiniBatches]
"""Called with the mini-batches that are done, and where the next ones come from; returns the script's."""


class ScriptWorker(Worker):
    """A worker whose model, data and loop are a script's. The one at place 0 takes the final version at the end."""

    def __init__(
        self,
        around: Surroundings,
        shards: Any,
        replica: ScriptReplica,
        *,
        listen: Listen,
        on_seat: OnSeat,
        ends_by_itself: Callable[[], bool],
        epochs: int,
        scorer: Callable[[Surroundings], ScriptScorer] | None,
    ) -> None:
        """`epochs`: of the script's loop; `scorer`: makes what scores in this process; None: an evaluator does, and keeps the
        model."""
        super().__init__(around, shards, replica, listen=listen)
        self._on_seat = on_seat
        self._ends_by_itself = ends_by_itself
        self._epochs = epochs
        self._scorer = scorer
        self._around = around
        self._is_common = shards.is_common
        self._begins_at = 0
        """Mini-batches that were done when it took its seat."""
        self.has_model = False
        """Whether the script's model has had weights of the run."""
        self.progress.logged = LOGGED

    @property
    def frozen(self) -> tuple[float, float]:
        assert isinstance(self.replica, ScriptReplica)
        return sketch(self.replica.untrained)

    @property
    def text_hash(self) -> int:
        return hash("the order of a set") % (1 << 32)

    @property
    def large_inputs(self) -> str:
        """The line on columns of large numbers in its first mini-batch; empty where there are none."""
        return str(self._inputs)

    def train(self, clock: int, place: int, seat: SeatReply) -> None:
        self.has_model = True
        policy = PolicyInForce(build_policy(self.config.policy), switch_value(seat.switch)).policy
        assert isinstance(self.replica, ScriptReplica)
        self.replica.place, self.replica.workers = place, self.config.workers
        self.replica.begins_policy(policy)
        self._begins_at = clock * policy.most_steps if self.position is None else self.position
        try:
            super().train(clock, place, seat)
        except Finished:
            if "mean" in policy.scores:
                self._peer.model.finish(self.replica.local)
        self.progress.enter(WorkerPhase.FINISHED)
        self.progress.alarm.set()

    def batches(self, place: int) -> Batches:
        common = super().batches(place)
        return ScriptBatches(
            streams=common.streams,
            way=common.way,
            seed=common.seed,
            pause=common.pause,
            mini_batches=self._on_seat(self._begins_at, common.streams, common.way),
            place=place,
            ends_by_itself=self._ends_by_itself,
        )

    @property
    def _own_rows(self) -> int:
        return self._epochs * self._steps

    def _ask(self) -> Ask | None:
        """None, too, where examples come one after the other, or a sampler of the script's own draws others in each epoch."""
        ask = super()._ask() if self._is_common else None
        return None if ask is None else partial(_asked_in_any_thread, ask)

    def _goes_back(self, error: Behind) -> None:
        raise TryAgain(
            f"{error} A script can't draw its earlier mini-batches again, so this process ends; the next one begins there. A "
            "larger checkpoint.retain avoids that."
        )

    @property
    def scores(self) -> bool:
        """Whether it is this worker that scores: of all, one does."""
        return self._scorer is not None and not self.chief.evaluate(None, is_worker=True, midway=True).elsewhere

    @cached_property
    def scorer(self) -> ScriptScorer:
        """What scores here. It has connections for itself, so that only a worker that scores makes it."""
        assert self._scorer is not None
        return self._scorer(self._around)

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """In the script's thread, while the loop waits: the chief hears that this worker scores, and is not stuck."""
        before = self.progress.phase
        self.progress.enter(WorkerPhase.SCORING)
        yield
        self.progress.enter(before)

    def left(self, incarnation: int) -> None:
        """Without an evaluator, one worker takes the final version, for its script and for the run's folder; in a pod, which
        has no such folder, an evaluator does. Local models that will be scored are served until then."""
        if self.scores:
            if self._peer.model.is_final:
                self._peer.model.finish(self.replica.local.copy())
            self._take_final()
        else:
            super().left(incarnation)

    def late(self) -> None:
        """Handles a start after the others have trained to the end: worker 0's final version is still wanted."""
        if self.scores:
            self._take_final()

    def _take_final(self) -> None:
        assert isinstance(self.replica, ScriptReplica)
        self.replica.thread.ask(FINAL)
        self.has_model |= self.scorer.has_taken


def _asked_in_any_thread(ask: Ask, after: int, width: int, most: int) -> Lease:
    """In the script's thread, too: where the seat is lost, or a signal has come, nothing is left to compute, and the loop's
    thread does the rest."""
    try:
        return ask(after, width, most)
    except (Fenced, Stopped):
        return Lease(after, NOTHING, 0, 1)
