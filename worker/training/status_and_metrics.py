"""Where a worker is and how it does: for heartbeats, status and Prometheus."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paceline.callback import LEFT_OUT, LOG_PREFIX
from paceline.core.chief.warnings import LASTING, ROW
from paceline.core.chief.workers import WorkerPhase
from paceline.core.errors import DataError
from paceline.core.large_numbers import scaled, some
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.training.explosions import Rows
from paceline.worker.training.logged_values import LoggedValues
from paceline.worker.training.step_result import Step

_FIRST_WARNING, _WARN_EVERY, _GIVE_UP = 10, 100, 1000
"""Steps in a row without a finite gradient after which the worker says so, and after which it ends."""
_OWN = ("data", "compute", "push", "pull", "exchange")
"""Parts of a step that are no waiting."""

State = tuple[int, str, float, dict[str, float], int, str]
"""Clock, phase, seconds in it, figures, the newest clock that any slice has, and columns of large numbers."""


class Progress:
    """Written by the training loop, read by the heartbeat. Thread-safe."""

    def __init__(self, registry: CollectorRegistry, say: Callable[..., None] = lambda event, **facts: None) -> None:
        self._lock = threading.Lock()
        self._say = say
        self._rows = Rows()
        self.alarm = threading.Event()
        """Set where the chief should hear of this worker at once."""
        self.clock = 0
        self._reached = 0
        """The newest clock that any slice has."""
        self.phase = WorkerPhase.JOINING
        self._since = self._rate_since = time.monotonic()
        self._rate_examples = 0
        self.figures: dict[str, float] = {
            "wait_seconds": 0.0,
            "staleness_mean": 0.0,
            "staleness_max": 0.0,
            "dropped": 0.0,
        }
        self._clocks = 0
        """Completed since this process began."""
        self._used: float | None = None
        """CPU time of the process before its first step (seconds); None until then."""
        self._waited = 0.0
        """Time of the present exchange that the policy let the reply wait (seconds)."""
        self._pulled: float | None = None
        """Time in which its weights came (seconds); None where nobody knows it."""
        self._own = 0.0
        """Time of all steps so far that was not waited (seconds)."""
        self._loaded = 0.0
        """Time of the present computation that went into loading examples (seconds)."""
        self.traffic: Callable[[], Mapping[str, float]] = dict
        """Figures of what this worker has sent and received."""
        self.large_inputs: Callable[[], Sequence[str]] = tuple
        """Columns of the inputs with numbers that no network learns from."""
        self.logged = LoggedValues()
        """What the script of this process logs; nothing, where it has none."""
        self.fastest = 0.0
        """Examples per second of computation of the run's fastest worker, as the chief says; 0: not known."""

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"paceline_worker_{name}", text, registry=registry)

        self._examples = Counter("paceline_worker_examples_total", "Examples pushed", registry=registry)
        self._steps = Counter("paceline_worker_steps_total", "Steps completed", registry=registry)
        self._screened = Counter(
            "paceline_worker_screened_steps_total", "Steps whose gradient was not finite", registry=registry
        )
        self._retries = Counter(
            "paceline_worker_retries_total", "Exchanges that failed and were repeated", ["code"], registry=registry
        )
        self._retries.labels("UNAVAILABLE")  # a series that begins at 0 shows its first one
        seconds = Histogram(
            "paceline_worker_step_seconds",
            "Time of a step by phase",
            ["phase"],
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self._seconds: Callable[[str], Histogram] = cache(seconds.labels)
        self._replayed = Counter(
            "paceline_worker_replayed_pushes_total",
            "Pushes sent again to a server that had lost them",
            registry=registry,
        )
        self._rerun = Counter(
            "paceline_worker_rerun_steps_total",
            "Steps computed again, because a server had lost them",
            registry=registry,
        )
        self._dropped = Counter(
            "paceline_worker_dropped_pushes_total", "Pushes that the policy did not use", ["reason"], registry=registry
        )
        self._lr = gauge("learning_rate", "Learning rate of the last fold")
        self._alpha = gauge("alpha_ratio", "Weight of the global model in the last mix")
        self._staleness = gauge("staleness", "Staleness of the last push, the largest over the slices")
        self._sparsity = gauge("sparsity_ratio", "Share of the weights that the last push left as they were")
        self._loss = gauge("loss", "Loss of the last mini-batch; NaN while it is not known, or where it is none")
        self._loss.set(math.nan)
        self._epoch = gauge("epoch", "Epoch of the last step, from 0")
        self._log = Gauge(
            "paceline_worker_logged", "Newest value that the script gave to paceline.log", ["name"], registry=registry
        )

    def enter(self, phase: WorkerPhase) -> None:
        """The loop goes over to another phase."""
        now = time.monotonic()
        with self._lock:
            passed = now - self._since
            if self.phase == WorkerPhase.EXCHANGE:
                self._note_exchange(passed)
            elif self.phase in (WorkerPhase.DATA, WorkerPhase.COMPUTE):
                self._seconds(self.phase).observe(passed)
                loaded = min(self._loaded, passed) if self.phase == WorkerPhase.COMPUTE else 0.0
                self._loaded = 0.0
                self._spent(self.phase, passed - loaded)
                if loaded:
                    self._spent("data", loaded)
            self.phase = phase
            self._since = now

    def _note_exchange(self, passed: float) -> None:
        """An exchange has taken so long (seconds)."""
        waited = min(self._waited, passed)
        self._seconds("wait").observe(waited)
        self._seconds("exchange").observe(passed - waited)
        if self._pulled is None:
            self._spent("exchange", passed - waited)
        else:
            pulled = min(self._pulled, passed - waited)
            self._spent("push", passed - waited - pulled)
            self._spent("pull", pulled)
        own = sum(self.figures.get(f"{part}_seconds", 0.0) for part in _OWN)
        self.figures["own_squares"] = self.figures.get("own_squares", 0.0) + (own - self._own) ** 2
        self._own = own
        self._waited, self._pulled = 0.0, None  # waited while the next batch was computed

    def _spent(self, on: str, seconds: float) -> None:
        """Where the time went, in figures."""
        name = f"{on}_seconds"
        self.figures[name] = self.figures.get(name, 0.0) + seconds

    def loaded(self, seconds: float) -> None:
        """Of the present computation so much went into loading examples."""
        with self._lock:
            self._loaded += seconds

    def computed(self, examples: int, seconds: float) -> None:
        """Computing `examples` examples took `seconds`, emulated slowness included; what of it went into loading them does
        not count."""
        with self._lock:
            seconds -= self._loaded
            if examples and seconds > 0:
                rate, known = examples / seconds, self.figures.get("compute_rate")
                self.figures["compute_rate"] = rate if known is None else 0.9 * known + 0.1 * rate
                before = self.figures.get("step_seconds", seconds)
                self.figures["step_seconds"] = 0.9 * before + 0.1 * seconds

    @property
    def speed(self) -> float:
        """This worker's speed of computation; the fastest one's is 1. 1 until both are known."""
        with self._lock:
            mine = self.figures.get("compute_rate", 0.0)
        return min(1.0, mine / self.fastest) if mine and self.fastest else 1.0

    def retried(self, code: str) -> None:
        """An exchange failed with this status and is repeated."""
        self._retries.labels(code).inc()

    def stepped(
        self,
        clock: int,
        epoch: int,
        step: Step | None,
        heads: Sequence[pb.PullHead],
        alpha: float,
        pulled: float | None = None,
    ) -> None:
        """One clock is completed. `pulled`: the time in which the weights came (seconds), where that is known."""
        waited = max(head.waited for head in heads)
        self._steps.inc()
        self._epoch.set(epoch)
        self._alpha.set(alpha)
        self._lr.set(heads[0].lr)
        self._staleness.set(max(head.staleness for head in heads))
        with self._lock:
            if clock <= self._reached:
                self.figures["rerun"] = self.figures.get("rerun", 0.0) + 1
                self._rerun.inc()
            self.clock = clock
            self._reached = max(self._reached, clock)
            self._waited, self._pulled = waited, pulled
            if self._used is None:
                self._used = time.process_time()
            self.figures["wait_seconds"] += waited
            self._note_staleness(max(head.staleness for head in heads))
            self.figures["alpha"], self.figures["lr"] = alpha, heads[0].lr
            self._note_drops(heads)
            if step is not None:
                self._note(step)
                if step.finite and any(head.outcome != pb.OUTCOME_DROPPED for head in heads):
                    self._rate_examples += step.examples

    def sparse(self, touched: int, weights: int) -> None:
        """The next push changes `touched` of the weights."""
        self._sparsity.set(1 - touched / weights)

    def has_replayed(self, pushes: int) -> None:
        """This process has sent `pushes` pushes again so far."""
        with self._lock:
            self._replayed.inc(pushes - self.figures.get("replayed", 0.0))
            self.figures["replayed"] = pushes

    def figure(self, **figures: float) -> None:
        """Sets figures for the status."""
        with self._lock:
            self.figures.update(figures)

    def has_reached(self, clock: int) -> None:
        """Some slice has this clock of the worker, perhaps of an earlier process."""
        with self._lock:
            self._reached = max(self._reached, clock)

    def state(self) -> State:
        """What the next heartbeat tells."""
        now = time.monotonic()
        logged, traffic = self._logged(), self.traffic()
        with self._lock:
            passed = now - self._rate_since
            if passed > 1:
                self.figures["examples_per_second"] = self._rate_examples / passed
                self._rate_since = now
                self._rate_examples = 0
            if self._used is not None:
                self.figures["cpu_seconds"] = time.process_time() - self._used
            figures = {**self.figures, **self._rows.figures(), **traffic, **logged}
            large = some(self.large_inputs())
            return self.clock, self.phase, now - self._since, figures, self._reached, large

    def _logged(self) -> dict[str, float]:
        """Figures of what the script logs."""
        values = self.logged.read()
        values.pop("loss", None)  # counts with the step
        for name, value in values.items():
            self._log.labels(name).set(value)
        left_out = {LEFT_OUT: float(self.logged.left_out)} if self.logged.left_out else {}
        return {f"{LOG_PREFIX}{name}": value for name, value in values.items()} | left_out

    def _note_drops(self, heads: Sequence[pb.PullHead]) -> None:
        """Counts a push that a slice dropped; says so where that has become the rule: such a worker computes for nothing."""
        reasons = [head.reason for head in heads if head.outcome == pb.OUTCOME_DROPPED]
        self._rows.dropped.note(bool(reasons))
        if reasons:
            self.figures["dropped"] += 1
            self._dropped.labels(reasons[0]).inc()
        if reasons and self._rows.dropped.now % _WARN_EVERY == 0:
            self._say(
                f"the last {self._rows.dropped.now} pushes were all dropped, so this worker does not help: it is too slow for "
                "the policy; loosen it (paceline set), or give this worker smaller mini-batches (batch: speed)",
                reason=reasons[0],
            )

    def went_back(self) -> None:
        """The run goes on from older weights: what went wrong since then no longer counts towards giving up."""
        self._rows.go_back()

    def _note_staleness(self, staleness: int) -> None:
        """The last one, and mean and largest of all of this process."""
        self._clocks += 1
        self.figures["steps"] = self._clocks
        self.figures["staleness"] = staleness
        self.figures["staleness_max"] = max(self.figures["staleness_max"], staleness)
        self.figures["staleness_mean"] += (staleness - self.figures["staleness_mean"]) / self._clocks

    def _note(self, step: Step) -> None:
        loss = step.loss
        if math.isnan(loss) and (logged := self.logged.loss()) is not None:
            loss = logged  # shown, but no sign of an explosion: what a script logs may grow for good reasons
        if not math.isnan(loss):  # not known, where a script does not report it
            self.figures["loss"] = loss
        if not (math.isnan(loss) and step.finite):
            self._loss.set(loss)
        self._rows.stepped(step)
        unusable, exploding = self._rows.unusable.now, self._rows.exploding.now
        if ROW in (unusable, exploding) or LASTING in (unusable, unusable + exploding):
            self.alarm.set()
        if step.finite:
            self._examples.inc(step.examples)
            return
        self._screened.inc()
        if step.searches:
            return
        if unusable == _FIRST_WARNING or unusable % _WARN_EVERY == 0:
            large = some(self.large_inputs())
            other = "lower the rate (optimizer.lr) or look for NaN in the data and the loss"
            cure = f"try {scaled(large)}" if large else other
            said = f"{unusable} steps in a row had no finite gradient, so nothing is learned; {cure}"
            self._say(said, loss=step.loss)
            if unusable >= _GIVE_UP:
                raise DataError(f"{said}. The run would never end, because only examples that train the model count.")
