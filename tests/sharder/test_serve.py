"""Shards that are streamed: each process fetches what it needs, whole and right or not at all."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from scipy.sparse import csr_array, random_array

from paceline.core.errors import ConfigError, DataError, DiskError, ServersGone, Stopped, TryAgain, Unauthenticated
from paceline.core.settings.config import Config
from paceline.data.dataset import Labelled, Selection
from paceline.data.manifest import FileName, Recipe
from paceline.data.shard_writer import Dealt, write_shards
from paceline.data.shards import Shards, open_shards
from paceline.rpc.auth import OPEN, Credentials
from paceline.rpc.channel import open_channel
from paceline.sharder import serve
from paceline.v1 import shard_service_pb2 as pb
from paceline.v1.shard_service_pb2_grpc import ShardServiceStub
from paceline.worker.command_line import ToldWorker
from paceline.worker.startup import streamed_shards as shard_client
from paceline.worker.startup.start import Start
from paceline.worker.startup.streamed_shards import RemoteShards, ShardClient
from paceline.worker.startup.wait_for_shards import find_shards
from tests.support.in_process import Said
from tests.support.ports import own_port
from tests.support.processes import TOKEN, eventually

RECIPE = Recipe(task="made", strategy="random", shards=2, validation=0, test=0, seed=0, examples="a" * 64)
ROWS, D = 40, 9


def dense() -> Any:
    return np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3)


def sparse() -> Any:
    values = random_array((ROWS, D), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    found = csr_array(values * (np.arange(ROWS) % 5 > 0)[:, None])  # some rows are empty
    found.eliminate_zeros()
    return found


def written(folder: Path, features: Any, seed: int = 0) -> Shards:
    """Two shards that share the examples 3 and 4, and both parts."""
    source = Labelled(features, np.arange(ROWS) % 3)
    shards = [Selection(source, np.arange(0, 18)), Selection(source, np.concatenate([[3, 4], np.arange(18, 30)]))]
    parts = {"validation": Selection(source, np.arange(30, 34)), "test": Selection(source, np.arange(34, 40))}
    write_shards(folder, "made", RECIPE.model_copy(update={"seed": seed}), Dealt(shards), parts)  # type: ignore[arg-type]
    return open_shards(folder)


class Calls:
    """What readers asked a server for; `spoil` may change the messages of a call, given its number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str, list[tuple[int, int]]]] = []
        self.spoil: Callable[[int, Iterator[Any], Any], Iterator[Any]] = lambda number, messages, context: messages
        fetch = serve.ShardServicer.Fetch

        def noted(servicer: Any, request: pb.FetchRequest, context: Any) -> Iterator[Any]:
            self.asked.append((request.name, request.file, [(each.start, each.stop) for each in request.ranges]))
            return self.spoil(len(self.asked), fetch(servicer, request, context), context)

        monkeypatch.setattr(serve.ShardServicer, "Fetch", noted)

    @property
    def files(self) -> list[str]:
        return [f"{name}/{file}" for name, file, _ in self.asked]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.setattr(serve, "PART", 64)
    return Calls(monkeypatch)


class Served:
    """Shards on a server, and readers with their own folders."""

    def __init__(self, folder: Path, features: Any, token: str = "") -> None:
        self.folder = folder
        self.registry = CollectorRegistry()
        self.said = Said()
        self.stop = threading.Event()
        self.shards = written(folder / "served", features)
        self.server = serve.ShardServer(self.shards, Credentials(token), own_port(), self.registry)
        self.server.start()
        self.address = f"localhost:{self.server.port}"

    def reader(self, name: str = "reader", token: str = "", patience: float = 60.0) -> RemoteShards:
        client = ShardClient(self.address, Credentials(token), patience, self.stop, self.said)
        return RemoteShards(self.folder / name, client, self.said)

    def copies(self, name: str = "reader") -> list[str]:
        return sorted(path.name for path in (self.folder / name).iterdir())


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def begin(features: Any = None, token: str = "") -> Served:
        made.append(Served(tmp_path, dense() if features is None else features, token))
        return made[-1]

    yield begin
    for one in made:
        one.stop.set()
        one.server.close(0)


