"""Servers in one process, over grpcio and over the lane: a push is in the weights once, and what is wrong changes nothing."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.core.chief.phases import RunPhase
from paceline.core.codecs.codec import load_codec
from paceline.core.errors import BadPush, ConfigError, Gap, PermissionDenied, PlanMismatch, Unauthenticated
from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import make_plan
from paceline.core.values import GroupOption, Manner
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import open_channel
from paceline.rpc.enums import phase_of
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.transport import Parts, Transport
from paceline.server import server as process
from paceline.server.command_line import ToldServer
from paceline.server.parameter_servicer import STRIKES
from paceline.server.push_assembly import Assembly
from paceline.server.server import Server
from paceline.v1 import parameter_service_pb2 as pb
from tests.support.fake_service import Gathered
from tests.support.in_process import LENGTH, SHAPES, Cluster, Pusher, config_of, seated
from tests.support.processes import eventually
from tests.support.threads import none_left

Begin = Callable[..., Cluster]


@pytest.fixture(params=["grpc", "lane"])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as made:

        def start(config: Config, token: str = "") -> Cluster:
            config = config.model_copy(update={"transport": request.param})
            return made.enter_context(closing(Cluster(config, tmp_path, Credentials(token))))

        yield start


def raw(cluster: Cluster, head: dict[str, Any], parts: Parts) -> pb.PullHead:
    """A push of worker-0 that the test makes itself."""
    plan = make_plan(SHAPES, 1, cluster.config.plan)
    facts = {"worker": "worker-0", "incarnation": 1, "clock": 1, "examples": 1, "base_term": 1, "elements": LENGTH}
    message = pb.PushHead(**(facts | {"plan_hash": plan.hash, "codec": "none"} | head))
    return data_plane(cluster).push_pull(message, parts, lambda found: Nowhere(), 10.0)


def data_plane(cluster: Cluster) -> Transport:
    """A way to the first server."""
    lane = cluster.servers[0].lane
    if lane is not None:
        return LaneTransport(f"localhost:{lane.port}", cluster.credentials)
    return GrpcTransport(open_channel(cluster.addresses[0], cluster.credentials))


class Nowhere:
    def buffer(self, offset: int, length: int) -> memoryview | None:
        return None

    def take(self, offset: int, data: memoryview) -> None:
        return


def whole(values: Any = None) -> list[tuple[int, memoryview]]:
    array = np.ones(LENGTH, np.float32) if values is None else np.asarray(values, np.float32)
    return [(0, memoryview(array.tobytes()))]


class Ended:
    """A finished run's server, whose disk takes the weights at the last of these tries."""

    phase, refusal, chief, pause = RunPhase.FINISHED, None, None, 0.0

    def __init__(self, tries: int) -> None:
        self.tries = tries

    def drop_weights(self) -> bool:
        self.tries -= 1
        return self.tries <= 0


def test_a_server_that_is_closed_leaves_no_thread(kind: str, tmp_path: Path) -> None:
    with none_left():
        cluster = Cluster(config_of(transport=kind), tmp_path)
        cluster.evaluator_ready()
        cluster.close()


@pytest.mark.parametrize(
    ("tries", "said"),
    [
        (1, ["finished; the weights are on disk, idling"]),
        (3, ["finished; the weights are in memory until the disk takes them", "the weights are on disk, idling"]),
    ],
)
def test_a_finished_server_says_that_weights_are_on_disk_only_when_they_are(tries: int, said: list[str]) -> None:
    told: list[str] = []
    looks = iter([False, False, False, True])
    stop = SimpleNamespace(wait=lambda seconds: next(looks))

    process._idle(Ended(tries), stop, told.append)

    assert told == said


@pytest.mark.parametrize("policy", ["asp", "ssp", "shat"])
def test_every_push_is_in_the_weights_of_every_server_once(begin: Begin, policy: str) -> None:
    cluster = begin(config_of(policy, workers=2, servers=2, epochs=100))
    pushers = seated(cluster)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda pusher: [pusher.push(1.0) for _ in range(20)], pushers))
    versions = pushers[0].client.pull(pushers[0].model)
    assert versions == [40, 40]
    assert pushers[0].model.tolist() == [-40.0] * LENGTH


