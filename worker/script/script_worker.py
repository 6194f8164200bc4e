"""A worker whose model, data and loop are a script's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paceline.core.errors import Behind, TryAgain
from paceline.core.policies.policy import build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.data.sampler import Sampler
from paceline.rpc.conversions import switch_value
from paceline.v1.run_service_pb2 import SeatReply
from paceline.worker.module_worker import Listen, Worker
from paceline.worker.script.loop_thread import Finished
from paceline.worker.script.script_replica import ScriptReplica
from paceline.worker.script.script_scorer import ScriptScorer
from paceline.worker.surroundings import Surroundings, rank_of
from paceline.worker.training.logged_values import LOGGED

OnSeat = Callable[[int, Sampler, list[Any]], None]
"""Called with the mini-batches that are done, where the next ones come from, and the shards that these are of."""


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
        models: Path | None,
    ) -> None:
        super().__init__(around, shards, replica, listen=listen)
        self._on_seat = on_seat
        self._models = models
        self._around = around
        self._place = -1
        self.has_model = False
        """Whether the script's model has had weights of the run."""
        self.progress.logged = LOGGED

    def train(self, clock: int, place: int, seat: SeatReply, mine: Sequence[int], sampler: Sampler) -> None:
        self._place = place
        self.has_model = True
        policy = PolicyInForce(build_policy(self.config.policy), switch_value(seat.switch)).policy
        assert isinstance(self.replica, ScriptReplica)
        workers, is_alone = self.config.workers, policy.served and not policy.has_sum
        self.replica.count_statistics(place, workers if is_alone else policy.step_pushes(workers))
        self._on_seat(clock * policy.most_steps, sampler, [self._shards.shard(number) for number in mine])
        try:
            super().train(clock, place, seat, mine, sampler)
        except Finished:
            if "mean" in policy.scores:
                self._peer.model.finish(self.replica.local)

    def _goes_back(self, error: Behind) -> None:
        raise TryAgain(
            f"{error} A script can't draw its earlier mini-batches again, so this process ends; the next one begins there. A "
            "larger checkpoint.retain avoids that."
        )

    def left(self, incarnation: int) -> None:
        """Without an evaluator, the worker at place 0 takes the final version, for its script and for the run's folder; in a
        pod, which has no such folder, an evaluator does. Local models that will be scored are served until then."""
        if self._place == 0 and self._takes_final:
            if self._peer.model.is_final:
                self._peer.model.finish(self.replica.local.copy())
            self._take_final()
        else:
            super().left(incarnation)

    def late(self) -> None:
        """Handles a start after the others have trained to the end: worker 0's final version is still wanted."""
        if rank_of(self.name) == 0 and self._takes_final:
            self._take_final()

    @property
    def _takes_final(self) -> bool:
        """Whether the final version is left to a worker."""
        return not self.config.evaluate_every and self._models is not None

    def _take_final(self) -> None:
        assert isinstance(self.replica, ScriptReplica)
        scorer = ScriptScorer(self._around, self.replica, self._models)
        scorer.run()
        self.has_model |= scorer.has_taken
