"""A worker's client for all servers: pushes an update and pulls the weights, slice by slice."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from prometheus_client import CollectorRegistry

from paceline.core.errors import Fenced, PacelineError, Stopped
from paceline.core.slice.plan import SlicePlan
from paceline.core.values import AS_SET, Base, Dense, Manner, Update, Vector
from paceline.rpc.choose_transport import open_transport
from paceline.rpc.lane.traffic import Traffic
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.link_with_retries import Link
from paceline.worker.surroundings import Surroundings

T = TypeVar("T")
Choose = Callable[[int, pb.PullHead], Vector]
"""(server, head of its reply) -> the flat vector that its weights go to."""


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
        config, traffic = around.config, Traffic()
        if registry is not None and config.transport == "lane":
            registry.register(traffic)
        transports = [
            open_transport(config.transport, address, around.credentials, traffic) for address in around.addresses
        ]
        self.links = [Link(index, transport, around, plan, on_retry) for index, transport in enumerate(transports)]
        self._stop = around.stop
        self._pull_codec = config.codec.pull_codec
        self._total = plan.total
        self.fenced = threading.Event()
        self.epoch = 0
        """Pass over its data that the worker is in: the codec's warm-up goes by it."""
        self._threads = ThreadPoolExecutor(len(self.links), thread_name_prefix="link")

    def attach(self, incarnation: int) -> list[pb.ResumeReply]:
        """Registers this worker with every slice; returns its state on each."""
        self.fenced.clear()
        return self._everywhere(lambda link: link.attach(incarnation))

    def start_after(self, clock: int) -> None:
        """Continues this worker after `clock`, whatever a restarted server knows of it."""
        for link in self.links:
            link.answered = max(link.answered, clock)

    def initialise(self, model: Vector) -> None:
        """Sends the first weights to every slice."""
        self._everywhere(lambda link: link.initialise(model))

    def pull(
        self, target: Vector, version: int | None = None, is_patient: bool = True, mean: bool = False
    ) -> list[int]:
        """Receives the model into `target`; returns the version of each slice. `mean`: as in `Link.pull`."""
        return self._everywhere(lambda link: link.pull(version, target, is_patient, mean))

    def push_pull(
        self,
        clock: int,
        view: int,
        update: Update,
        examples: int,
        choose: Choose | None,
        bases: Sequence[Base] | None = None,
    ) -> list[pb.PullHead]:
        """Pushes one clock's update to every slice; returns the heads of the replies. Receives weights where `choose` says
        where to; None: none are wanted. `bases`: the weights that it was computed on; default: those that came last."""
        return self.begin_push(clock, view, update, examples, choose, bases)()

    def begin_push(
        self,
        clock: int,
        view: int,
        update: Update,
        examples: int,
        choose: Choose | None,
        bases: Sequence[Base] | None = None,
        manner: Manner = AS_SET,
    ) -> Callable[[], list[pb.PullHead]]:
        """As `push_pull`, but waits for the replies only when what it returns is called, before any other call. Until then
        the update must not change. `manner`: how the servers are to step with it."""
        gradient = update.values if isinstance(update, Dense) else None
        known, epoch = bases or self.bases, self.epoch

        def exchange(link: Link) -> pb.PullHead:
            link.enter_epoch(epoch)
            where = None if choose is None else lambda head: choose(link.index, head)
            return link.push_pull(clock, view, gradient, examples, known[link.index], where, manner)

        return self._begin(exchange)

    @property
    def bases(self) -> list[Base]:
        """Term and version of the weights that came last, slice by slice."""
        return [link.base for link in self.links]

    @property
    def is_stale(self) -> bool:
        """Whether a server has begun a new term since its weights came."""
        return any(link.is_stale for link in self.links)

    @property
    def lr(self) -> float:
        """The schedule's rate in the first server's last reply."""
        return self.links[0].lr

    def resume_after_restart(self, terms: Sequence[int]) -> None:
        """Sends Resume to each server whose term has grown, which waits for all members. For the heartbeat's thread."""
        for link, term in zip(self.links, terms, strict=False):
            if link.term and term > link.term:
                link.resume()

    @property
    def retries(self) -> int:
        """The number of repeated exchanges."""
        return sum(link.retries for link in self.links)

    def _everywhere(self, task: Callable[[Link], T]) -> list[T]:
        return self._begin(task)()

    def _begin(self, task: Callable[[Link], T]) -> Callable[[], list[T]]:
        """Starts the task on every link; what is returned waits for all results, or for the first error."""
        self.check_wanted()  # also if all calls are too quick to wait for
        futures = [self._threads.submit(task, link) for link in self.links]
        return lambda: self._end(futures)

    def _end(self, futures: list[Future[T]]) -> list[T]:
        while wait(futures, timeout=0.25, return_when="FIRST_EXCEPTION").not_done:
            if any(future.done() and future.exception() for future in futures):
                break
            self.check_wanted()
        failed = [future.exception() for future in futures if future.done() and future.exception()]
        for error in failed:
            raise error if isinstance(error, PacelineError) else RuntimeError("A call to a server failed.") from error
        return [future.result() for future in futures]

    def check_wanted(self) -> None:
        """Raises Stopped or Fenced if this worker has to stop."""
        if self._stop.is_set():
            raise Stopped("The worker was told to stop.")
        if self.fenced.is_set():
            raise Fenced("This worker's seat is gone or held by a newer process.")