def test_rates_options_and_untouched_tensors_reach_every_slice_and_outlast_a_restart(begin: Begin) -> None:
    groups = [{"parameters": ["first.*"], "lr": 0.5}]
    optimizer = Options(name="adam", lr=1.0, betas=(0.0, 0.0), groups=groups)
    cluster = begin(config_of("asp", servers=2, epochs=100).model_copy(update={"optimizer": optimizer}))
    (pusher,) = seated(cluster)

    pusher.push(1.0, manner=Manner((0.25, 0.5), (1,)))  # a step of Adam without memory moves by the rate
    assert pusher.model.tolist() == pytest.approx([-0.25] * 20 + [0.0] * 5 + [-0.25] * 15)
    cluster.restart(1)  # which has all but the first 16 weights
    pusher.push(1.0)
    pusher.push(1.0, manner=Manner(untouched=(0, 2)))
    assert pusher.model.tolist() == pytest.approx([-0.75] * 20 + [-1.0] * 5 + [-1.25] * 15)
    pusher.push(1.0, manner=Manner(options=(GroupOption(0, "betas", (0.5, 0.0)),)))  # in the third step of its tensor
    assert pusher.model.tolist() == pytest.approx([-1.25] * 20 + [-1.5] * 5 + [-1.25 - 1 / (1 - 0.5**3)] * 15)
    with pytest.raises(BadPush, match="expected 2, one for each group"):
        pusher.push(1.0, manner=Manner((1.0,)))


def test_lock_step_folds_the_mean_of_each_round(begin: Begin) -> None:
    cluster = begin(config_of("bsp", workers=2, servers=2, epochs=100))
    pushers = seated(cluster)
    with ThreadPoolExecutor(2) as threads:
        for value in (1.0, 2.0):
            heads = list(threads.map(lambda pusher, value=value: pusher.push(value), pushers))
    assert [[head.version for head in replies] for replies in heads] == [[2, 2], [2, 2]]
    assert pushers[0].model.tolist() == pushers[1].model.tolist() == [-3.0] * LENGTH


def test_a_restarted_server_resumes_under_a_new_term_and_loses_nothing_that_was_on_disk(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=1, servers=2, epochs=100))
    (pusher,) = seated(cluster)
    for _ in range(3):
        pusher.push(1.0)
    cluster.restart(1)
    assert cluster.said[1].has("back from a snapshot")
    heads = pusher.push(1.0)
    assert (heads[1].term, heads[1].outcome) == (2, pb.OUTCOME_FOLDED)
    assert [head.version for head in heads] == [4, 4]
    assert set(pusher.model.tolist()) == {-4.0}


def test_a_server_under_notice_has_its_state_on_disk_while_it_still_answers(begin: Begin) -> None:
    config = config_of("asp", workers=1, servers=2, epochs=100)
    cluster = begin(config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"every": 1000.0})}))
    (pusher,) = seated(cluster)
    pusher.push(1.0)
    cluster.servers[1].save()
    heads = pusher.push(1.0)

    found = cluster.servers[1].folder.newest_snapshot()
    assert found is not None
    assert (found[1].table["version"], heads[1].version) == (1, 2)


@pytest.mark.parametrize("index", [0, 1])
def test_a_server_that_comes_back_with_an_empty_folder_refuses_to_go_on(begin: Begin, index: int) -> None:
    cluster = begin(config_of("asp", workers=1, servers=2, epochs=100))
    (pusher,) = seated(cluster)
    pusher.push(1.0)
    port = cluster.servers[index].port
    cluster.servers[index].close(grace=0)
    rmtree(cluster.folder / f"server-{index}")
    server = cluster.servers[index] = cluster.begin(index, port)

    refusal = eventually(lambda: server.refusal, "the server's word that its snapshots are lost")

    assert refusal.exit_code == 65
    assert f"Server {index} has no snapshot, though the run has trained" in str(refusal)
    assert f"checkpoints-RUN-paceline-server-{index}" in str(refusal)
    assert cluster.servers[1 - index].refusal is None


def test_empty_servers_of_a_run_that_has_yet_to_begin_refuse_nothing(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=1, servers=2, epochs=100))
    cluster.restart(1)
    (pusher,) = seated(cluster)
    pusher.push(1.0)
    chief = cluster.servers[0].chief
    eventually(lambda: chief.run.other_servers.views.get(1), "server 1's word of the view")
    assert [server.refusal for server in cluster.servers] == [None, None]


def test_a_restarted_chief_does_not_wait_for_a_start_again(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=2, servers=2, epochs=100))
    pushers = seated(cluster)
    for pusher in pushers:
        pusher.push(1.0, examples=8)
    cluster.restart(0)
    for pusher in pushers:
        pusher.client.links[0].resume()
    for pusher in pushers:
        pusher.push(1.0)
    status = cluster.run.Status(None, None)  # type: ignore[arg-type]
    assert (phase_of(status), status.examples) == ("training", 18)


def test_an_empty_update_advances_the_clock_and_weighs_nothing(begin: Begin) -> None:
    cluster = begin(config_of("bsp", workers=1, epochs=100))
    (pusher,) = seated(cluster)
    assert pusher.push(None)[0].version == 1
    assert pusher.model.tolist() == [0.0] * LENGTH


