"""Calls the chief for workers and the evaluator, and repeats each call until it is answered."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from paceline.core.chief.leases import Lease
from paceline.core.chief.phases import RunPhase
from paceline.core.errors import Fenced, PacelineError, PoolFull, ServersGone, Stopped, TryAgain
from paceline.rpc.agreed_settings import joining_settings
from paceline.rpc.channel import call, open_channel, waiting_call
from paceline.rpc.conversions import lease_value
from paceline.rpc.enums import number_of, phase_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.retries import retried
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.status_and_metrics import State

T = TypeVar("T")
_SAY_EVERY = 10.0
_LOOK = 0.2
"""Time between two checks for a stop signal (seconds)."""
_GOODBYE = 0.75
"""Shortest time for a goodbye, also where a worker with a stop signal has none left (seconds)."""
_FINISH_EVERY = 0.5
"""Time between two checks whether the run is finished (seconds)."""
OVER = (RunPhase.STOPPING, RunPhase.SCORING, RunPhase.FINISHED)
"""Phases in which no worker can join any more."""


class ChiefClient:
    """The run service of one run. Thread-safe."""

    def __init__(self, around: Surroundings, peer: str = "") -> None:
        """`peer`: the address of this worker's local model; empty if it has none."""
        self._address = around.addresses[0]
        self._stub = RunServiceStub(open_channel(self._address, around.credentials))
        self._settings = joining_settings(around.config)
        self._epochs = around.config.epochs
        self._number = 0
        """Of this evaluator, once the chief has told it."""
        self._worker = around.name
        self._peer = peer
        self._host = around.host
        self._patience = around.patience
        self._outages = around.outages
        self.outage = around.outages.watch(f"the chief at {self._address}")
        self._stop = around.stop
        self.parting = around.parting
        self._say = around.say

    @property
    def is_told(self) -> bool:
        """Whether this process got a stop signal."""
        return self._stop.is_set()

    def join(
        self,
        was_fenced: bool,
        examples: int,
        steps: int,
        fingerprint: str,
        shards: int,
        frozen: tuple[float, float] = (0.0, 0.0),
        text_hash: int = 0,
    ) -> pb.JoinReply | None:
        """Enters the run; waits while the pool is full. None when the run is over. `frozen`, `text_hash`: as in JoinRequest."""
        request = pb.JoinRequest(
            worker=self._worker,
            was_fenced=was_fenced,
            examples=examples,
            steps=steps,
            fingerprint=fingerprint,
            shards=shards,
            settings=self._settings,
            address=self._peer,
            protocol=PROTOCOL,
            host=self._host,
            frozen_norm=frozen[0],
            frozen_product=frozen[1],
            text_hash=text_hash,
        )
        said = -_SAY_EVERY
        while True:
            try:
                reply = self._retried("Join", lambda: call(self._stub.Join, request, 10.0))
                return reply if reply.incarnation else None
            except PoolFull as error:
                if time.monotonic() - said >= _SAY_EVERY:
                    said = time.monotonic()
                    self._say("waiting for a seat", why=str(error))
                self._pause(1.0)

    def seat(self, incarnation: int, clock: int) -> pb.SeatReply | None:
        """Waits until this worker counts. None when the run is over before that."""
        request = pb.SeatRequest(worker=self._worker, incarnation=incarnation, clock=clock)
        said = time.monotonic()
        while True:
            reply: pb.SeatReply = self._retried("Seat", lambda: call(self._stub.Seat, request, 15.0))
            if reply.seated:
                return reply
            if phase_of(reply) in OVER:
                return None
            if time.monotonic() - said >= _SAY_EVERY:
                said = time.monotonic()
                self._say("waiting for the start", missing=list(reply.missing))
            self._pause(0.05)

    def lease(self, incarnation: int, after: int, width: int, most: int, rows: int = 0) -> Lease:
        """The lease that has the clock after this one, of `width` mini-batches, `most` in all; `rows`: as in
        LeaseBatchesRequest. Fenced without a seat."""
        request = pb.LeaseBatchesRequest(
            worker=self._worker, incarnation=incarnation, after=after, width=width, most=most, rows=rows
        )
        return lease_value(self._retried("LeaseBatches", lambda: call(self._stub.LeaseBatches, request, 10.0)))

    def give_back(self, incarnation: int, after: int, width: int, last: int) -> None:
        """This worker leaves after its next clock, of which it computes `last` mini-batches. Raises an error of the call where
        the chief does not answer in time."""
        request = pb.LeaseBatchesRequest(
            worker=self._worker, incarnation=incarnation, after=after, width=width, last=last
        )
        call(self._stub.LeaseBatches, request, min(5.0, max(_GOODBYE, self.parting.left)))

    def beat(
        self,
        incarnation: int,
        clock: int,
        phase: str,
        seconds: float,
        figures: dict[str, float],
        reached: int = 0,
        large_inputs: str = "",
    ) -> pb.HeartbeatReply:
        """One heartbeat, not repeated; it tells what this process can't reach."""
        self._outages.look()
        request = pb.HeartbeatRequest(
            worker=self._worker,
            incarnation=incarnation,
            clock=clock,
            phase=number_of(pb.WorkerPhase.DESCRIPTOR, phase),
            phase_seconds=seconds,
            figures=figures,
            reached=reached,
            stopping=self.is_told,
            outage=str(self._outages),
            large_inputs=large_inputs,
        )
        reply: pb.HeartbeatReply = call(self._stub.Heartbeat, request, 5.0)
        if reply.HasField("alone"):
            self.parting.hear(reply.alone)
        return reply

    def validated(self, incarnation: int, epoch: int, loss: float, examples: int) -> None:
        """Reports this worker's loss on its held-out examples at the end of an epoch."""
        request = pb.ValidatedRequest(
            worker=self._worker, incarnation=incarnation, epoch=epoch, loss=loss, examples=examples
        )
        self._retried("Validated", lambda: call(self._stub.Validated, request, 10.0))

    def leave(self, incarnation: int, finished: bool) -> None:
        """Announces that this worker leaves; an unreachable chief learns it from the lapsed lease."""
        request = pb.LeaveRequest(
            worker=self._worker, incarnation=incarnation, finished=finished, stopping=self.is_told
        )
        patience, longest = min(self._patience, 5.0), min(5.0, max(_GOODBYE, self.parting.left))
        try:
            retried(lambda: call(self._stub.Leave, request, longest), patience, self.outage, self._stop, "Leave")
        except PacelineError as error:
            self._say("could not say goodbye; the lease will end", why=str(error))

    def go_back(self, incarnation: int, terms: Sequence[int]) -> bool:
        """Returns once all servers are back at their newest common snapshot; False if there is none. `terms`: those that the
        servers had when this worker looked."""
        request = pb.GoBackRequest(worker=self._worker, incarnation=incarnation, terms=terms)
        while True:
            reply: pb.GoBackReply = self._retried(
                "GoBack", lambda: waiting_call(self._stub.GoBack, request, 30.0, self._stop)
            )
            if reply.done or reply.impossible:
                return reply.done
            self._pause(0.05)

    def evaluate(
        self,
        score: pb.Score | None,
        baseline: Mapping[str, float] | None = None,
        *,
        is_worker: bool = False,
        midway: bool = False,
        epoch: int = 0,
    ) -> pb.EvaluateReply:
        """Reports a score, if any, and what scores are compared with; learns what to score next. `midway`: between two epochs
        of a worker's script, at once; `epoch`: how many of these have ended."""
        request = pb.EvaluateRequest(
            score=score,
            baseline=baseline,
            protocol=PROTOCOL,
            epochs=self._epochs,
            number=self._number,
            worker=self._worker if is_worker else "",
            midway=midway,
            epoch=epoch,
        )
        reply: pb.EvaluateReply = self._retried(
            "Evaluate", lambda: waiting_call(self._stub.Evaluate, request, 30.0, self._stop)
        )
        self._number = reply.number
        return reply

    def stop(self, reason: str) -> None:
        """Ends the training early; the run is then scored."""
        self._retried("Stop", lambda: call(self._stub.Stop, pb.StopRequest(reason=reason), 10.0))

    def await_finish(self, incarnation: int, state: Callable[[], State], patience: float) -> None:
        """Beats on after this worker has left, until the run is finished or the chief has not answered for `patience`
        seconds."""
        patience = min(self._patience, patience)
        try:
            while True:
                reply = retried(
                    lambda: self.beat(incarnation, *state()), patience, self.outage, self._stop, "Heartbeat"
                )
                if phase_of(reply) == RunPhase.FINISHED:
                    return
                self._pause(_FINISH_EVERY)
        except (ServersGone, Fenced) as error:
            self._say("can't learn whether the run is finished", why=str(error))

    def _retried(self, what: str, attempt: Callable[[], T]) -> T:
        return retried(attempt, self._patience, self.outage, self._stop, what)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped("The process got a signal to stop.")


