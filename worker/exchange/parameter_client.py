"""A worker's client for all servers: pushes an update and pulls the weights, slice by slice. Who only reads pulls the newest
version."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import TypeVar

from prometheus_client import CollectorRegistry

from paceline.core.errors import Behind, Fenced, PacelineError, Stopped, TryAgain
from paceline.core.fault import faults_of
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.slice.plan import SlicePlan
from paceline.core.values import AS_SET, Base, Dense, Manner, Position, Update, Vector
from paceline.rpc.choose_transport import open_transport
from paceline.rpc.lane.traffic import Traffic
from paceline.rpc.memory import retained_bytes
from paceline.rpc.retries import backoff
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.emulated_link import EmulatedLink, LinkedTransport
from paceline.worker.exchange.server_link import Link
from paceline.worker.surroundings import Surroundings

_LAST_EXCHANGE = 1.0
"""Longest time (seconds) that a worker with a stop signal still waits for the exchange under way. If all workers get one, all
slices then stop at the same round."""
_LONGEST_SETTLE = 10.0
"""Longest time that a worker waits at its end for snapshots (seconds)."""
T = TypeVar("T")
Choose = Callable[[int, pb.PullHead], Vector]
"""(server, head of its reply) -> the flat vector that its weights go to."""
_AHEAD = (0, 4, 16)
"""Versions ahead of the newest that are asked for, one try after the other, until all slices give the same one: the
newest itself where rounds are slow, or over; later ones where rounds are so quick that it has gone meanwhile."""


class ParameterClient:
    """One link for each server, used side by side. `stop` and `fenced` end a call that waits. One call at a time."""

    def __init__(
        self,
        around: Surroundings,
        plan: SlicePlan,
        on_retry: Callable[[str], None] = lambda code: None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`registry`: receives the lane's metrics, in runs that use it."""
        config, traffic, note = around.config, Traffic(), around.outages.note
        retain = retained_bytes(config.checkpoint.retain, config.codec.has_feedback)
        if registry is not None and config.transport == "lane":
            registry.register(traffic)
        transports = [
            open_transport(
                config.transport, address, around.credentials, traffic, partial(note, f"lane of server {index}")
            )
            for index, address in enumerate(around.addresses)
        ]
        self.emulated = EmulatedLink(faults_of(config.faults, around.name), around.stop.wait)
        if self.emulated:
            transports = [LinkedTransport(transport, self.emulated) for transport in transports]
        self.links = [
            Link(index, transport, around, plan, on_retry, retain * plan.lengths[index] // max(1, plan.total))
            for index, transport in enumerate(transports)
        ]
        self._stop = around.stop
        self.parting = around.parting
        self._say = around.say
        self._pull_codec = config.codec.pull_codec
        self._total = plan.total
        self.fenced = threading.Event()
        self.epoch = 0
        """Pass over its data that the worker is in; the codec's warm-up depends on it."""
        self.may_differ = False
        """In rounds, slices may be at different ones: all servers can't go back to the same."""
        self._behind: Behind | None = None
        """What a heartbeat has found out."""
        # one exchange each, one that was abandoned, and one that catches up
        self._threads = ThreadPoolExecutor(3 * len(self.links), thread_name_prefix="link")

    def attach(self, incarnation: int) -> list[pb.ResumeReply]:
        """Registers this worker with every slice; returns its state on each. What was under way is abandoned."""
        self.fenced.clear()
        self._behind = None
        self.may_differ = False
        return self._everywhere(lambda link: link.attach(incarnation))

    def start_after(self, clock: int) -> None:
        """This worker goes on after `clock`; slices that have more of it answer that as repeats."""
        for link in self.links:
            link.start_after(clock)

    def settle(self, longest: float = _LONGEST_SETTLE) -> bool:
        """Waits until no server can lose what it has answered, for `longest` seconds at most; returns whether that is so."""
        end = time.monotonic() + longest
        for pause in backoff():
            with suppress(TryAgain):
                if all(self._everywhere(lambda link: link.is_durable())):
                    return True
            if time.monotonic() > end or self._stop.wait(pause):
                return False
        raise AssertionError("backoff never ends")

    def initialise(self, model: Vector) -> None:
        """Sends the first weights to every slice."""
        self._everywhere(lambda link: link.initialise(model))

    def pull(
        self, target: Vector, version: int | None = None, is_patient: bool = True, mean: bool = False
    ) -> list[int]:
        """Receives the model into `target`; returns the version of each slice. `mean`: as in `Link.pull`."""
        return self._everywhere(lambda link: link.pull(version, target, is_patient, mean))

    def pull_exactly(self) -> None:
        """As in `Link`."""
        for link in self.links:
            link.pull_exactly()

    def give_up_after(self, patience: float) -> None:
        """Calls that nobody answers for so long (seconds) end with ServersGone."""
        for link in self.links:
            link.patience = patience

    def push_pull(
        self,
        clock: int,
        view: int,
        update: Update,
        examples: int,
        choose: Choose | None,
        bases: Sequence[Base] | None = None,
        round: int = 0,
        position: Position | None = None,
    ) -> list[pb.PullHead]:
        """Pushes one clock's update to every slice; returns the heads of the replies. Receives weights where `choose` says
        where to; None: none are wanted. `bases`: the weights that it was computed on; default: those that came last.
        `round`, `position`: as in `Push`."""
        return self.begin_push(clock, view, update, examples, choose, bases, round=round, position=position)()

    def begin_push(
        self,
        clock: int,
        view: int,
        update: Update,
        examples: int,
        choose: Choose | None,
        bases: Sequence[Base] | None = None,
        manner: Manner = AS_SET,
        round: int = 0,
        position: Position | None = None,
        spared: Collection[int] = (),
    ) -> Callable[[], list[pb.PullHead]]:
        """As `push_pull`, but waits for the replies only when what it returns is called, before any other call. Until then
        the update must not change. `manner`: how the servers are to step with it; `spared`: servers that get an empty one."""
        gradient = update.values if isinstance(update, Dense) else None
        known, epoch, is_last = bases or self.bases, self.epoch, self.parting.begin_push()

        def exchange(link: Link) -> pb.PullHead:
            link.enter_epoch(epoch)
            if is_last:
                link.leave_nothing_out()
            where = None if choose is None else lambda head: choose(link.index, head)
            mine = (None, 0) if link.index in spared else (gradient, examples)
            at = position if mine[1] or position is None else position._replace(examples=0)
            return link.push_pull(clock, view, *mine, known[link.index], where, manner, round, at)

        return self._begin(exchange, is_last)

    @property
    def owes(self) -> bool:
        """Whether codecs have left anything out of earlier pushes, under error feedback. Between two exchanges only."""
        return any(link.owed is not None and link.owed.residual.any() for link in self.links)

    def forget_owed(self) -> None:
        """Drops what codecs left out of earlier pushes, under error feedback. Between two exchanges only."""
        for link in self.links:
            if link.owed is not None:
                link.owed.clear()

    @property
    def bases(self) -> list[Base]:
        """Term and version of the weights that came last, slice by slice."""
        return [link.base for link in self.links]

    @property
    def lr(self) -> float:
        """The schedule's rate in the first server's last reply."""
        return self.links[0].lr

    def pull_start(self, in_force: PolicyInForce, model: Vector, progress: int) -> list[int]:
        """Pulls the weights with which a worker begins, in rounds those of its `progress`; returns each slice's version.
        Behind where the slices have others."""
        wanted = progress if in_force.policy.rounds else None
        versions = self.pull(model, wanted)
        self.check_level(in_force, versions if wanted is None else [*versions, wanted])
        return versions

    def check_level(self, in_force: PolicyInForce, versions: Collection[int]) -> None:
        """As `PolicyInForce.check_level`, where there are several slices, and unless they may differ."""
        if len(self.links) > 1 and not self.may_differ:
            in_force.check_level(versions)

    def catch_up(self, terms: Sequence[int]) -> None:
        """Begins to send each server whose term has grown the pushes that it is missing: others may wait for them, while this
        worker waits elsewhere. For the heartbeat's thread."""
        for link, term in zip(self.links, terms, strict=False):
            if link.term and term > link.term:
                self._threads.submit(self._catch_up, link)

    def _catch_up(self, link: Link) -> None:
        try:
            link.catch_up()
        except Behind as error:
            self._behind = error
        except PacelineError as error:
            self._say("could not catch up yet", server=link.index, why=str(error))

    @property
    def pulled(self) -> float:
        """Time in which the last replies' weights came (seconds), the longest over the servers."""
        return max(link.pulled for link in self.links)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes of encoded values sent and received so far, repeats left out."""
        return sum(link.sent for link in self.links), sum(link.received for link in self.links)

    @property
    def replayed(self) -> int:
        """Pushes sent again to servers that had come back without them."""
        return sum(link.replayed for link in self.links)

    @property
    def retries(self) -> int:
        """The number of repeated exchanges."""
        return sum(link.retries for link in self.links)

    def _everywhere(self, task: Callable[[Link], T]) -> list[T]:
        return self._begin(task)()

    def _begin(self, task: Callable[[Link], T], is_last: bool = False) -> Callable[[], list[T]]:
        """Starts the task on every link; what is returned waits for all results, or for the first error. `is_last`: of a
        worker with a stop signal, which would begin nothing else."""
        if not is_last:
            self.check_wanted()  # also if all calls are too quick to wait for
        futures = [self._threads.submit(task, link) for link in self.links]
        return lambda: self._end(futures)

    def _end(self, futures: list[Future[T]]) -> list[T]:
        told_at: float | None = None
        while wait(futures, timeout=0.25, return_when="FIRST_EXCEPTION").not_done:
            if any(future.done() and future.exception() for future in futures):
                break
            if self._stop.is_set():
                told_at = told_at or time.monotonic()
                if self.parting.has_time() or time.monotonic() - told_at < _LAST_EXCHANGE:
                    continue
            self.check_wanted()
        failed = [future.exception() for future in futures if future.done() and future.exception()]
        for error in failed:
            raise error if isinstance(error, PacelineError) else RuntimeError("A call to a server failed.") from error
        return [future.result() for future in futures]

    def check_wanted(self) -> None:
        """Raises Stopped, Fenced or Behind if this worker can't go on."""
        if self._stop.is_set():
            raise Stopped("The worker got a signal to stop.")
        if self.fenced.is_set():
            raise Fenced("This worker's seat is gone or held by a newer process.")
        if self._behind is not None:
            raise self._behind


def pull_newest(client: ParameterClient, model: Vector, is_in_rounds: bool, mean: bool = False) -> list[int]:
    """Pulls one exact version of all slices in rounds, otherwise each slice's newest, into the flat model; returns the
    versions. `mean`: of all versions up to these, where the run has it."""
    versions = client.pull(model, mean=mean)
    for ahead in _AHEAD if is_in_rounds else ():
        if len(set(versions)) == 1:
            break
        versions = client.pull(model, max(versions) + ahead, is_patient=False, mean=mean)
    return versions