def test_a_whole_run_needs_the_token_on_every_line(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=1, servers=2, epochs=100), token="the-run-secret-word")
    (pusher,) = seated(cluster)
    assert pusher.push(1.0)[1].version == 1
    cluster.credentials = Credentials("a-guess-at-the-secret")
    with pytest.raises(Unauthenticated):
        Pusher(cluster).join()


POISON: dict[str, tuple[dict[str, Any], Parts, str]] = {
    "NaN": ({}, whole([np.nan] * LENGTH), "NaN or infinity"),
    "infinity at the end": ({}, whole([0.0] * (LENGTH - 1) + [np.inf]), "NaN or infinity"),
    "too few values": ({}, whole([1.0] * (LENGTH - 1)), "sent 39 of 40"),
    "too many values": ({}, whole([1.0] * (LENGTH + 1)), "for element 0 of 40"),
    "half an element": ({}, [(0, memoryview(b"123"))], "whole elements"),
    "a gap": ({}, [(1, memoryview(b"1234"))], "from 0 on"),
    "another length": ({"elements": 41}, whole(), "announces 41 values"),
    "a future base": ({"base_version": 9}, whole(), "claims weights"),
    "examples without values": ({"elements": 0}, [], "an empty update has 0"),
    "values that were not announced": ({"elements": 0, "examples": 0}, whole(), "announced no values"),
    "another plan": ({"plan_hash": "0" * 64}, whole(), "has another plan"),
    "an unknown codec": ({"codec": "zip"}, whole(), "no 'zip'"),
    "an unknown codec for the reply": ({"pull_codec": "zip"}, whole(), "no 'zip'"),
    "a bad name": ({"worker": "../etc"}, whole(), "is no name"),
    "a clock too far": ({"clock": 9}, whole(), "expected 1"),
}


@pytest.mark.parametrize("kind", POISON)
def test_poison_is_refused_and_nothing_is_touched(begin: Begin, kind: str) -> None:
    cluster = begin(config_of("asp", workers=1, epochs=100))
    (pusher,) = seated(cluster)
    head, parts, words = POISON[kind]
    with pytest.raises((BadPush, PlanMismatch, ConfigError, Gap), match=words):
        raw(cluster, head, parts)
    assert pusher.push(1.0)[0].version == 1
    assert pusher.model.tolist() == [-1.0] * LENGTH


def test_a_member_that_pushes_poison_again_and_again_is_shut_out(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=2, epochs=100))
    good = seated(cluster)[1]
    for _ in range(STRIKES):
        with pytest.raises(BadPush):
            raw(cluster, {}, whole([np.nan] * LENGTH))
    with pytest.raises(PermissionDenied, match="worker-0 sent 10 pushes"):
        raw(cluster, {}, whole())
    assert good.push(1.0)[0].version == 1
    assert cluster.metric("pushes_rejected_total", reason="BadPush") == STRIKES


def test_a_worker_that_is_shut_out_stays_so_when_the_server_comes_back(begin: Begin, tmp_path: Path) -> None:
    cluster = begin(config_of("asp", workers=2, epochs=100))
    seated(cluster)
    for _ in range(STRIKES):
        with pytest.raises(BadPush):
            raw(cluster, {}, whole([np.nan] * LENGTH))

    cluster.restart(0)

    with pytest.raises(PermissionDenied, match=r"worker-0 sent 10 pushes .* remove strikes.json"):
        raw(cluster, {}, whole())
    assert [path.name for path in tmp_path.rglob("strikes.json")] == ["strikes.json"]


def test_poison_from_a_stranger_shuts_nobody_out(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=1, epochs=100))
    Pusher(cluster).join()
    for _ in range(STRIKES + 1):
        with pytest.raises(BadPush):
            raw(cluster, {"worker": "stranger"}, whole([np.nan] * LENGTH))


def test_a_repeat_of_a_push_is_answered_and_not_folded(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=1, epochs=100))
    seated(cluster)
    replies = [raw(cluster, {}, whole()) for _ in range(3)]
    assert [reply.version for reply in replies] == [1, 1, 1]


def test_who_asks_for_a_push_gets_its_answer_with_the_weights_of_today_or_without(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=1, epochs=100))
    (pusher,) = seated(cluster)
    pusher.push(1.0)

    def asked(weights: bool = False, **more: Any) -> tuple[pb.PullHead, list[float]]:
        facts = {
            "worker": "worker-0",
            "incarnation": 1,
            "clock": 1,
            "plan_hash": make_plan(SHAPES, 1, cluster.config.plan).hash,
        }
        request, sink = pb.AskRequest(push=pb.EarlierPush(**(facts | more)), weights=weights), Gathered()
        return data_plane(cluster).ask(request, lambda head: sink, 10.0), sink.values.tolist()

    for weights, values in ((False, []), (True, [-1.0] * LENGTH)):
        head, found = asked(weights)
        assert (head.outcome, head.clock, head.version, found) == (pb.OUTCOME_FOLDED, 1, 1, values)
    with pytest.raises(Gap):
        asked(clock=2)
    with pytest.raises(PlanMismatch):
        asked(plan_hash="0" * 64)


