"""A server's snapshots in an object store: what is sent, what stays there, and what a server without a folder goes on from."""

import errno
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("moto", reason="moto is not installed: make setup")

from paceline.core.errors import ConfigError, DataError, DiskError, Stopped, StoreGone
from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.core.slice.state import SliceState
from paceline.data.stored_folder import StoredFolder, once
from paceline.server import snapshots
from paceline.server.disk import Disk
from paceline.server.fetched_snapshots import FetchedSnapshots
from paceline.server.json_files import Owner
from paceline.server.sent_snapshots import SentSnapshots, Superseded
from paceline.server.state_folder import StateFolder
from tests.support.disks import FailingDisk
from tests.support.in_process import Cluster, Said, config_of, seated
from tests.support.object_store import ObjectStore, object_store
from tests.support.processes import eventually

PLAN = make_plan((("a.weight", (3, 2)), ("a.bias", (3,))), 1, Config().plan)
OWNER = Owner("r", 0, 1)
DAMAGED = "snapshot in the store is damaged, trying the one before"


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as found:
        found.put("mine", {})
        yield found


@pytest.fixture(autouse=True)
def variables(bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.set_variables(monkeypatch)


class Place:
    """One server's folders and its part of the bucket."""

    def __init__(self, bucket: ObjectStore, folder: Path) -> None:
        self.bucket = bucket
        self.folder = folder
        self.url = f"s3://mine/{folder.name}"
        self.said = Said()

    @property
    def names(self) -> list[str]:
        """What is in the store, below the server's folder there."""
        start = f"{self.folder.name}/r/server-0/"
        return [name.removeprefix(start) for name in self.bucket.names("mine") if name.startswith(start)]

    @property
    def versions(self) -> list[int]:
        """Of the whole snapshots there, oldest first."""
        manifests = [name for name in self.names if "/snapshot-" in name and name.endswith(".json")]
        return [int(name.split("/")[1].partition("-")[2]) for name in manifests]

    def key(self, version: int, ending: str) -> str:
        """The name in the bucket of a file of a snapshot."""
        name = next(name for name in self.names if f"-{version}/" in name and name.endswith(ending))
        return f"{self.folder.name}/r/server-0/{name}"

    def open(self, name: str, disk: Disk | None = None, keep: int = 3, owner: Owner = OWNER) -> "Start":
        return Start(self, self.folder / name, disk, keep, owner)


class Start:
    """One start of the server in a folder, and what it sends. State and folder are real, the training is not."""

    def __init__(self, place: Place, folder: Path, disk: Disk | None, keep: int, owner: Owner) -> None:
        fetched = FetchedSnapshots(place.url, owner, place.said, threading.Event())
        self.folder = StateFolder(folder, keep, place.said, owner, disk, fetched.fill)
        self.sent = SentSnapshots(place.url, owner, self.folder)

    def save(self, *versions: int, rounds: bool = False) -> "Start":
        """Writes and sends these, one after the other."""
        for version in versions:
            table = {"version": version, "pushes": version, "examples": version, "clocks": {}, "policy": {}}
            table |= {"rounds": True} if rounds else {}
            self.folder.save_snapshot(PLAN, SliceState(np.full(9, version, np.float32), [], table))
            self.sent.send(self.folder.current)
            self.sent.has(self.folder.current)
            self.sent.prune()
        return self

    @property
    def version(self) -> int | None:
        """That of the newest intact snapshot in the folder."""
        found = self.folder.newest_snapshot()
        assert found is None or (found[1].weights == found[1].table["version"]).all()
        return None if found is None else int(found[1].table["version"])

    def close(self) -> None:
        self.folder.close()


@pytest.fixture
def place(bucket: ObjectStore, tmp_path: Path) -> Place:
    return Place(bucket, tmp_path)


def test_a_start_with_an_empty_folder_goes_on_from_the_store_under_a_term_that_nobody_had(place: Place) -> None:
    first = place.open("first").save(1, 2)
    first.folder.check_settings(["task=digits"])
    first.folder.save_strikes({"worker-1": 2})
    first.sent.send_tables()

    again = place.open("again")

    assert again.version == 2
    assert again.folder.term > 1_000_000_000 > first.folder.term
    assert again.folder.strikes() == {"worker-1": 2}
    with pytest.raises(ConfigError, match="task=digits; task=rcv1"):
        again.folder.check_settings(["task=rcv1"])
    assert not [file.name for file in (place.folder / "again").iterdir() if "fetch" in file.name or "part" in file.name]


def test_a_store_with_nothing_in_it_is_a_new_run(place: Place) -> None:
    start = place.open("new")
    assert (start.version, start.folder.term, place.said) == (None, 1, [])


def test_a_folder_with_snapshots_is_gone_on_from_and_not_filled(place: Place) -> None:
    first = place.open("first").save(1, 2)
    first.folder.save_snapshot(PLAN, SliceState(np.full(9, 3, np.float32), [], {"version": 3, "clocks": {}}))
    first.close()

    again = place.open("first")
    again.sent.look()

    assert again.version == 3
    assert again.sent.numbers == {1, 2}, "the third is not in the store"


def test_the_store_keeps_as_many_as_the_folder_and_those_that_a_run_may_go_back_to(place: Place) -> None:
    start = place.open("first", keep=2).save(1, 2, rounds=True)
    start.folder.spare(2)
    start.folder.spare_good([3])
    start.save(3, 4, 5, 6, rounds=True)

    assert place.versions == [2, 3, 5, 6] == sorted(start.folder.versions)
    again = place.open("again", keep=2)
    assert sorted(again.folder.round_versions()) == [2, 3, 5, 6]


@pytest.mark.parametrize("ending", [".safetensors", ".json"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "empty"])
def test_a_damaged_snapshot_in_the_store_is_passed_over_and_named(place: Place, ending: str, damage: str) -> None:
    place.open("first").save(1, 2)
    key = place.key(2, f"snapshot-000000000002{ending}")
    content = place.bucket.content("mine", key)
    if damage == "gone":
        place.bucket.remove("mine", key)
    else:
        changed = {"changed": content[:-1] + b"?", "cut": content[:-9], "empty": b""}[damage]
        place.bucket.replace("mine", key, changed)

    again = place.open("again")

    assert again.version == 1
    assert [event for event, _ in place.said].count(DAMAGED) == (damage != "gone"), "without a file it is not whole yet"
    again.save(3)
    assert place.open("third").version == 3


def test_without_any_intact_snapshot_the_start_ends_instead_of_beginning_anew(place: Place) -> None:
    place.open("first").save(1, 2)
    for version in (1, 2):
        place.bucket.replace("mine", place.key(version, ".safetensors"), b"")

    for _ in range(2):
        with pytest.raises(DataError, match=r"None of the 2 snapshots in s3://mine/.* is intact"):
            place.open("again")


def test_a_damaged_table_falls_back_to_the_one_of_an_older_snapshot(place: Place) -> None:
    first = place.open("first")
    first.folder.save_strikes({"worker-1": 1})
    first.save(1)
    first.folder.save_strikes({"worker-1": 2})
    first.save(2)
    place.bucket.replace("mine", place.key(2, "strikes.json"), b"no such thing")

    assert place.open("again").folder.strikes() == {"worker-1": 1}
    assert any("strikes.json is damaged" in facts.get("why", "") for _, facts in place.said)


def test_an_older_start_that_still_runs_overwrites_nothing_and_has_to_end(place: Place) -> None:
    old = place.open("old").save(1, 2)
    new = place.open("new").save(3)
    before = place.names

    with pytest.raises(Superseded, match="a later start of this server"):
        old.save(30, 31, 32)

    assert [name for name in before if name not in place.names] == []
    assert place.open("third").version == 3
    assert new.save(4).version == 4
    assert 30 not in place.versions, "what the older one has sent is removed with the next snapshot"


def test_a_folder_that_comes_back_after_a_later_start_is_refused(place: Place) -> None:
    old = place.open("old").save(1, 2)
    old.close()
    place.open("new").save(3)

    with pytest.raises(Superseded, match=r"start it with an empty folder"):
        place.open("old").sent.look()


def test_of_two_starts_at_once_each_learns_of_the_other_and_their_histories_are_not_mixed(place: Place) -> None:
    place.open("first").save(1, 2)
    one, two = place.open("one"), place.open("two")
    one.sent._folder.term = two.sent._folder.term  # in the same second
    one.save(3, 4)
    with pytest.raises(Superseded, match="two runs at a time need two names"):
        two.save(30, 31)
    with pytest.raises(Superseded):
        one.save(5)

    again = place.open("again")
    assert again.version in (5, 30)
    assert again.folder.versions in ([1, 2, 30], [1, 2, 3, 4, 5], [3, 4, 5])
    assert not [event for event, _ in place.said if event == DAMAGED]


def test_a_copy_of_a_folder_from_before_the_last_snapshots_is_refused_and_removes_nothing(place: Place) -> None:
    first = place.open("first").save(1, 2)
    shutil.copytree(place.folder / "first", place.folder / "copy")
    first.save(3, 4)
    first.close()
    before = place.names

    with pytest.raises(Superseded, match=r"that .*copy lacks"):
        place.open("copy").sent.look()

    assert place.names == before
    place.open("first").sent.look()


def test_a_folder_that_has_gone_back_may_be_behind_the_store(place: Place) -> None:
    first = place.open("first").save(1, 2, 3, rounds=True)
    assert first.folder.go_back(2) is not None
    first.close()

    again = place.open("first")
    again.sent.look()

    assert again.save(4).version == 4


@pytest.mark.parametrize("owner", [Owner("r", 1, 2), Owner("other", 0, 1)])
def test_a_folder_of_another_server_or_run_in_the_store_is_refused_by_name(place: Place, owner: Owner) -> None:
    place.open("first").save(1)
    start = f"{place.folder.name}/r/server-0/"
    for name in place.names:
        moved = f"{place.folder.name}/{owner.run}/server-{owner.server}/{name}"
        place.bucket.replace("mine", moved, place.bucket.content("mine", start + name))

    with pytest.raises(ConfigError, match=r"s3://mine/.* is of (server 0, this is server 1|run r, this is run other)"):
        place.open("other", owner=owner)


def test_a_fetch_that_was_interrupted_goes_on_where_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.open("first").save(1, 2)
    monkeypatch.setattr("paceline.server.fetched_snapshots._BLOCK", 32)
    asked = list[tuple[str, int]]()
    part = FetchedSnapshots._say_how_far

    def stop_after_two(self: FetchedSnapshots, name: str, done: int, size: int) -> None:
        asked.append((name, done))
        if len(asked) == 2:
            self._stop.set()
        part(self, name, done, size)

    monkeypatch.setattr(FetchedSnapshots, "_say_how_far", stop_after_two)
    with pytest.raises(Stopped):
        place.open("again")
    again = place.open("again")

    assert again.version == 2
    assert [done for _, done in asked[:3]] == [32, 64, 96]
    assert asked[2][0] == asked[1][0]
    assert again.sent._folder.versions == [1, 2], "those that a run may go back to, too"


def test_a_disk_that_has_no_room_for_what_is_fetched_is_named(place: Place) -> None:
    place.open("first").save(1)
    with pytest.raises(DiskError, match=r"Can't write snapshots from s3://mine/.*No space left"):
        place.open("again", FailingDisk(errno.ENOSPC, ["append"]))
    assert place.open("again").version == 1


def test_a_run_file_gets_numbers_that_no_server_has_seen(place: Place) -> None:
    first = place.open("first").save(1)
    state = {"membership": {"view": 7, "incarnations": {"worker-0": 2}}, "back": [3, 10, [0, 1]], "phase": "training"}
    first.folder.save_run(state)
    first.sent.send_tables()

    found = place.open("again").folder.load_run()

    assert found is not None
    assert found["membership"]["view"] > 100_000 < found["back"][0]
    assert found["back"][1:] == [10, [0, 1]]
    assert (found["phase"], found["membership"]["incarnations"]) == ("training", {"worker-0": 2})


def test_a_run_that_was_finished_is_scored_again_as_its_model_was_lost(place: Place) -> None:
    first = place.open("first").save(1)
    scores = [{"epoch": 1, "final": False}, {"epoch": 2, "final": True}]
    first.folder.save_run({"membership": {"view": 7, "incarnations": {}}, "phase": "finished", "scores": scores})
    first.sent.send_tables()

    found = place.open("again").folder.load_run()

    assert found is not None
    assert (found["phase"], found["scores"]) == ("scoring", scores[:1])


# a whole server
def cluster_of(place: Place, **more: Any) -> Cluster:
    settings = {"epochs": 99, "checkpoint": {"every": 0.05, "at": place.url}, "run": "r"}
    return Cluster(config_of("asp", **settings | more), place.folder)


def durable(cluster: Cluster, index: int = 0) -> dict[str, int]:
    return dict(cluster.servers[index].driver.clocks.durable)


def test_only_what_the_store_has_is_durable_and_one_that_refuses_costs_durability_not_the_run(
    place: Place, bucket: ObjectStore
) -> None:
    cluster = cluster_of(place)
    try:
        pusher = seated(cluster)[0]
        pusher.push(1.0)
        eventually(lambda: durable(cluster).get(pusher.name) == 1, "the first push in the store")

        bucket.let_in_everybody(False)
        for _ in range(3):
            pusher.push(1.0)
        words = "can't send snapshots to the store; training goes on"
        eventually(lambda: words in [event for event, _ in cluster.said[0]], "the trouble")
        eventually(lambda: 4 in cluster.servers[0].folder.versions, "the snapshot on the disk")
        assert durable(cluster)[pusher.name] == 1
        assert cluster.servers[0].chief is not None
        assert "s3://mine" in cluster.servers[0].chief.own_figures.message().disk_trouble

        bucket.let_in_everybody()
        eventually(lambda: durable(cluster)[pusher.name] == 4, "all pushes in the store")
        assert [event for event, _ in cluster.said[0]].count(words) == 1
    finally:
        bucket.let_in_everybody()
        cluster.close()
    assert not [event for event, _ in cluster.said[0] if "the last snapshot" in event]


def test_a_store_that_never_answers_stops_no_snapshot_on_the_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, is_sending = threading.Event(), threading.Event()
    real = SentSnapshots.send

    def silent(self: SentSnapshots, number: int) -> None:
        is_sending.set()
        gate.wait()
        real(self, number)

    monkeypatch.setattr(SentSnapshots, "send", silent)
    monkeypatch.setattr("paceline.server.snapshots._SILENCE", 0.2)
    cluster = cluster_of(place)
    try:
        pusher = seated(cluster)[0]
        pusher.push(1.0)
        eventually(is_sending.is_set, "a snapshot on its way")
        for version in range(2, 9):
            pusher.push(1.0)
            eventually(lambda version=version: version in cluster.servers[0].folder.versions, "it on the disk")
        words = "can't send snapshots to the store; training goes on"
        eventually(lambda: words in [event for event, _ in cluster.said[0]], "the trouble")
        assert durable(cluster) == {}
        gate.set()
        eventually(lambda: durable(cluster) == {pusher.name: 8}, "all pushes in the store")
    finally:
        gate.set()
        cluster.close()


def test_in_rounds_a_store_that_is_away_costs_its_durability_and_not_that_of_the_disks(
    place: Place, bucket: ObjectStore
) -> None:
    settings = {"epochs": 99, "checkpoint": {"every": 0.05, "at": place.url}, "run": "r", "servers": 2}
    cluster = Cluster(config_of("bsp", **settings), place.folder)
    try:
        pushers = seated(cluster)
        bucket.let_in_everybody(False)
        for _ in range(40):
            for pusher in pushers:
                pusher.push(1.0)
        common = lambda: cluster.servers[0].chief and cluster.servers[0].chief.run.common_snapshots.newest  # noqa: E731
        eventually(lambda: (common() or 0) > 0, "a version that all servers have on their disks")
    finally:
        bucket.let_in_everybody()
        cluster.close()


def test_a_server_that_restarts_with_what_the_store_lacks_calls_it_durable_only_when_it_is_there(
    place: Place, bucket: ObjectStore
) -> None:
    cluster = cluster_of(place, checkpoint={"every": 60, "at": place.url})
    try:
        pusher = seated(cluster)[0]
        pusher.push(1.0)
        bucket.let_in_everybody(False)
        cluster.servers[0].close(grace=0)
        assert any(event.startswith("the last snapshot is not in the store") for event, _ in cluster.said[0])
        bucket.let_in_everybody()
        cluster.servers[0] = cluster.begin(0, cluster.servers[0].port)

        assert durable(cluster) == {}
        cluster.servers[0]._snapshots.write_now()
        assert cluster.servers[0]._snapshots.send_now()
        assert durable(cluster) == {pusher.name: 1}
    finally:
        bucket.let_in_everybody()
        cluster.close()


def test_the_chief_and_its_living_workers_go_on_after_its_folder_was_lost(place: Place) -> None:
    cluster = cluster_of(place, workers=2)
    try:
        pushers = seated(cluster)
        for pusher in pushers:
            pusher.push(1.0)
        eventually(lambda: len(durable(cluster)) == 2, "both pushes in the store")
        before = cluster.servers[0].folder.term
        cluster.servers[0].close(grace=0)
        shutil.rmtree(place.folder / "server-0")
        cluster.servers[0] = cluster.begin(0, cluster.servers[0].port)

        assert cluster.servers[0].folder.term > before
        assert durable(cluster) == {pusher.name: 1 for pusher in pushers}, "the store has them"
        for pusher in pushers:
            pusher.push(1.0)
        eventually(lambda: durable(cluster) == {pusher.name: 2 for pusher in pushers}, "the next ones in the store")
    finally:
        cluster.close()


def test_a_stop_does_not_wait_longer_for_the_store_than_it_may(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, reached, may_go_on = cluster_of(place), threading.Event(), threading.Event()
    pusher = seated(cluster)[0]
    send = SentSnapshots.send

    def slow(self: SentSnapshots, number: int) -> None:
        reached.set()
        may_go_on.wait(60)
        send(self, number)

    monkeypatch.setattr(SentSnapshots, "send", slow)
    monkeypatch.setattr(snapshots, "_LAST", 0.1)
    pusher.push(1.0)
    assert reached.wait(60)
    pusher.push(1.0)
    cluster.close()

    event, facts = next((event, facts) for event, facts in cluster.said[0] if event.startswith("the last snapshot"))
    assert event == "the last snapshot is not in the store, only in the folder"
    assert facts["folder"] == str(place.folder / "server-0")
    manifests = sorted((place.folder / "server-0").glob("snapshot-*.json"))
    assert json.loads(manifests[-1].read_text().splitlines()[0])["table"]["version"] == 2
    may_go_on.set()


def test_a_server_whose_rights_have_expired_goes_on_from_its_folder_and_an_empty_folder_does_not(
    place: Place, bucket: ObjectStore
) -> None:
    cluster = cluster_of(place)
    try:
        pusher = seated(cluster)[0]
        pusher.push(1.0)
        eventually(lambda: durable(cluster).get(pusher.name) == 1, "the first push in the store")
        cluster.servers[0].close(grace=0)
        bucket.let_in_everybody(False)

        cluster.servers[0] = cluster.begin(0, cluster.servers[0].port)
        assert cluster.servers[0].folder.versions[-1] == 1
        why = next(facts["why"] for event, facts in cluster.said[0] if event.startswith("can't use the store"))
        assert "The credentials do not suffice" in why

        cluster.servers[0].close(grace=0)
        shutil.rmtree(place.folder / "server-0")
        with pytest.raises(ConfigError, match="The credentials do not suffice"):
            cluster.begin(0, cluster.servers[0].port)
        bucket.let_in_everybody()
        cluster.servers[0] = cluster.begin(0, cluster.servers[0].port)
    finally:
        bucket.let_in_everybody()
        cluster.close()


def test_old_snapshots_that_may_not_be_removed_cost_no_durability(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: SentSnapshots) -> None:
        raise ConfigError("The credentials do not suffice")

    cluster = cluster_of(place)
    with monkeypatch.context() as patch:
        patch.setattr(SentSnapshots, "prune", refuses)
        pusher = seated(cluster)[0]
        for clock in (1, 2):
            pusher.push(1.0)
            eventually(lambda: durable(cluster).get(pusher.name) == pusher.clock, f"push {clock} in the store")
        assert cluster.servers[0]._snapshots.send_now()
    cluster.close()

    assert [event for event, _ in cluster.said[0] if "the store" in event] == [
        "can't remove older snapshots from the store",
        "older snapshots are removed from the store again",
    ]


@pytest.fixture
def silent_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Accepts connections, and never answers."""
    from s3fs import S3FileSystem

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        S3FileSystem.clear_instance_cache()
        yield
    S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("call", ["stream", "put", "put_content", "sizes", "part", "look"])
def test_a_store_that_accepts_a_call_and_says_nothing_is_one_that_does_not_answer(
    call: str, silent_store: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.data.stored_folder._SILENCE", 0.1)
    (tmp_path / "file").write_bytes(b"x")
    folder = StoredFolder("s3://mine/x", once)
    calls = {
        "stream": lambda: folder.stream(tmp_path / "file", "file"),
        "put": lambda: folder.put(tmp_path, "file"),
        "put_content": lambda: folder.put_content("file", b"x"),
        "sizes": folder.sizes,
        "part": lambda: folder.part("file", 0, 1),
        "look": folder.look,
    }
    with pytest.raises(StoreGone, match="no answer for"):
        calls[call]()
