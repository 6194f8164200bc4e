"""The slice driver: who waits, who is woken, and who owns which array."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from paceline.core.chief.budget import Milestones
from paceline.core.errors import BadPush, ConfigError, Fenced, PlanMismatch, TryAgain, VersionGone
from paceline.core.settings.config import Config, Options, PlanConfig
from paceline.core.slice.plan import SlicePlan, make_plan
from paceline.core.slice.state import Phase
from paceline.core.values import Base, Dense, Outcome, Push, Reply, Seat, Sparse, View
from paceline.server import slice_driver, waiting_calls
from paceline.server.metrics import ServerMetrics
from paceline.server.push_assembly import AssemblyBuffers
from paceline.server.slice_driver import SliceDriver
from paceline.v1 import parameter_service_pb2 as pb

SHAPES = (("layer.weight", (4,)),)
PLAIN = Options(name="sgd", lr=1.0, momentum=0.0, weight_decay=0.0)


def always() -> bool:
    return True


def head_of(worker: str, **more: int) -> pb.PushHead:
    return pb.PushHead(worker=worker, **more)


LOCKSTEP = Options(name="ssp", bound=0)


def config_of(policy: str | Options, workers: int, arrays: int = 2) -> Config:
    policy = Options(name=policy) if isinstance(policy, str) else policy
    return Config(
        workers=workers,
        servers=1,
        policy=policy,
        optimizer=PLAIN,
        schedule={"lr_scale": "none"},
        push_memory=16 * arrays,  # of 4 values each
    )


class Cast:
    """A driver whose slice has its first weights, and its workers, each call in its own thread."""

    def __init__(self, policy: str | Options, workers: int, arrays: int = 2) -> None:
        config = config_of(policy, workers, arrays)
        self.registry = CollectorRegistry()
        self.driver = SliceDriver(config, 0, 1, ServerMetrics(self.registry, config.policy.name))
        self.driver.adopt(SHAPES, make_plan(SHAPES, 1, config.plan).hash, "worker-0")
        self.driver.initialise(np.zeros(4, np.float32), b"first")
        self.driver.view(View(1, {f"worker-{index}": Seat(1, 0) for index in range(workers)}))
        self.clocks = {f"worker-{index}": 0 for index in range(workers)}
        self.threads = ThreadPoolExecutor(8)
        self.waited = dict[str, float]()
        """How long each worker's last push waited for its turn."""

    def push(
        self,
        worker: str,
        incarnation: int = 1,
        repeat: bool = False,
        is_there: Callable[[], bool] = always,
        gradient: float = -1.0,
    ) -> "Future[Reply | None]":
        self.clocks[worker] += not repeat
        clock = self.clocks[worker]
        push = Push(worker, incarnation, clock, Dense(np.empty(0)), 1, Base(1, self.driver.model_slice.version), 0, 0.0)

        def work() -> Reply | None:
            values, self.waited[worker] = self.driver.take_buffer(head_of(worker), is_there)
            values[:] = gradient
            update = Dense(values)
            own = Push(worker, incarnation, clock, update, push.examples, push.base, push.view, push.time)
            return self.driver.push(own, values, is_there)

        return self.threads.submit(work)

    def until(self, holds: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(2000):
            with self.driver.changed:
                if holds():
                    return
            pause.wait(0.002)
        raise AssertionError("it never came to that")

    def is_waiting(self, worker: str) -> bool:
        return worker in self.driver._pushes._calls


Stage = Callable[..., Cast]


@pytest.fixture
def cast() -> Iterator[Stage]:
    made: list[Cast] = []

    def make(policy: str | Options, workers: int, arrays: int = 2) -> Cast:
        made.append(Cast(policy, workers, arrays))
        return made[-1]

    yield make
    for one in made:
        one.threads.shutdown(wait=False, cancel_futures=True)


def reply_of(future: "Future[Reply | None]") -> Reply:
    return future.result(timeout=10)


def test_a_round_answers_everybody_when_the_last_push_is_in(cast: Stage) -> None:
    play = cast("bsp", 3)
    replies = [play.push(worker) for worker in ("worker-2", "worker-0", "worker-1")]
    assert {reply_of(reply).weights.version for reply in replies} == {1}
    assert reply_of(replies[0]).weights.values.tolist() == [1.0] * 4


def test_a_repeat_takes_the_place_of_the_call_that_waits_and_is_not_folded_twice(cast: Stage) -> None:
    play = cast(LOCKSTEP, 2)
    for turn in range(1, 4):
        first = play.push("worker-1")
        play.until(lambda: play.is_waiting("worker-1"))
        repeat = play.push("worker-1", repeat=True)
        with pytest.raises(TryAgain, match="repeat"):
            first.result(timeout=10)
        last = play.push("worker-0")
        for answered in (repeat, last):
            play.driver.release(reply_of(answered).weights)
        assert play.driver.model_slice.folding.versions.current.values.tolist() == [2.0 * turn] * 4


def test_a_push_that_comes_again_after_the_slice_went_back_keeps_its_array(cast: Stage) -> None:
    play, plan = cast("bsp", 3, arrays=3), make_plan(SHAPES, 1, PlanConfig())
    start = play.driver.model_slice.state()
    lost = play.push("worker-1", gradient=-8.0)
    play.until(lambda: play.is_waiting("worker-1"))

    play.driver.go_back(plan, start, 2)
    again = play.push("worker-1", repeat=True, gradient=-8.0)
    play.until(lambda: play.is_waiting("worker-1") and play.driver.counted == 2)
    replies = [again, play.push("worker-0", gradient=-1.0), play.push("worker-2", gradient=-63.0)]

    assert {tuple(reply_of(reply).weights.values.tolist()) for reply in replies} == {(24.0,) * 4}
    with pytest.raises(TryAgain):
        lost.result(timeout=10)


def test_an_error_in_the_middle_of_a_push_makes_the_slice_unfit_to_be_written_down(
    cast: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = cast("asp", 1)
    reply_of(play.push("worker-0"))
    with pytest.raises(BadPush):
        play.driver.push(Push("worker-0", 1, 2, Dense(np.zeros(4, np.float32)), 1, Base(1, 9), 0, 0.0), None, always)
    assert play.driver.failure is None, "it was refused before it was counted"

    def fails(*_: object) -> None:
        raise MemoryError("Unable to allocate 90 MiB")

    monkeypatch.setattr(play.driver.model_slice.folding, "fold_one", fails)
    with pytest.raises(MemoryError):
        play.push("worker-0").result(timeout=10)
    assert isinstance(play.driver.failure, MemoryError)


def test_a_view_that_the_policy_fails_on_ends_the_server(cast: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    play = cast("asp", 1)

    def fails(view: View) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(play.driver.model_slice, "view", fails)
    with pytest.raises(ZeroDivisionError):
        play.driver.view(View(2, {}))
    assert isinstance(play.driver.failure, ZeroDivisionError)


def test_a_slice_is_called_empty_until_its_first_weights_are_written(cast: Stage) -> None:
    play = cast("asp", 1)
    assert play.driver.resume("worker-0", 1).phase is Phase.EMPTY
    again = play.threads.submit(play.driver.initialise, np.zeros(4, np.float32), b"first")
    assert not again.done()

    play.driver.first_are_written()
    assert not again.result(timeout=10), "who sends them again changes nothing, and has waited"
    assert play.driver.resume("worker-0", 1).phase is Phase.SERVING


def test_an_array_that_brought_a_repeat_is_free_again_at_once() -> None:
    pool = AssemblyBuffers(4, 2)
    for _ in range(2):
        values = pool.take(head_of("worker-1"), "worker-1")
        assert values is not None
        pool.hand("worker-1", values)
    pool.reclaim(lambda worker: True)
    assert pool.take(head_of("worker-1"), "worker-1") is not None


def test_a_refused_push_leaves_the_call_that_waits_alone(cast: Stage) -> None:
    play = cast(LOCKSTEP, 2)
    play.driver.view(View(2, {"worker-0": Seat(1, 0), "worker-1": Seat(2, 0)}))
    waiting = play.push("worker-1", incarnation=2)
    play.until(lambda: play.is_waiting("worker-1"))
    with pytest.raises(Fenced):
        play.push("worker-1", incarnation=1, repeat=True).result(timeout=10)
    play.push("worker-0")
    assert reply_of(waiting).clock == 1


def test_a_push_that_is_refused_gives_its_buffer_back(cast: Stage) -> None:
    play = cast("asp", 2)
    for _ in range(5):
        with pytest.raises(Fenced):
            play.push("worker-1", incarnation=0, repeat=True).result(timeout=10)
    assert reply_of(play.push("worker-1")).weights.version == 1


def test_a_reply_that_waits_too_long_is_asked_for(cast: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    play = cast("bsp", 2)
    monkeypatch.setattr(slice_driver, "LONGEST_WAIT", 0.01)
    assert play.push("worker-0").result(timeout=10) is None
    monkeypatch.setattr(slice_driver, "LONGEST_WAIT", 10.0)
    asked = play.threads.submit(play.driver.ask, "worker-0", 1, 1, always)
    play.until(lambda: play.is_waiting("worker-0"))
    play.push("worker-1")
    assert reply_of(asked).weights.version == 1


def test_a_worker_that_is_no_member_any_more_is_not_waited_for(cast: Stage) -> None:
    play = cast(LOCKSTEP, 2)
    waiting = play.push("worker-1")
    play.until(lambda: play.is_waiting("worker-1"))
    play.driver.view(View(2, {"worker-0": Seat(1, 0)}))
    assert waiting.result(timeout=10) is None


def test_a_caller_that_leaves_frees_its_thread_and_pins_nothing(cast: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    play = cast("bsp", 2)
    monkeypatch.setattr(waiting_calls, "LOOK", 0.005)
    gone = threading.Event()
    waiting = play.push("worker-1", is_there=lambda: not gone.is_set())
    play.until(lambda: play.is_waiting("worker-1"))
    gone.set()
    with pytest.raises(TryAgain, match="gone away"):
        waiting.result(timeout=10)
    play.driver.release(reply_of(play.push("worker-0")).weights)
    assert play.driver.model_slice.folding.versions.current.pins == 0


def test_a_caller_that_goes_away_while_it_waits_for_a_buffer_frees_its_thread(
    cast: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = cast("asp", 2)
    monkeypatch.setattr(waiting_calls, "LOOK", 0.005)
    arrays = [play.driver.take_buffer(head_of("worker-0"), always)[0] for _ in range(2)]
    with pytest.raises(TryAgain, match="gone away"):
        play.push("worker-1", is_there=lambda: False).result(timeout=10)
    play.driver.give_back("worker-0", arrays[0], 0)
    assert reply_of(play.push("worker-1", repeat=True)).weights.version == 1


def test_a_push_that_waits_for_its_turn_has_waited_for_others(cast: Stage) -> None:
    play = cast("bsp", 4)
    late = [play.push(f"worker-{rank}") for rank in (1, 2, 3)]
    play.until(lambda: play.driver._metrics.queue._value.get() > 0)
    for reply in (play.push("worker-0"), *late):
        play.driver.release(reply_of(reply).weights)
    assert max(play.waited.values()) > 0 == play.waited["worker-0"]


def test_a_reader_gets_exactly_the_version_it_waits_for(cast: Stage) -> None:
    play = cast("bsp", 1)
    reader = play.threads.submit(play.driver.pull, 2, always)
    play.until(lambda: bool(play.driver._pulls._calls))
    for _ in range(2):
        reply_of(play.push("worker-0"))
    found = reader.result(timeout=10)
    assert (found.version, found.values.tolist()) == (2, [2.0] * 4)


def test_a_version_that_is_gone_is_said_at_once(cast: Stage) -> None:
    play = cast("bsp", 1)
    for _ in range(3):
        play.driver.release(reply_of(play.push("worker-0")).weights)
    assert play.driver.pull(2, always) is not None
    with pytest.raises(VersionGone):
        play.driver.pull(1, always)


def test_a_plan_that_does_not_fit_or_that_no_memory_holds_does_not_become_the_runs_plan() -> None:
    config = config_of("bsp", 1)
    driver = SliceDriver(config, 0, 1, ServerMetrics(CollectorRegistry(), "bsp"))
    giant = (("giant", (1 << 58,)),)
    with pytest.raises(PlanMismatch):
        driver.adopt((("other", (7,)),), "0" * 64, "worker-0")
    with pytest.raises(ConfigError, match="more servers"):
        driver.adopt(giant, make_plan(giant, 1, config.plan).hash, "worker-0")
    driver.adopt(SHAPES, make_plan(SHAPES, 1, config.plan).hash, "worker-0")
    assert driver.model_slice.length == 4


def test_the_wait_of_a_worker_that_leaves_before_its_reply_counts(cast: Stage) -> None:
    play = cast("bsp", 3)
    play.push("worker-0")
    play.until(lambda: play.is_waiting("worker-0"))
    assert play.registry.get_sample_value("paceline_server_wait_seconds_count") == 0

    play.driver.view(View(2, {"worker-1": Seat(1, 0), "worker-2": Seat(1, 0)}))

    assert play.registry.get_sample_value("paceline_server_wait_seconds_count") == 1


def test_rounds_stay_open_from_the_one_that_the_newest_call_names(cast: Stage) -> None:
    play = cast("bsp", 2)
    play.driver.view(View(2, play.driver.clocks.view.seats), open_from=2)
    found = [play.driver.model_slice.open_from]
    for first in (3, None):
        play.driver.keep_rounds_open(first)
        found.append(play.driver.model_slice.open_from)

    assert found == [2, 3, None]


@pytest.mark.parametrize("policy", ["asp", "bsp"])
def test_where_the_run_may_end_a_slice_counts_no_push_before_the_chief_has_looked(cast: Stage, policy: str) -> None:
    play, woken, waits = cast(policy, 1), threading.Event(), threading.Event()
    play.driver.wake_chief = woken.set
    play.driver.milestones = Milestones(score=1, end=2)
    reply_of(play.push("worker-0"))
    assert (woken.is_set(), play.driver.awaits_chief) == (True, False)

    reply_of(play.push("worker-0"))
    third = play.push("worker-0", is_there=lambda: not waits.set())
    assert waits.wait(10)
    assert (play.driver.awaits_chief, play.driver.summary.trained, third.done()) == (True, 2, False)
    assert play.driver.pull(None, always) is not None, "a reader waits for no chief"

    play.driver.go_on()
    assert reply_of(third).clock == 3


@pytest.mark.parametrize(
    ("takers", "taken"),
    [("210", [True, False, True]), ("01", [True, True])],
    ids=["out of order", "the next one first"],
)
def test_the_last_buffer_is_for_the_one_the_sum_waits_for(takers: str, taken: list[bool]) -> None:
    pool = AssemblyBuffers(4, 2)
    assert [pool.take(head_of(f"worker-{one}"), "worker-0") is not None for one in takers] == taken


def test_without_rounds_the_last_array_is_kept_for_workers_whose_pushes_come_quickly() -> None:
    now = [0.0]
    pool = AssemblyBuffers(4, 2, lambda: now[0])

    def pushes(worker: str, seconds: float) -> None:
        values = pool.take(head_of(worker), None)
        assert values is not None
        now[0] += seconds
        pool.hand(worker, values)
        pool.reclaim(lambda worker: False)

    pushes("worker-0", 0.01)
    for slow in ("worker-1", "worker-2", "worker-3"):  # nobody knows them yet
        pushes(slow, 5.0)
    assert pool.take(head_of("worker-1"), None) is not None
    assert pool.take(head_of("worker-2"), None) is None
    assert pool.take(head_of("worker-3"), None) is None
    pushes("worker-0", 0.01)
    assert pool.take(head_of("worker-4"), None) is not None, "who is new may be quick"


def test_workers_that_are_all_as_slow_share_all_arrays() -> None:
    now = [0.0]
    pool = AssemblyBuffers(4, 2, lambda: now[0])
    for worker in ("worker-0", "worker-1"):
        values = pool.take(head_of(worker), None)
        assert values is not None
        now[0] += 60.0
        pool.give_back(worker, values)
    assert [pool.take(head_of(worker), None) is not None for worker in ("worker-0", "worker-1")] == [True, True]


def test_what_has_come_of_a_broken_push_holds_no_array_that_others_need() -> None:
    pool = AssemblyBuffers(4, 2)
    for worker in ("worker-0", "worker-1"):
        head = head_of(worker, upload=1)
        values = pool.take(head, None)
        assert values is not None
        pool.give_back(worker, values, filled=2)
    assert [pool.arrived(worker, 1) for worker in ("worker-0", "worker-1")] == [2, 2]

    assert pool.take(head_of("worker-2", upload=1), "worker-2") is not None
    assert [pool.arrived(worker, 1) for worker in ("worker-0", "worker-1")] == [0, 2], "that which broke first goes"
    with pytest.raises(TryAgain, match="worker-0 goes on with a push at element 2"):
        pool.take(head_of("worker-0", upload=1, start=2), None)
    assert pool.take(head_of("worker-1", upload=1, start=2), "worker-1") is values
    assert pool.arrived("worker-1", 1) is None, "it comes in again"


@pytest.mark.parametrize(
    "seats",
    [{}, {"worker-0": Seat(2, 0)}, {"worker-0": Seat(1, 0)}],
    ids=["its worker left", "another process has its seat", "its worker stays"],
)
def test_what_has_come_of_a_push_goes_with_its_worker(cast: Stage, seats: dict[str, Seat]) -> None:
    driver = cast("asp", 1).driver
    values, _ = driver.take_buffer(head_of("worker-0", incarnation=1, upload=1), always)
    driver.give_back("worker-0", values, 2)
    driver.view(View(2, seats))
    assert driver.arrived("worker-0", 1) == (2 if seats == {"worker-0": Seat(1, 0)} else 0)


def test_a_complete_push_whose_caller_goes_away_while_it_waits_goes_on_at_its_end(cast: Stage) -> None:
    driver = cast("bsp", 2).driver
    values, _ = driver.take_buffer(head_of("worker-1", upload=1), always)
    values[:] = 1.0
    update = Push("worker-1", 1, 1, Dense(values), 1, Base(1, 0), 2, 0.0)  # of a view to come
    with pytest.raises(TryAgain, match="gone away"):
        driver.push(update, values, lambda: False)
    assert driver.arrived("worker-1", 1) == 4


@given(st.integers(2, 6), st.integers(0, 1 << 30))
def test_no_order_of_uploads_leaves_a_round_without_a_buffer(workers: int, seed: int) -> None:
    random = Random(seed)
    pool, names = AssemblyBuffers(1, 2), [f"worker-{index}" for index in range(workers)]
    for _ in range(2):
        filling: dict[str, np.ndarray] = {}
        pushed: set[str] = set()
        summed: set[str] = set()
        while len(summed) < workers:
            expected = next((name for name in names if name not in pushed), None)
            takers = [name for name in names if name not in pushed and name not in filling]
            moves = [("take", name) for name in takers] + [("finish", name) for name in filling]
            move, name = random.choice(moves)
            if move == "take":
                values = pool.take(head_of(name), expected)
                if values is not None:
                    filling[name] = values
                elif not filling:
                    values = pool.take(head_of(expected or ""), expected)
                    assert values is not None, "the round can't go on"
                    filling[expected or ""] = values
            else:
                pool.hand(name, filling.pop(name))
                pushed.add(name)
                while (one := next((name for name in names if name not in summed), None)) in pushed:
                    summed.add(str(one))
                pool.reclaim((pushed - summed).__contains__)


class SparseCast:
    """A driver of sparse updates, and a worker that knows all its weights and has made changes to some of them."""

    def __init__(self, policy: str | Options) -> None:
        config = config_of(policy, 2).model_copy(update={"updates": "sparse"})
        self.driver = SliceDriver(config, 0, 1, ServerMetrics(CollectorRegistry(), config.policy.name))
        self.driver.adopt(SHAPES, make_plan(SHAPES, 1, config.plan).hash, "worker-0")
        self.driver.initialise(np.zeros(4, np.float32), b"first")
        self.driver.view(View(1, {"worker-0": Seat(1, 0), "worker-1": Seat(1, 0)}))
        self.local = np.zeros(4, np.float32)
        self.base = Base(1, 0)

    def replaced(self) -> None:
        """Another process takes the seat of worker-0, and pulls."""
        self.driver.view(View(2, {"worker-0": Seat(2, 0), "worker-1": Seat(1, 0)}))
        self.local = self.weights
        self.base = Base(1, self.driver.model_slice.version)

    def change(self, **values: float) -> Sparse:
        """change(_1=0.5): worker-0's own step changes place 1."""
        places = np.array([int(name[1:]) for name in values], np.int64)
        update = Sparse(places, np.array([*values.values()], np.float32), 4)
        self.local[places] += update.values
        return update

    def exchange(
        self, update: Sparse, clock: int = 1, incarnation: int = 1, asks: bool = False, most: int = 4
    ) -> tuple[Reply, Sparse | None]:
        push = Push("worker-0", incarnation, clock, update, 1, self.base, 0, 0.0)

        def count() -> Reply | None:
            if asks:
                return self.driver.ask("worker-0", incarnation, clock, always)
            return self.driver.push(push, None, always)

        return self.driver.exchange("worker-0", clock, count, self.base, None, update.places, most)

    def take(self, answer: Sparse | None) -> None:
        """The weights have come to worker-0."""
        self.local[answer.places] = answer.values

    @property
    def weights(self) -> np.ndarray:
        """Those of the server."""
        return self.driver.pull(None, always).values


@pytest.mark.parametrize("asks", [False, True])
def test_a_sparse_push_sent_again_after_a_lost_reply_is_added_once_and_brings_the_servers_weights(asks: bool) -> None:
    play = SparseCast("asp")
    update = play.change(_1=0.5, _3=2.0)
    play.exchange(update)

    reply, answer = play.exchange(update, asks=asks)
    play.take(answer)

    assert reply.weights.version == 1
    assert play.weights.tolist() == play.local.tolist() == [0, 0.5, 0, 2]
    assert play.exchange(update, most=1)[1] is None, "more places than fit in a reply: the whole slice is asked for"


@pytest.mark.parametrize("asks", [False, True])
def test_a_sparse_push_that_is_not_folded_yet_brings_its_places_when_it_is_sent_again(asks: bool) -> None:
    play = SparseCast("everyone")
    update = play.change(_1=0.5, _3=2.0)
    first, nothing = play.exchange(update)
    assert (first.outcome, nothing is not None and len(nothing.places)) == (Outcome.BUFFERED, 0)

    _, answer = play.exchange(update, asks=asks)
    play.take(answer)

    assert play.weights.tolist() == play.local.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("asks", [False, True])
def test_a_process_that_goes_over_a_clock_again_loses_its_own_change_not_the_servers(asks: bool) -> None:
    """What the process before it pushed reached this server, but not the others."""
    play = SparseCast("asp")
    play.exchange(play.change(_1=0.5))
    play.replaced()

    reply, answer = play.exchange(play.change(_1=7.0, _2=-3.0), incarnation=2, asks=asks)
    play.take(answer)

    assert reply.weights.version == 1
    assert play.weights.tolist() == play.local.tolist() == [0, 0.5, 0, 0]


def test_a_sparse_push_that_was_dropped_brings_the_places_of_its_change_back() -> None:
    play = SparseCast(Options(name="delay_threshold", threshold=1))
    play.exchange(play.change(_1=0.5))

    reply, answer = play.exchange(play.change(_2=7.0), clock=2)
    play.take(answer)

    assert (reply.outcome, reply.reason) == (Outcome.DROPPED, "too_stale")
    assert play.weights.tolist() == play.local.tolist() == [0, 0.5, 0, 0]


def started(policy: str, servers: int) -> tuple[SliceDriver, SliceDriver, SlicePlan]:
    """A driver that trains with one worker, the one that comes after it, and their plan."""
    config = config_of(policy, 1).model_copy(update={"servers": servers})
    plan = make_plan(SHAPES, servers, config.plan)
    first, second = (SliceDriver(config, 0, term, ServerMetrics(CollectorRegistry(), policy)) for term in (1, 2))
    first.adopt(SHAPES, plan.hash, "worker-0")
    first.initialise(np.zeros(plan.lengths[0], np.float32), b"first")
    first.view(View(1, {"worker-0": Seat(1, 0)}))
    return first, second, plan


def push_ones(driver: SliceDriver) -> None:
    update = Dense(np.ones(driver.model_slice.length, np.float32))
    driver.model_slice.push(Push("worker-0", 1, 1, update, 1, Base(1, 0), 0, 0.0))


def test_a_slice_in_lock_step_that_is_back_without_a_view_waits_for_the_versions_that_the_chief_names() -> None:
    before, driver, plan = started("bsp", servers=2)
    push_ones(before)

    driver.restore(plan, before.model_slice.state())

    assert driver.keeps_step
    assert driver.resume("worker-0", 1).durable == 0
    driver.view(View(1, {"worker-0": Seat(1, 0)}))
    driver.is_common(1)
    assert driver.resume("worker-0", 1).durable == 1


def test_a_slice_that_is_back_takes_a_snapshot_for_a_worker_that_waits_to_leave() -> None:
    before, driver, plan = started("asp", servers=1)
    driver.restore(plan, before.model_slice.state())
    driver.view(View(1, {"worker-0": Seat(1, 0)}))
    wanted: list[str] = []
    driver.hurry = lambda: wanted.append("a snapshot")

    assert driver.resume("worker-0", 1).durable == 0
    assert not wanted
    push_ones(driver)
    assert driver.resume("worker-0", 1).durable == 0
    assert wanted == ["a snapshot"]


def test_in_lock_step_a_snapshot_makes_no_clock_durable_before_all_servers_have_it() -> None:
    driver, _, _ = started("bsp", servers=2)
    push_ones(driver)

    driver.note_durable(driver.model_slice.state().table)
    assert driver.resume("worker-0", 1).durable == 0

    driver.is_common(1)
    assert driver.resume("worker-0", 1).durable == 1