def first_weights(cluster: Cluster, values: np.ndarray, **head: Any) -> None:
    plan = make_plan(SHAPES, 1, cluster.config.plan)
    digest = hashlib.sha256(values.data).digest()
    facts = {"worker": "worker-0", "plan_hash": plan.hash, "codec": "none", "elements": LENGTH, "digest": digest}
    data_plane(cluster).initialise(pb.PushHead(**(facts | head)), whole(values), 10.0)


def test_first_weights_are_taken_once_and_lie_on_disk_at_once(begin: Begin) -> None:
    cluster = begin(config_of("asp", workers=1, epochs=100))
    Pusher(cluster).join()
    first_weights(cluster, np.zeros(LENGTH, np.float32))
    assert list((cluster.folder / "server-0").glob("snapshot-*.json"))
    with pytest.raises(BadPush, match="other first weights"):
        first_weights(cluster, np.ones(LENGTH, np.float32))
    with pytest.raises(BadPush, match="digest"):
        first_weights(cluster, np.zeros(LENGTH, np.float32), digest=b"another")


@pytest.mark.parametrize(("index", "words"), [(2, "index goes from 0 to 1"), (1, "needs the chief's address")])
def test_a_server_that_does_not_fit_the_run_is_refused(tmp_path: Path, index: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Server(config_of(servers=2), ToldServer(index=index, folder=tmp_path))


def test_a_port_in_use_is_refused(begin: Begin, tmp_path: Path) -> None:
    cluster = begin(config_of())
    with pytest.raises(ConfigError, match="in use"):
        Server(config_of(), ToldServer(folder=tmp_path / "other", port=cluster.servers[0].port))


def test_slices_without_elements_are_legal(begin: Begin) -> None:
    cluster = begin(config_of("bsp", workers=1, servers=2, epochs=100, plan={"slices": "whole"}))
    (pusher,) = seated(cluster)
    assert [head.version for head in pusher.push(1.0)] == [1, 1]
    assert pusher.model.tolist() == [-1.0] * LENGTH


def test_half_precision_both_ways_is_exact_for_small_integers(begin: Begin) -> None:
    codec = {"push": "bf16", "pull": "fp16"}
    cluster = begin(config_of(Options(name="asp"), workers=1, servers=2, epochs=100, codec=codec))
    (pusher,) = seated(cluster)
    for _ in range(3):
        pusher.push(2.0)
    assert pusher.model.tolist() == [-6.0] * LENGTH


WHOLE = np.arange(6, dtype=np.float32)


def assembly(codec: str = "none") -> Assembly:
    return Assembly("worker-0", np.empty(6, np.float32), load_codec(codec))


def test_parts_in_order_make_up_the_whole():
    push = assembly()

    for first in (0, 2, 4):
        push.take(first, WHOLE[first : first + 2].data.cast("B"))
    push.check_complete()

    assert np.array_equal(push.values, WHOLE)


def test_a_part_that_is_not_coded_may_be_received_where_it_belongs():
    push = assembly()

    place = push.buffer(0, 24)
    place[:] = WHOLE.data.cast("B")
    push.take(0, place)

    push.check_complete()
    assert np.array_equal(push.values, WHOLE)


def test_a_coded_part_has_no_place_before_it_is_decoded():
    assert assembly("fp16").buffer(0, 12) is None


@pytest.mark.parametrize(
    ("offset", "values", "words"),
    [
        (2, WHOLE[2:4], r"worker-0 sent 8 bytes for element 2 of 6; expected whole elements, at most 6, from 0 on"),
        (0, np.zeros(7, np.float32), r"worker-0 sent 28 bytes for element 0 of 6"),
        (0, np.array([1, np.nan], np.float32), r"worker-0 pushed NaN or infinity near element 0\. Nothing was changed"),
    ],
)
def test_a_part_that_does_not_fit_or_is_not_finite_is_refused(offset, values, words):
    with pytest.raises(BadPush, match=words):
        assembly().take(offset, values.data.cast("B"))


def test_a_push_that_lacks_parts_is_refused():
    push = assembly()
    push.take(0, WHOLE[:4].data.cast("B"))

    with pytest.raises(BadPush, match=r"worker-0 sent 4 of 6 values\. Nothing was changed"):
        push.check_complete()
