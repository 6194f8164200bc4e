"""A worker's life around the training loop: joining, losing its seat, and servers that are not what they were."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.chief.common_snapshots import Returns
from paceline.core.chief.warnings import OTHER_BITS
from paceline.core.errors import Behind, ConfigError, DataError, Fenced
from paceline.core.settings.config import Config
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.worker.training.status_and_metrics import Progress

app = pytest.importorskip("paceline.worker.module_worker")
member = pytest.importorskip("paceline.worker.membership.member")
run_process = pytest.importorskip("paceline.worker.startup.run_process")


class Manifest:
    """Shards without duplicates."""

    sizes, train_examples, fingerprint = (4,), 4, "same"
    epoch_lens = shards = property(lambda self: self.sizes)


class Shards(SimpleNamespace):
    shuffle, fills = True, False

    def __len__(self) -> int:
        return len(self.manifest.sizes)


def worker(chief: Any = None, client: Any = None) -> Any:
    made = app.Worker.__new__(app.Worker)
    made.config = Config(workers=1, batch_size=2)
    made._shards = Shards(manifest=Manifest())
    made.say = lambda event, **facts: None
    made._stop = threading.Event()
    made.chief = chief
    made.client = client
    made.renewed = []
    made.replica = SimpleNamespace(local=np.zeros(3, np.float32), leave_gradients=lambda: made.renewed.append(True))
    return made


class Chief:
    """Answers each Join as the test says."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.was_fenced = []

    def join(self, was_fenced: bool, *facts: Any) -> Any:
        self.was_fenced.append(was_fenced)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_worker_that_lost_its_seat_joins_anew_as_often_as_the_seat_is_vacant() -> None:
    chief = Chief(run_pb.JoinReply(), run_pb.JoinReply(), run_pb.JoinReply())
    ends: list[Exception | None] = [Fenced("lease lapsed"), Fenced("lease lapsed"), None]

    def session(joined: Any) -> None:
        end = ends.pop(0)
        if end is not None:
            raise end

    one = worker(chief)
    one._session = session
    one.run()
    assert chief.was_fenced == [False, True, True]


def test_a_worker_whose_seat_another_process_holds_gives_up() -> None:
    one = worker(Chief(run_pb.JoinReply(), Fenced("held by another")))
    one._session = lambda *facts: (_ for _ in ()).throw(Fenced("replaced"))
    with pytest.raises(Fenced, match="held by another") as caught:
        one.run()
    assert caught.value.exit_code == 0


class Left(BaseException):
    """How a script has left."""

    def __init__(self, is_failure: bool) -> None:
        self.is_failure = is_failure