class Heartbeat:
    """Sends heartbeats from its own thread: keeps the lease, notices restarted servers and a lost seat."""

    def __init__(
        self,
        chief: ChiefClient,
        incarnation: int,
        *,
        every: float,
        state: Callable[[], State],
        on_reply: Callable[[pb.HeartbeatReply], None],
        fenced: threading.Event,
        say: Callable[..., None],
        alarm: threading.Event,
    ) -> None:
        """`every`: seconds between two beats; `state`: what each tells; `fenced`: set where the seat is lost; `alarm`: set by
        others where there is something to tell before it is time."""
        self._chief = chief
        self._incarnation = incarnation
        self._every = every
        self._state = state
        self._on_reply = on_reply
        self._fenced = fenced
        self._say = say
        self._alarm = alarm
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sends a last heartbeat with the final figures."""
        self._stopping.set()
        self._alarm.set()
        self._thread.join(timeout=min(10.0, max(_LOOK, self._chief.parting.left)))

    def _work(self) -> None:
        while True:
            last = self._stopping.is_set()
            began = time.monotonic()
            try:
                reply = self._chief.beat(self._incarnation, *self._state())
                self._chief.outage.works()
                self._on_reply(reply)
            except Fenced as error:
                if not last:
                    self._say("this worker's seat is lost", why=str(error))
                    self._fenced.set()
                return
            except TryAgain as error:
                self._chief.outage.failed("Heartbeat", str(error), time.monotonic() - began)
            except PacelineError as error:
                self._say("heartbeat failed", why=str(error))
            if last:
                return
            self._rest()

    def _rest(self) -> None:
        """Waits until the next heartbeat is due; a stop signal is reported to the chief at once, until it has answered."""
        end = time.monotonic() + self._every
        was_told = self._chief.is_told
        while (left := end - time.monotonic()) > 0 and not self._alarm.wait(min(_LOOK, left)):
            if (self._chief.is_told and not was_told) or self._chief.parting.awaits_answer():
                break
        self._alarm.clear()