def same(found: Any, expected: Any) -> bool:
    """Equal values of the same type, dense or sparse."""
    if hasattr(expected, "toarray"):
        found, expected = found.toarray(), expected.toarray()
    return found.dtype == expected.dtype and np.array_equal(found, expected)


# what comes over
@pytest.mark.parametrize("features", [dense, sparse])
def test_a_reader_gets_what_the_files_hold(serving: Any, calls: Calls, features: Callable[[], Any]) -> None:
    served = serving(features())
    reader, whole = served.reader(), served.shards
    for ask in (lambda one: one.shard(1), lambda one: one.part("validation"), lambda one: one.part("test")):
        mine, theirs = ask(reader), ask(whole)
        for what in ("features", "labels", "ids"):
            assert same(getattr(mine, what), getattr(theirs, what))
    assert reader.manifest == whole.manifest


@pytest.mark.parametrize("features", [dense, sparse])
def test_examples_looked_up_come_without_their_shards(serving: Any, calls: Calls, features: Callable[[], Any]) -> None:
    served = serving(features())
    reader = served.reader()
    positions = np.array([0, 5, 6, 17, 18, 31])
    rows, labels = reader.rows(positions)
    expected, expected_labels = served.shards.rows(positions)

    assert same(rows, expected)
    assert same(labels, expected_labels)
    assert [reader.ids(number).tolist() for number in (0, 1)] == [served.shards.ids(n).tolist() for n in (0, 1)]
    assert served.copies() == [".ids"]