@pytest.mark.parametrize(
    ("error", "lost", "is_told", "leaves"),
    [
        (MemoryError(), "wait", False, False),
        (MemoryError(), "wait", True, True),
        (MemoryError(), "shrink", False, True),
        (Left(is_failure=True), "wait", False, False),
        (Left(is_failure=False), "wait", False, True),
        (KeyboardInterrupt(), "wait", False, True),
    ],
)
def test_a_worker_that_fails_keeps_its_seat_where_the_others_are_to_wait_for_it(
    error: BaseException, lost: str, is_told: bool, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    one = worker(SimpleNamespace(leave=lambda *facts: left.append(facts), is_told=is_told))
    one.config = one.config.model_copy(update={"on_lost_worker": lost})
    one.progress = SimpleNamespace(state=None, alarm=None, enter=lambda phase: None)
    one.client = SimpleNamespace(fenced=lambda: None)
    monkeypatch.setattr(member, "Heartbeat", lambda *_, **__: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(one, "shards_of", lambda place: (_ for _ in ()).throw(error), raising=False)

    with pytest.raises(type(error)):
        one._session(run_pb.JoinReply(incarnation=7, shards=[]))

    assert left == [(7, False)] * leaves


def test_a_worker_that_comes_after_the_end_has_nothing_to_do() -> None:
    late, said = worker(Chief(None)), list[str]()
    late.say = lambda event, **facts: said.append(event)
    late.run()
    assert said == ["the run is over; nothing left to do"]


def standing(phase: str, version: int = 0) -> pb.ResumeReply:
    return pb.ResumeReply(term=1, phase=f"SLICE_PHASE_{phase.upper()}", version=version)


def test_place_0_sends_the_first_weights_to_servers_that_have_none() -> None:
    answers, sent = [[standing("empty"), standing("serving")], [standing("serving")] * 2], []
    client = SimpleNamespace(attach=lambda incarnation: answers.pop(0), initialise=lambda first: sent.append(first))
    assert len(worker(client=client)._ready(1, place=0)) == 2
    assert len(sent) == 1


def test_first_weights_are_never_mixed_with_trained_ones() -> None:
    client = SimpleNamespace(attach=lambda incarnation: [standing("serving", version=9), standing("empty")])
    with pytest.raises(DataError, match="Server 1 has no snapshot, though the run has trained"):
        worker(client=client)._ready(1, place=0)


def test_one_address_for_each_server_is_needed() -> None:
    config = Config(servers=2)
    assert run_process.check_addresses("a:1, b:2,", config) == ["a:1", "b:2"]
    assert run_process.check_addresses("server-{}.servers:1", config) == ["server-0.servers:1", "server-1.servers:1"]
    with pytest.raises(ConfigError, match="names 1 addresses, but the config has 2"):
        run_process.check_addresses("a:1", config)
    with pytest.raises(ConfigError, match="names 'b'; expected host:port, like"):
        run_process.check_addresses("a:1,b", config)


@pytest.mark.parametrize(
    ("batch", "size", "found"),
    [
        ("worker", 5, "batch_size is 5, which makes 5 examples for each worker, but no .* more than 4 .* to 4 or less"),
        ("speed", 10, "no worker has more than 4 in its shards. Set batch_size to 8 or less"),
        ("global", 10, "batch_size is 10, which makes 5 examples for each worker, .* Set batch_size to 8 or less"),
    ],
)
def test_a_mini_batch_that_is_larger_than_a_shard_is_refused_before_training(batch: str, size: int, found: str) -> None:
    one = worker(Chief())
    one.config = Config(workers=2, batch=batch, batch_size=size)
    one._shards.manifest.sizes = [4, 3]
    with pytest.raises(ConfigError, match=found) as caught:
        one.run()
    assert caught.value.exit_code == 78


def test_a_mini_batch_may_be_larger_than_some_shards_and_as_large_as_all_of_a_worker() -> None:
    one = worker(Chief(None, None))
    one.config = Config(workers=2, batch="worker", batch_size=4)
    one._shards.manifest.sizes = [4, 3]
    one.run()
    one.config = Config(workers=2, batch="worker", batch_size=7, data={"shards": 4})
    one._shards.manifest.sizes = [4, 3, 3, 3]
    one.run()
    assert one.chief.was_fenced == [False, False]


@pytest.mark.parametrize(
    ("access", "shards", "lens"), [("shard", 2, [6, 5]), ("shard", 3, [8, 5]), ("all", 2, [6, 5]), ("all", 3, [7, 6])]
)
def test_an_epoch_is_the_workers_shards_or_its_part_of_the_whole_set(access: str, shards: int, lens: list[int]) -> None:
    manifest = Manifest()
    manifest.sizes = (6, 5, 2)[:shards]
    manifest.train_examples = sum((6, 5, 2)[:shards])
    config = Config(workers=2, data={"access": access, "shards": shards})
    assert app.epoch_lens(config, manifest) == lens


@pytest.mark.parametrize(("access", "mine"), [("shard", [1]), ("all", [0, 1])])
def test_a_worker_takes_its_own_shards_or_all(access: str, mine: list[int], monkeypatch: Any) -> None:
    monkeypatch.setattr(member, "Heartbeat", lambda *facts, **more: SimpleNamespace(close=lambda: None))
    one, verified, trained = worker(SimpleNamespace(leave=lambda *facts: None)), [], []
    one.config = Config(workers=2, batch="worker", batch_size=2, data={"access": access})
    one.name = "worker-1"
    one.client = SimpleNamespace(fenced=None)
    one.progress = SimpleNamespace(state=None, enter=lambda phase: None, alarm=threading.Event())
    one._peer = SimpleNamespace(model=SimpleNamespace(is_final=False))
    one._shards.manifest.sizes = (6, 4)
    one._shards.manifest.train_examples = 10
    one._shards.verify = verified.append
    one._take_seat = lambda incarnation, place: trained.append(one.shards_of(place))
    one._lens, one._steps = one.epoch_lens(), 3
    one._session(run_pb.JoinReply(shards=[1], seat=1))

    (shards,), sampler, rows = trained, one.sampler(1, mine), set()
    for clock in range(1, 61):
        rows |= set(sampler.indices(clock).tolist())
    assert (shards, verified) == (mine, mine)
    assert rows == set(range(10 if access == "all" else 4))
    assert sum(len(sampler.indices(clock)) for clock in (1, 2, 3)) == (5 if access == "all" else 4)


class Servers:
    """All slices at clocks that the test says, one list for each time that the worker attaches."""

    def __init__(self, *clocks: list[int], settling: list[Any]) -> None:
        self.clocks = list(clocks)
        self.settling = settling
        self.started: list[int] = []

    def attach(self, incarnation: int) -> list[pb.ResumeReply]:
        return [pb.ResumeReply(phase="SLICE_PHASE_SERVING", clock=clock) for clock in self.clocks.pop(0)]

    def start_after(self, clock: int) -> None:
        self.started.append(clock)

    def settle(self) -> bool:
        found = self.settling.pop(0)
        if isinstance(found, Exception):
            raise found
        return bool(found)


def seated(client: Servers, last: int) -> tuple[Any, list[int]]:
    """A worker whose last clock is named, and from where on it trains each time."""
    one, trained = worker(SimpleNamespace(seat=lambda *facts: run_pb.SeatReply(last=last)), client), []
    one.progress = Progress(CollectorRegistry())
    one._returns = Returns()
    one.train = lambda clock, *facts: trained.append(clock)
    return one, trained


def test_a_worker_that_has_trained_to_the_end_goes_back_when_a_server_loses_its_last_pushes() -> None:
    client = Servers([0, 0], [100, 93], settling=[Behind("server 1 has come back with clock 93"), True])
    one, trained = seated(client, last=100)

    one._take_seat(1, 0)

    assert trained == client.started == [0, 93]
    assert one.renewed == [True], "the abandoned exchange may still send the old gradient"


def test_what_own_steps_remember_is_forgotten_when_a_worker_takes_its_seat_again(monkeypatch: Any) -> None:
    said, forgotten = list[str](), list[int]()
    one = worker(client=SimpleNamespace(pull_start=lambda *facts: [7], retries=0))
    one._peers, one.in_force, one._forgot = None, None, 0
    one.say = lambda event, **facts: said.append(event)
    one.replica.refresh = lambda: None
    one.replica.forget_steps = lambda: forgotten.append(len(said))
    one._training = lambda *facts: SimpleNamespace(policy=SimpleNamespace(scores=()), remembers=True)
    monkeypatch.setattr(app, "train", lambda training, clock: clock)

    for clock in (0, 3):
        one.train(clock, 0, run_pb.SeatReply())

    assert forgotten == [2], "once, before the second training"
    assert said == ["training", "done", "training", "its own part of the optimizer begins with zeros", "done"]


def test_a_worker_started_after_its_last_clock_stays_until_no_server_can_lose_it() -> None:
    client = Servers([100, 100], [93, 100], settling=[Behind("server 0 has come back with clock 93"), True])
    one, trained = seated(client, last=100)

    one._take_seat(2, 0)

    assert (trained, client.settling) == ([93], [])


@pytest.mark.parametrize(
    ("clocks_later", "terms_later", "gone_back", "trained"),
    [
        ([3, 3], [2, 2], 1, 3),  # it has helped
        ([2, 0], [2, 2], 1, 0),  # it has not: the earlier process's pushes are in an older snapshot, too
        ([2, 0], [1, 2], 2, 0),  # one server has only come back meanwhile
    ],
)
def test_a_worker_lets_all_servers_go_back_once_for_pushes_of_an_earlier_process(
    clocks_later: list[int], terms_later: list[int], gone_back: int, trained: int
) -> None:
    answers = [([2, 0], [1, 1]), (clocks_later, terms_later), ([2, 0], [3, 3])]
    asked: list[list[int]] = []

    class Uneven(Servers):
        may_differ = False

        def attach(self, incarnation: int) -> list[pb.ResumeReply]:
            clocks, terms = answers.pop(0)
            oldest = [1, 3] if clocks != [3, 3] else [0, 0]
            return [
                pb.ResumeReply(phase="SLICE_PHASE_SERVING", clock=clock, term=term, oldest=old)
                for clock, term, old in zip(clocks, terms, oldest, strict=True)
            ]

    client = Uneven(settling=[True])
    one, clocks = seated(client, last=9)
    one.config = Config(workers=1, servers=2, batch_size=2, policy={"name": "bsp"})
    one.chief.go_back = lambda incarnation, terms: asked.append(list(terms)) or True

    one._take_seat(2, 0)

    assert (len(asked), clocks) == (gone_back, [trained])
    assert client.may_differ is (trained == 0)
    assert one.progress.state()[3].get(OTHER_BITS, 0.0) == (trained == 0)
