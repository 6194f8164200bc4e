"""A worker's line to one server: no matter what fails on the way, a push counts once and weights land in their places."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import registry
from paceline.core.codecs.codec import PACKAGE, load_codec
from paceline.core.codecs.error_feedback import Owed
from paceline.core.errors import BadPush, Behind, DataError, Fenced, Gap, ServersGone, Stopped, TryAgain, VersionGone
from paceline.core.linear.sparse import encode_places
from paceline.core.settings.config import CodecConfig, Config, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import Base, GroupOption, Manner, Sparse
from paceline.rpc.enums import phase_of
from paceline.rpc.transport import OpenSink, Parts, Transport, encoded_parts
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange import server_link as link_module
from paceline.worker.exchange.received_weights import SliceSink
from paceline.worker.exchange.server_link import Abandoned, Link
from paceline.worker.surroundings import Surroundings

CODECS = registry.names(PACKAGE)
SHAPES = tuple((f"layer{index}.weight", (size,)) for index, size in enumerate((3, 5, 2, 4)))
LAYERWISE = PlanConfig(slices="layerwise")
WAIT = pb.PullHead(outcome=pb.OUTCOME_WAIT)
T = TypeVar("T", bound=Message)
Act = Exception | pb.PullHead | Callable[[], pb.PullHead]


def standing(clock: int = 0, phase: str = "serving", term: int = 1, **more: int) -> pb.ResumeReply:
    return pb.ResumeReply(term=term, clock=clock, phase=f"SLICE_PHASE_{phase.upper()}", **more)


def answer(term: int = 1, version: int = 1, **more: Any) -> pb.PullHead:
    return pb.PullHead(outcome=pb.OUTCOME_FOLDED, term=term, version=version, **more)


class Script(Transport):
    """A server that does what the test says, one act for each call, and keeps what it was sent."""

    def __init__(self) -> None:
        self.pushes: deque[Act] = deque()
        self.standings: deque[Exception | pb.ResumeReply | Callable[[], pb.ResumeReply]] = deque()
        self.pulls: deque[Act] = deque()
        self.firsts: deque[Exception | pb.InitialiseReply] = deque()
        self.sent: list[tuple[Any, bytes]] = []
        """Heads of pushes with their bytes, and the pushes that were asked for."""
        self.sparse: list[pb.PushPullSparseRequest | pb.AskSparseRequest] = []
        self.resumed: list[pb.ResumeRequest] = []
        self.asked: list[pb.PullRequest] = []
        self.weights = np.arange(100, dtype=np.float32)

    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        self.resumed.append(request)
        return played(self.standings.popleft())

    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        self.sent.append((copied(head), b"".join(bytes(data) for _, data in parts)))
        return played(self.firsts.popleft())

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        self.sent.append((copied(head), b"".join(bytes(data) for _, data in parts)))
        return self._delivered(played(self.pushes.popleft()), open_sink)

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        self.sent.append((copied(head), b"".join(bytes(data) for _, data in parts)))
        return played(self.pushes.popleft())

    def ask(self, request: pb.AskRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        self.sent.append((copied(request.push), b""))
        return self._delivered(played(self.pushes.popleft()), open_sink)

    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        self.sparse.append(copied(request))
        return pb.PushPullSparseReply(head=played(self.pushes.popleft()))

    def ask_sparse(self, request: pb.AskSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        self.sparse.append(copied(request))
        return pb.PushPullSparseReply(head=played(self.pushes.popleft()))

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        self.asked.append(copied(request))
        return self._delivered(played(self.pulls.popleft()), open_sink)

    def _delivered(self, head: pb.PullHead, open_sink: OpenSink) -> pb.PullHead:
        sink = open_sink(head)
        for offset, data in encoded_parts(self.weights[: head.elements], load_codec("none"), 8):
            sink.take(offset, data)
        return head


def copied(message: T) -> T:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def played(act: Any) -> Any:
    if isinstance(act, Exception):
        raise act
    return act() if callable(act) else act


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Iterator[float]:
        return itertools.repeat(0.0)

    monkeypatch.setattr(link_module, "backoff", none)
    monkeypatch.setattr("paceline.rpc.retries.backoff", none)


class Line:
    """A link to a scripted server, whose slice is layers 0 and 2 of the model: two ranges."""

    def __init__(
        self,
        codec: Any = "none",
        patience: float = 3600.0,
        retain: int | None = 0,
        run: str = "one",
        residuals: Path | None = None,
        **more: Any,
    ) -> None:
        config = Config(run=run, servers=2, plan=LAYERWISE, codec=CodecConfig(push=codec, **more))
        self.server = Script()
        self.stop = threading.Event()
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[str] = []
        self.plan = make_plan(SHAPES, 2, config.plan)
        around = Surroundings(
            config=config,
            name="worker-0",
            addresses=[],
            stop=self.stop,
            say=lambda event, **facts: self.said.append((event, facts)),
            patience=patience,
            residuals=residuals,
        )
        self.link = Link(0, self.server, around, self.plan, self.failures.append, retain)
        self.model = np.zeros(14, np.float32)
        self.gradient = np.arange(14, dtype=np.float32) / 3

    def push(self, clock: int = 1) -> pb.PullHead:
        return self.link.push_pull(clock, 0, self.gradient, 8, self.link.base, lambda head: self.model)

    @property
    def owed(self) -> Owed:
        assert self.link.owed is not None
        return self.link.owed

    @property
    def heads(self) -> list[Any]:
        return [head for head, _ in self.server.sent]

    @property
    def asks(self) -> list[bool]:
        """Which of them were no pushes, but asked for one."""
        return [isinstance(head, pb.EarlierPush) for head in self.heads]


def test_a_slice_of_several_ranges_is_sent_and_received_in_its_places() -> None:
    line = Line()
    line.server.pushes.append(answer(elements=5))
    line.push()
    assert line.server.sent[0][1] == line.gradient[[0, 1, 2, 8, 9]].tobytes()
    assert line.model.tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("acts", "standings", "asks", "failures"),
    [
        ([TryAgain("broken"), answer()], [standing(clock=1)], [False, True], ["UNAVAILABLE"]),
        ([WAIT, WAIT, answer()], [], [False, True, True], []),
        ([WAIT, Gap("never came"), answer()], [standing(clock=0)], [False, True, False], []),
    ],
    ids=["counted before the line broke", "a reply that has to wait", "a question for what never came"],
)
def test_a_push_is_asked_for_and_not_sent_again_unless_it_never_came(acts, standings, asks, failures) -> None:
    line = Line()
    line.server.pushes.extend(acts)
    line.server.standings.extend(standings)
    line.push()
    assert line.asks == asks
    assert [bool(data) for _, data in line.server.sent] == [not ask for ask in asks]
    assert (line.link.answered, line.failures) == (1, failures)


@pytest.mark.parametrize("codec", CODECS)
def test_a_push_that_never_came_is_sent_again_byte_for_byte(codec: str) -> None:
    line = Line(codec)
    line.server.pushes.extend([TryAgain("broken"), Gap("never came"), answer()])
    line.server.standings.extend([standing(clock=0), standing(clock=0)])
    line.push()
    assert len({data for _, data in line.server.sent}) == 1
    assert 0 < len(line.server.sent[0][1]) <= load_codec(codec).most_bytes(5)
    assert {head.SerializeToString() for head in line.heads} == {line.heads[0].SerializeToString()}


def facts(head: pb.PushHead) -> tuple[list[float], list[int], list[tuple[Any, ...]]]:
    """How the server is to step."""
    return ([*head.rates], [*head.untouched], [(option.group, option.name, *option.values) for option in head.options])


def test_rates_options_and_untouched_tensors_are_sent_again_too() -> None:
    line, manner = Line(), Manner((0.5, 0.1), (3, 0), (GroupOption(1, "betas", (0.8, 0.9)),))
    line.server.pushes.extend([TryAgain("broken"), Gap("never came"), answer()])
    line.server.standings.extend([standing(clock=0), standing(clock=0)])
    line.link.push_pull(1, 0, line.gradient, 8, line.link.base, lambda head: line.model, manner)
    assert [*map(facts, line.heads)] == [([0.5, 0.1], [3, 0], [(1, "betas", 0.8, 0.9)])] * 3


def test_a_restarted_server_hears_resume_before_the_push_comes_again() -> None:
    line = Line()
    line.server.pushes.append(answer())
    line.push(1)
    line.server.pushes.extend([TryAgain("gone"), answer(term=2, version=1)])
    line.server.standings.extend([TryAgain("not up"), standing(1, term=2)])
    line.push(2)
    assert [request.clock for request in line.server.resumed] == [1, 1]
    assert line.heads[-1].base_term == 1
    assert tuple(line.link.base) == (2, 1)
    assert any("new term" in event for event, _ in line.said)


# a server that comes back without what it had answered
def pushed(line: Line, clocks: int, durable: int = 0) -> None:
    """All answered; the last answer says what is durable."""
    for clock in range(1, clocks + 1):
        line.server.pushes.append(answer(durable=durable if clock == clocks else 0))
        line.gradient[:] = clock
        line.push(clock)


def bytes_of(line: Line, *clocks: int) -> list[tuple[int, bytes]]:
    return [(clock, np.full(5, clock, np.float32).tobytes()) for clock in clocks]


def test_a_server_gets_what_it_lacks_again_byte_for_byte_and_in_order_before_the_next_push() -> None:
    line = Line(retain=1000)
    pushed(line, 3)
    line.server.sent.clear()
    line.server.pushes.extend([Gap("expected 2"), answer(term=2), WAIT, answer(term=2), answer(term=2)])
    line.server.standings.extend([standing(1, term=2), standing(3, term=2)])
    line.gradient[:] = 4

    line.push(4)

    again = [(head.clock, data) for head, data in line.server.sent]
    assert again == [*bytes_of(line, 4, 2, 3), (3, b""), *bytes_of(line, 4)]
    assert line.asks == [False, False, False, True, False]
    assert line.link.replayed == 2
    assert any(facts == {"server": 0, "first": 2, "last": 3} for _, facts in line.said)


def test_its_head_stands_for_a_push_that_was_dropped_when_the_server_has_lost_it() -> None:
    """The server would have to take it otherwise, and what is owed of it goes out with a later one."""
    line = Line(retain=1000)
    line.server.pushes.extend([answer(), pb.PullHead(outcome=pb.OUTCOME_DROPPED, term=1), answer()])
    manner = Manner((0.5,), (1,), (GroupOption(0, "momentum", (0.8,)),))
    for clock in (1, 2, 3):
        line.link.push_pull(clock, 0, line.gradient, 8, line.link.base, None, manner)
    line.server.sent.clear()
    line.server.standings.extend([standing(0), standing(3)])
    line.server.pushes.extend([answer()] * 3)

    line.link.incarnation = 1
    line.link.catch_up()

    found = [(head.clock, head.dropped, head.elements, head.examples, len(data)) for head, data in line.server.sent]
    assert found == [(1, False, 5, 8, 20), (2, True, 0, 8, 0), (3, False, 5, 8, 20)]
    told = ([0.5], [1], [(0, "momentum", 0.8)])
    assert [*map(facts, line.heads)] == [told, ([], [], []), told]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_again_is_what_was_sent_though_the_gradient_is_overwritten(codec: str) -> None:
    line = Line(codec, retain=1000)
    sent = {}
    for clock in (1, 2, 3):
        line.server.pushes.append(answer())
        line.gradient[:] = np.random.default_rng(clock).standard_normal(14)
        line.push(clock)
        sent[clock] = line.server.sent[-1][1]
        line.gradient[:] = np.nan
    line.server.sent.clear()
    line.server.standings.extend([standing(0), standing(3)])
    line.server.pushes.extend([answer()] * 3)

    line.link.incarnation = 1
    line.link.catch_up()

    assert {head.clock: data for head, data in line.server.sent} == sent


def test_a_replay_that_is_abandoned_does_not_hold_up_the_next_turn() -> None:
    """Its server keeps it waiting for a round that may close only once the worker goes on."""
    line = Line(retain=1000)
    line.server.standings.append(standing())
    line.link.attach(1)
    line.server.pushes.append(answer())
    line.push()
    reached, round_closes = threading.Event(), threading.Event()

    def waits() -> pb.PullHead:
        reached.set()
        round_closes.wait(60)
        return WAIT

    def replay() -> None:
        with pytest.raises(Abandoned):
            line.link.catch_up()

    line.server.standings += [standing(term=2), standing(term=2)]
    line.server.pushes.append(waits)
    replaying = threading.Thread(target=replay)
    replaying.start()
    assert reached.wait(60)
    line.link.attach(2)
    line.link.start_after(0)
    line.server.pushes.append(answer(term=2))

    assert line.push().term == 2
    assert replaying.is_alive()
    round_closes.set()
    replaying.join()


def test_what_a_snapshot_has_is_not_kept() -> None:
    line = Line(retain=1000)
    pushed(line, 3, durable=2)

    assert [push.clock for push in line.link.retained] == [3]
    assert line.link.retained.bytes == 20


@pytest.mark.parametrize("retain", [0, 19, 40])
def test_what_exceeds_the_cap_has_to_be_computed_again(retain: int) -> None:
    line = Line(retain=retain)
    pushed(line, 3)
    assert line.link.retained.bytes <= retain
    line.server.pushes.append(Gap("expected 1"))
    line.server.standings.append(standing(0, term=2))

    with pytest.raises(Behind, match=r"Server 0 .* with clock 0 of worker-0, .* its answers up to clock 3"):
        line.push(4)


def test_clocks_that_the_slice_has_are_asked_for_when_the_worker_goes_back() -> None:
    line = Line(retain=1000)
    pushed(line, 3)
    line.server.standings.append(standing(3))
    line.link.attach(1)
    line.link.start_after(1)
    line.server.sent.clear()
    line.server.pushes.extend([answer(version=3)] * 3)

    for clock in (2, 3, 4):
        line.push(clock)

    assert [head.clock for head in line.heads] == [2, 3, 4]
    assert line.asks == [True, True, False]


def test_a_sparse_push_is_asked_for_with_its_places_and_the_worker_s_weights() -> None:
    line, update = Line(), Sparse(np.array([1, 3]), np.ones(2, np.float32), 5)
    line.server.pushes.extend([WAIT, answer()])

    line.link.push_sparse(1, 0, update, 8, Base(1, 4), np.array([2]))

    pushed, asked = line.server.sparse
    assert asked == pb.AskSparseRequest(
        push=pb.EarlierPush(worker="worker-0", clock=1, plan_hash=line.plan.hash, pull_codec="none"),
        base_term=1,
        base_version=4,
        places=encode_places(update.places),
        wanted=encode_places(np.array([2])),
    )
    assert (asked.places, asked.wanted) == (pushed.places, pushed.wanted)


def test_a_sparse_push_that_is_sent_again_wants_no_weights_nor_does_who_asks_for_it() -> None:
    line, update = Line(retain=1000), Sparse(np.array([1, 3]), np.ones(2, np.float32), 5)
    line.server.pushes.extend([answer(), WAIT, answer()])
    line.link.push_sparse(1, 0, update, 8, line.link.base, None)
    line.server.standings.extend([standing(0, term=2), standing(1, term=2)])

    line.link.incarnation = 1
    line.link.catch_up()

    again = copied(line.server.sparse[0])
    again.wanted = b""
    assert line.server.sparse[1:] == [again]
    assert (line.asks, line.heads[0].clock) == ([True], 1)


def test_weights_that_nobody_wanted_are_refused() -> None:
    line = Line()
    line.server.pushes.extend([WAIT, answer(elements=5)])
    with pytest.raises(BadPush, match="elements too many came"):
        line.link.push_pull(1, 0, line.gradient, 8, line.link.base, None)


def test_a_worker_that_begins_notices_a_server_that_died_since_it_was_asked() -> None:
    line = Line(retain=1000)
    line.server.standings += [standing(2), standing(0, term=2)]
    line.link.attach(1)
    line.link.catch_up()

    with pytest.raises(Behind, match="Server 0 has come back with clock 0 of worker-0, not 2"):
        line.link.start_after(2)


def test_a_worker_that_begins_while_a_server_is_asked_again_notices_that_it_has_died() -> None:
    """Otherwise it would wait forever for weights without its own push."""
    line = Line(retain=1000)

    def began() -> pb.ResumeReply:
        line.link.start_after(2)
        return standing(0, term=2)

    line.server.standings += [standing(2), began]
    line.link.attach(1)

    with pytest.raises(Behind, match=r"Server 0 .* with clock 0 of worker-0, .* its answers up to clock 2"):
        line.link.catch_up()


def test_an_exchange_that_was_abandoned_touches_no_weights() -> None:
    line = Line(retain=1000)

    def goes_back() -> pb.PullHead:
        line.server.standings.append(standing(0))
        line.link.attach(1)
        return answer(elements=5)

    line.server.pushes.append(goes_back)
    with pytest.raises(Abandoned):
        line.push(1)

    assert line.model.tolist() == [0.0] * 14
    assert (line.link.answered, line.link.base.version) == (0, 0)


def test_a_server_that_lost_its_snapshot_is_named() -> None:
    line = Line()
    line.server.pushes.extend([answer(), TryAgain("gone")])
    line.server.standings.append(standing(phase="empty", term=2))
    line.push(1)
    with pytest.raises(DataError, match="Server 0 has no snapshot, though the run has trained"):
        line.push(2)


def test_nothing_is_given_up_before_the_deadline() -> None:
    line = Line()
    line.server.pushes.extend([*[TryAgain("down")] * 300, answer()])
    line.server.standings.extend([standing(clock=0)] * 300)
    assert line.push().version == 1
    assert line.link.retries == 300


def test_a_process_that_is_older_than_the_deadline_is_as_patient_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(patience=60.0)
    days_later = time.monotonic() + 1e6
    monkeypatch.setattr("paceline.worker.exchange.server_link.time.monotonic", lambda: days_later)
    line.server.pushes.extend([TryAgain("restarting"), answer()])
    line.server.standings.append(standing(clock=0))
    assert line.push().version == 1


@pytest.mark.parametrize(
    ("error", "patience", "is_stopped", "raised"),
    [
        (TryAgain("down"), -1.0, False, ServersGone),
        (TryAgain("down"), 3600.0, True, Stopped),
        (Fenced("gone"), 3600.0, False, Fenced),
        (BadPush("poison"), 3600.0, False, BadPush),
    ],
    ids=["after the deadline", "told to stop", "fenced", "poison"],
)
def test_what_no_repeat_can_mend_is_raised_at_once(error, patience, is_stopped, raised) -> None:
    line = Line(patience=patience)
    if is_stopped:
        line.stop.set()
    line.server.pushes.append(error)
    with pytest.raises(raised) as caught:
        line.push()
    assert raised is not ServersGone or caught.value.exit_code == 69


def test_attach_and_first_weights_wait_for_a_server_that_is_not_up_yet() -> None:
    line = Line()
    line.server.standings.extend([TryAgain("down"), TryAgain("down"), standing(phase="empty"), standing(phase="empty")])
    line.server.firsts.extend([TryAgain("down"), pb.InitialiseReply(term=1)])
    assert phase_of(line.link.attach(4)) == "empty"
    line.link.initialise(line.gradient)
    assert line.server.resumed[-1].incarnation == 4
    assert {data for _, data in line.server.sent} == {line.gradient[[0, 1, 2, 8, 9]].tobytes()}


def test_a_reply_of_a_lower_term_never_reaches_the_model() -> None:
    line = Line()
    line.server.pushes.extend([answer(term=1, elements=5), answer(term=2, version=3)])
    line.server.standings.extend([standing(term=2), standing(term=2)])
    line.link.resume()
    assert line.push().version == 3
    assert line.model.tolist() == [0.0] * 14


def test_a_reply_of_a_lower_term_does_not_count_where_no_weights_are_wanted() -> None:
    line = Line()
    line.server.pushes.extend([answer(term=1, lr=9.0), answer(term=2, version=3, lr=0.5)])
    line.server.standings.extend([standing(term=2), standing(term=2)])
    line.link.resume()

    found = line.link.push_pull(1, 0, line.gradient, 8, line.link.base, None)

    assert (found.version, line.link.lr, line.link.term) == (3, 0.5, 2)
    assert len(line.server.sent) == 2


def test_a_reader_goes_on_with_a_server_whose_folder_has_lost_a_start_once_it_answers_again_and_it_is_told() -> None:
    line = Line()
    line.server.pulls.extend(
        [answer(term=9, elements=5), answer(term=2, elements=5), answer(term=2, version=3, elements=5)]
    )
    line.link.pull(None, line.model)
    assert line.link.pull(None, line.model) == 3
    assert [facts["term"] for event, facts in line.said if "new term" in event] == [2]


def test_a_pull_waits_for_its_version() -> None:
    line = Line()
    line.server.pulls.extend([WAIT, TryAgain("down"), answer(version=5, elements=5)])
    assert line.link.pull(5, line.model) == 5
    assert [request.version for request in line.server.asked] == [5, 5, 5]


def test_what_is_to_be_kept_is_pulled_as_the_server_has_it() -> None:
    line = Line(pull="bf16")
    line.server.pulls.extend([answer(elements=5), answer(elements=5)])

    line.link.pull(None, line.model)
    line.link.pull_exactly()
    line.link.pull(None, line.model)

    assert [request.codec for request in line.server.asked] == ["bf16", "none"]


@pytest.mark.parametrize("act", [WAIT, VersionGone("gone")])
def test_an_impatient_pull_takes_the_newest_version(act: Act) -> None:
    line = Line()
    line.server.pulls.extend([act, answer(version=7, elements=5)])
    assert line.link.pull(5, line.model, is_patient=False) == 7
    assert not line.server.asked[-1].HasField("version")


@pytest.mark.parametrize(
    ("more", "told"),
    [({"elements": 6}, "announces 6 weights, expected 5"), ({"elements": 5, "codec": "sign"}, "can't be sent as sign")],
)
def test_weights_of_another_length_or_in_a_codec_that_leaves_some_out_are_refused(more, told: str) -> None:
    line = Line()
    line.server.pushes.append(answer(**more))
    with pytest.raises(BadPush, match=told):
        line.push()


def test_an_empty_update_has_no_parts() -> None:
    line = Line()
    line.server.pushes.append(answer())
    line.link.push_pull(1, 0, None, 0, line.link.base, lambda head: line.model)
    assert (line.heads[0].elements, line.server.sent[0][1]) == (0, b"")


def test_weights_that_stop_half_way_are_asked_for_again() -> None:
    line = Line()
    half = answer(elements=5)
    line.server.weights = np.arange(3, dtype=np.float32)
    line.server.pushes.extend([half, lambda: setattr(line.server, "weights", np.arange(5, dtype=np.float32)) or half])
    line.server.standings.append(standing(clock=1))
    line.push()
    assert line.asks == [False, True]


@given(st.lists(st.integers(1, 6), max_size=12), st.sampled_from(["none", "fp16", "bf16", "int8"]))
def test_parts_of_any_size_fill_the_ranges_of_a_slice_and_nothing_else(sizes: list[int], name: str) -> None:
    plan, codec = make_plan(SHAPES, 2, LAYERWISE), load_codec(name)
    model, values = np.full(14, -1, np.float32), np.arange(5, dtype=np.float32)
    sink, start = SliceSink(model, plan.slices[0], codec), 0
    for size in [*sizes, 5]:
        stop = min(start + size, 5)
        if stop > start:
            data = bytearray(codec.most_bytes(stop - start))
            codec.encode(values[start:stop], data)
            sink.take(start, memoryview(data))
        start = stop
    rounded = 0.5 * 4 / 127 if name == "int8" else 0
    assert model == pytest.approx([0, 1, 2, -1, -1, -1, -1, -1, 3, 4, -1, -1, -1, -1], abs=rounded)
    assert model[[3, 4, 5, 6, 7, 10, 11, 12, 13]].tolist() == [-1] * 9


def test_a_part_out_of_order_or_too_long_is_refused() -> None:
    plan = make_plan(SHAPES, 2, LAYERWISE)
    for offset, told in ((1, "expected 0"), (0, "too many")):
        with pytest.raises(BadPush, match=told):
            SliceSink(np.zeros(14, np.float32), plan.slices[0], load_codec("none")).take(offset, memoryview(bytes(24)))


def test_a_push_without_weights_leaves_the_base_where_the_weights_are_from() -> None:
    line = Line()
    line.server.pushes.extend([answer(version=4, elements=5), answer(version=9, lr=0.5)])
    line.push(1)
    reply = line.link.push_pull(2, 0, line.gradient, 8, line.link.base, None)
    assert (reply.version, line.link.base.version, line.link.lr) == (9, 4, 0.5)
    assert [head.base_version for head in line.heads] == [0, 4]


THRESHOLD = {"name": "threshold", "tau": 3.0}


def test_what_a_push_leaves_out_is_sent_with_a_later_one() -> None:
    line = Line(THRESHOLD)
    line.gradient[[0, 1, 2, 8, 9]] = [1, 2, 3, 0.5, 0.25]
    line.server.pushes.extend([answer(), answer()])
    line.push(1)
    assert line.owed.residual.tolist() == [1, 2, 0, 0.5, 0.25]
    line.push(2)
    out = np.zeros(5, np.float32)
    load_codec("threshold").decode(line.server.sent[1][1], out)
    assert out.tolist() == [0, 4, 3, 0, 0]
    assert line.owed.residual.tolist() == [2, 0, 0, 1, 0.5]


@pytest.mark.parametrize("codec", [name for name in CODECS if load_codec(name).biased])
def test_a_push_that_is_dropped_is_owed_again(codec: str) -> None:
    line = Line(codec)
    line.server.pushes.extend([TryAgain("broken"), WAIT, pb.PullHead(outcome=pb.OUTCOME_DROPPED, term=1)])
    line.server.standings.append(standing(clock=0))
    line.push(1)
    np.testing.assert_allclose(line.owed.residual, line.gradient[[0, 1, 2, 8, 9]], atol=1e-6)


@pytest.mark.parametrize(
    ("owed", "gradient", "outcome"), [(0, 7, pb.OUTCOME_FOLDED), (0, 7, pb.OUTCOME_BUFFERED), (2, 1, pb.OUTCOME_FOLDED)]
)
def test_what_is_owed_goes_out_with_the_next_push_and_what_is_used_is_not_owed(owed, gradient, outcome) -> None:
    line = Line(THRESHOLD)
    line.owed.residual[:] = owed
    line.gradient[:] = gradient
    line.server.pushes.append(pb.PullHead(outcome=outcome))
    line.push(1)
    assert line.owed.residual.tolist() == [0] * 5


def test_an_empty_update_sends_nothing_and_leaves_what_is_owed() -> None:
    line = Line(THRESHOLD)
    line.owed.residual[:] = 2
    line.server.pushes.append(pb.PullHead(outcome=pb.OUTCOME_DROPPED))
    line.link.push_pull(1, 0, None, 0, line.link.base, None)
    assert line.server.sent[0][1] == b""
    assert line.owed.residual.tolist() == [2] * 5


def test_without_error_feedback_what_is_left_out_is_lost() -> None:
    line = Line(THRESHOLD, error_feedback=False)
    line.server.pushes.append(answer())
    line.push(1)
    assert line.link.owed is None
    assert line.gradient.tolist() == (np.arange(14, dtype=np.float32) / 3).tolist()