def test_neighbouring_rows_are_asked_for_as_one(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, asked = serving(dense()).reader(), []
    fetch = reader._client.fetch
    noted = lambda name, file, spans, take: (asked.append(len(spans)), fetch(name, file, spans, take))  # noqa: E731
    monkeypatch.setattr(reader._client, "fetch", noted)

    _, labels = reader.rows(np.array([0, 1, 2, 4, 5]))

    assert len(labels) == 5
    assert asked == [2, 2]


def test_a_reader_fetches_its_own_shard_once_and_no_other(serving: Any, calls: Calls) -> None:
    served = serving()
    reader = served.reader()
    reader.verify(0)
    reader.shard(0)
    reader.ids(0)
    served.reader().verify(0)  # the process that comes after

    assert sorted(calls.files) == ["shard-0/features", "shard-0/ids", "shard-0/labels"]
    assert served.copies() == ["shard-0"]
    sizes = [entry.bytes for entry in served.shards.entry("shard-0").files.values()]
    assert served.registry.get_sample_value("paceline_sharder_sent_bytes_total") > sum(sizes)  # and the manifest
    requests = served.registry.get_sample_value("paceline_sharder_requests_total", {"method": "Fetch", "code": "OK"})
    assert requests == 3


def test_a_manifest_or_counts_without_end_are_not_waited_for(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serving(sparse())
    reader = served.reader()
    width = served.shards.manifest.shards[0].columns
    wider = np.zeros(width + 1, np.int64)
    monkeypatch.setattr(served.shards, "feature_counts", lambda: wider)
    with pytest.raises(DataError, match=f"sent more than {8 * width} bytes as the counts of {width} features"):
        reader.feature_counts()
    monkeypatch.setattr(shard_client, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="more than 100 bytes as the manifest, so it is not the run's"):
        served.reader("other")


@pytest.mark.parametrize("ends", [[0, 10**12], [-8, 3], [4, 2]])
def test_ends_of_rows_that_lie_fetch_nothing(serving: Any, monkeypatch: pytest.MonkeyPatch, ends: list[int]) -> None:
    served = serving(sparse())
    reader, elements = served.reader(), RemoteShards._elements

    def lying(self: RemoteShards, name: str, file: FileName, starts: Any, stops: Any) -> Any:
        return np.array(ends) if file == "indptr" else elements(self, name, file, starts, stops)

    monkeypatch.setattr(RemoteShards, "_elements", lying)
    with pytest.raises(DataError, match=r"shard-0/indptr came damaged from .* do not rise from 0 to the"):
        reader.rows(np.array([0]))


def test_the_server_counts_features_and_duplicates_once(serving: Any) -> None:
    served = serving(sparse())
    counts = served.reader().feature_counts()

    assert counts.tolist() == (sparse()[:30].toarray() != 0).sum(axis=0).tolist()
    assert served.shards.feature_counts().tolist() == counts.tolist()


def test_counting_that_takes_long_is_asked_for_again(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_LONGEST_WAIT", 0.0)
    served, go_on, times = serving(sparse()), threading.Event(), []
    count = served.shards.feature_counts

    def slowly() -> Any:
        times.append(1)
        go_on.wait(60)
        return count()

    served.shards.feature_counts = slowly
    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(served.reader(name).feature_counts) for name in ("a", "b")]
        asked, value = {"method": "Counts", "code": "UNAVAILABLE"}, served.registry.get_sample_value
        again = lambda: (value("paceline_sharder_requests_total", asked) or 0) > 2  # noqa: E731
        eventually(again, "questions that are asked again")
        go_on.set()
        assert [each.result().tolist() for each in readers] == [count().tolist()] * 2
    assert times == [1]


# streams that break, bytes that are wrong
def test_a_broken_stream_goes_on_where_it_broke(serving: Any, calls: Calls) -> None:
    def break_twice(number: int, messages: Iterator[Any], context: Any) -> Iterator[Any]:
        for count, message in enumerate(messages):
            if number < 3 and count == 2:
                raise TryAgain("the cable is out")
            yield message

    calls.spoil = break_twice
    served = serving()
    labels = served.reader().shard(0).labels

    size = served.shards.entry("shard-0").files["labels"].bytes
    assert same(labels, served.shards.shard(0).labels)
    assert calls.asked[:3] == [("shard-0", "labels", [(start, size)]) for start in (0, 128, 256)]
    assert not served.said.has("damaged")


def test_a_large_file_comes_in_turns(serving: Any, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_client, "TURN", 200)
    served = serving()
    served.reader().verify("test")

    starts = [span[0][0] for _, file, span in calls.asked if file == "features"]
    assert starts == [0, 200]


def test_bytes_that_were_damaged_on_the_way_are_fetched_anew(serving: Any, calls: Calls) -> None:
    def flip(number: int, messages: Iterator[Any], context: Any) -> Iterator[Any]:
        for message in messages:
            first = message.data[0] ^ (number == 1)
            yield type(message)(data=bytes([first]) + message.data[1:])

    calls.spoil = flip
    served = serving()

    assert same(served.reader().shard(0).labels, served.shards.shard(0).labels)
    assert calls.files[:3] == ["shard-0/labels", "shard-0/labels", "shard-0/ids"]
    assert served.said.has("a copy is damaged")


def test_a_file_that_is_damaged_at_the_server_is_never_taken(serving: Any, calls: Calls) -> None:
    served = serving()
    file = served.folder / "served/shard-0/labels.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    with pytest.raises(DataError, match="shard-0/labels came damaged 3 times") as caught:
        served.reader().shard(0)
    assert caught.value.exit_code == 65
    assert served.copies() == [".shard-0.fetching"]


def test_a_file_that_was_cut_off_at_the_server_is_named(serving: Any) -> None:
    served = serving()
    file = served.folder / "served/shard-0/features.npy"
    os.truncate(file, 200)

    with pytest.raises(DataError, match=r"features.npy is damaged: it ends at byte 200"):
        served.reader().shard(0)


@pytest.mark.parametrize("right", [True, False])
def test_what_a_killed_process_has_fetched_is_kept_where_it_is_right(serving: Any, calls: Calls, right: bool) -> None:
    served = serving()
    content = (served.folder / "served/shard-0/features.npy").read_bytes()
    part = served.folder / "reader/.shard-0.fetching/features.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content[:150] if right else b"x" * 150)
    shutil.copy(served.folder / "served/shard-0/ids.npy", part.parent)

    assert same(served.reader().shard(0).features, served.shards.shard(0).features)
    asked = [(150, len(content))] if right else [(150, len(content)), (0, len(content))]
    assert [spans[0] for _, file, spans in calls.asked if file == "features"] == asked
    assert "shard-0/ids" not in calls.files
    assert served.copies() == ["shard-0"]


def test_only_what_is_damaged_in_a_copy_is_fetched_anew(serving: Any, calls: Calls) -> None:
    served = serving()
    served.reader().verify(0)
    (served.folder / "reader/shard-0/labels.npy").write_bytes(b"something else")
    (served.folder / "reader/shard-0/ids.npy").unlink()
    calls.asked.clear()

    assert same(served.reader().shard(0).labels, served.shards.shard(0).labels)
    assert calls.files == ["shard-0/labels", "shard-0/ids"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_copy_that_can_not_be_written_is_a_disk_error(
    serving: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    served = serving()
    reader, opened = served.reader(), Path.open

    class Stream:
        """A file whose disk is full."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> "Stream":
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def tell(self) -> int:
            return 0

        def write(self, data: bytes) -> int:
            raise OSError(number, os.strerror(number))

    def opening(path: Path, *mode: Any, **more: Any) -> Any:
        file = opened(path, *mode, **more)
        return Stream(file) if path.suffix == ".part" else file

    monkeypatch.setattr(Path, "open", opening)
    with pytest.raises(DiskError, match=f"{os.strerror(number)}.*Free some space or give --shards") as caught:
        reader.shard(0)
    assert caught.value.exit_code == 73
    assert served.copies() == [".shard-0.fetching"]


# what is refused
def test_only_files_that_the_manifest_names_are_sent(serving: Any) -> None:
    served = serving()
    (served.folder / "served/shard-0/secret.npy").write_text("secret")
    stub = ShardServiceStub(open_channel(served.address))
    fingerprint = served.shards.manifest.fingerprint

    def asked(name: str, file: str, stop: int = 8, digest: str = fingerprint) -> str:
        ranges = [pb.ByteRange(start=0, stop=stop)]
        try:
            list(stub.Fetch(pb.FetchRequest(fingerprint=digest, name=name, file=file, ranges=ranges), timeout=10))
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "sent"

    assert asked("shard-0", "labels") == "sent"
    for name, file in [
        ("shard-2", "labels"),
        ("../served/shard-0", "labels"),
        ("", "manifest"),
        ("shard-0", "secret"),
        ("shard-0", "../shard-1/labels"),
        (str(served.folder / "served/shard-0"), "labels"),
    ]:
        assert asked(name, file).startswith("FAILED_PRECONDITION: The shard server has no file"), name
    assert "it serves shard-0 to shard-1, validation, test" in asked("shard-2", "labels")
    assert asked("shard-0", "labels", 10_000).startswith("INVALID_ARGUMENT: The call asks for 10,000 bytes")
    assert asked("shard-0", "labels", digest="b" * 64).startswith("FAILED_PRECONDITION: The shards here ")


def test_more_than_one_turn_in_a_call_is_refused(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MOST", 100)
    with pytest.raises(Exception, match="A call may ask for at most 100"):
        serving().reader().verify(0)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda served: served.reader().shard(2), r"There is no shard-2 .*shard-0 to shard-1"),
        (lambda served: served.reader().feature_counts(), "hold dense rows"),
        (lambda served: served.reader("served"), r"holds shards that a sharder wrote here.*data.source=files"),
    ],
    ids=["an unknown shard", "counts of dense rows", "copies in the sharder's own folder"],
)
def test_what_can_not_be_read_is_refused_without_asking_for_a_file(
    serving: Any, calls: Calls, ask: Callable[[Served], Any], told: str
) -> None:
    with pytest.raises(DataError, match=told):
        ask(serving())
    assert calls.asked == []


@pytest.mark.parametrize(
    ("token", "seen"), [("", "carries no token"), ("another-random-word", "is of another run, or of an older secret")]
)
def test_a_reader_without_the_token_is_refused_at_once(serving: Any, token: str, seen: str) -> None:
    served = serving(token=TOKEN)
    with pytest.raises(Unauthenticated, match=seen) as caught:
        served.reader(token=token)
    assert caught.value.exit_code == 78
    assert served.reader(token=TOKEN).manifest == served.shards.manifest


def test_shards_that_were_made_anew_meanwhile_are_refused(serving: Any) -> None:
    served = serving()
    reader, port = served.reader(), served.server.port
    served.server.close(0)
    shutil.rmtree(served.folder / "served")
    anew = written(served.folder / "served", dense(), seed=1)
    served.server = serve.ShardServer(anew, OPEN, port, CollectorRegistry())
    served.server.start()

    with pytest.raises(DataError, match=r"are not those that the caller began with"):
        reader.shard(0)


# waiting
def test_a_server_that_never_comes_is_given_up_and_a_reader_that_is_stopped_goes(serving: Any) -> None:
    served = serving()
    served.server.close(0)
    with pytest.raises(ServersGone, match=r"the shard server at localhost:.* did not answer in time") as caught:
        served.reader(patience=0.2)
    assert caught.value.exit_code == 69
    served.stop.set()
    with pytest.raises(Stopped):
        served.reader()


def test_a_reader_that_is_stopped_in_mid_stream_goes(serving: Any, calls: Calls) -> None:
    served = serving()
    reader = served.reader()

    def stop(number: int, messages: Iterator[Any], context: Any) -> Iterator[Any]:
        for message in messages:
            served.stop.set()
            yield message

    calls.spoil = stop
    with pytest.raises(Stopped):
        reader.shard(0)
    assert served.copies() == [".shard-0.fetching"]


def test_a_server_that_restarts_in_mid_shard_is_waited_for(serving: Any, calls: Calls) -> None:
    served = serving()
    broken, closed, reader = threading.Event(), threading.Event(), served.reader()

    def stuck(number: int, messages: Iterator[Any], context: Any) -> Iterator[Any]:
        yield next(messages)
        if number == 1:
            broken.set()
            closed.wait(60)
        yield from messages

    calls.spoil = stuck
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(reader.shard, 0)
        assert broken.wait(60)
        served.server.close(0)
        served.server = serve.ShardServer(served.shards, OPEN, served.server.port, CollectorRegistry())
        served.server.start()
        closed.set()
        assert same(reading.result(60).features, served.shards.shard(0).features)
    assert calls.asked[1][:2] == calls.asked[0][:2]


# settings
@pytest.mark.parametrize(("source", "server"), [("server", ""), ("files", "localhost:1")])
def test_the_setting_and_the_address_belong_together(tmp_path: Path, source: str, server: str) -> None:
    config = Config.model_validate({"data": {"source": source}})
    start = Start(ToldWorker(shards=tmp_path, servers="localhost:2", shard_server=server), config, OPEN)
    with pytest.raises(ConfigError, match=f"data.source is {source}, but you gave (a|no) --shard-server"):
        find_shards(start, threading.Event(), Said())


def test_too_few_shards_at_the_server_are_told(serving: Any, tmp_path: Path) -> None:
    served = serving()
    config = Config.model_validate({"workers": 3, "data": {"source": "server"}})
    told = ToldWorker(shards=tmp_path / "r", servers="localhost:2", shard_server=served.address)
    start = Start(told, config, OPEN)
    with pytest.raises(ConfigError, match="3 workers but only 2 shards in localhost:"):
        find_shards(start, threading.Event(), Said())
