"""Shards in an object store: sent whole or not at all, and fetched as from a folder; in fsspec's store in memory."""

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pydantic import ValidationError

from paceline.core.errors import ConfigError, DataError, DiskError, ServersGone, StoreGone, UsageError
from paceline.core.settings.config import Config, DataConfig
from paceline.data.manifest import MANIFEST
from paceline.data.progress import SILENT
from paceline.data.shard_store import ShardStore
from paceline.data.shards import open_shards
from paceline.rpc import retries
from paceline.rpc.retries import Patient
from paceline.settings.load_settings import load
from paceline.sharder.sharding import make_shards, placed
from paceline.worker.startup import wait_for_shards
from paceline.worker.startup.streamed_shards import RemoteShards
from paceline.worker.startup.wait_for_shards import StoredShards, whole_shards
from tests.support.in_process import Said
from tests.support.small_shards import made

FILES: Any = MemoryFileSystem()
DIGITS = {"task": "digits", "workers": 2}


@pytest.fixture
def url() -> str:
    """A folder that nobody has used."""
    return f"memory://{uuid.uuid4().hex}/shards"


def store_of(url: str) -> ShardStore:
    return ShardStore(url, Patient(threading.Event(), Said()))


def sent(folder: Path, url: str, **how: Any) -> ShardStore:
    made(folder, **how)
    store = store_of(url)
    store.send(folder)
    return store


def names(url: str) -> set[str]:
    root = url.removeprefix("memory:/")
    return {path.removeprefix(f"{root}/") for path in FILES.find(root)}


def on_disk(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def change(url: str, file: str, content: bytes) -> None:
    FILES.pipe_file(f"{url.removeprefix('memory:/')}/{file}", content)


def reader(folder: Path, url: str) -> RemoteShards:
    return RemoteShards(folder, StoredShards(url, threading.Event(), Said()), Said())


class Asked(list[list[tuple[int, int]]]):
    """The bytes that the store is asked for, by call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        ask = MemoryFileSystem.cat_ranges

        def noted(files: Any, paths: Any, starts: Any, stops: Any, **more: Any) -> Any:
            self.append(list(zip(starts, stops, strict=True)))
            return ask(files, paths, starts, stops, **more)

        monkeypatch.setattr(MemoryFileSystem, "cat_ranges", noted)


# sending
def test_a_folder_in_a_store_looks_as_on_disk(tmp_path: Path, url: str):
    store = sent(tmp_path / "shards", url)

    assert names(url) == on_disk(tmp_path / "shards")
    assert store.whole() == open_shards(tmp_path / "shards").manifest


def test_a_sharder_that_dies_as_it_sends_leaves_no_manifest(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    store, put, count = sent(tmp_path / "shards", url), MemoryFileSystem.put_file, 0

    def dies(*arguments: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        put(*arguments, **more)

    monkeypatch.setattr(MemoryFileSystem, "put_file", dies)
    with pytest.raises(KeyboardInterrupt):
        store.send(tmp_path / "shards")

    assert count == 3
    assert store.find() is None
    assert MANIFEST not in names(url)


def test_what_older_shards_had_besides_is_removed(tmp_path: Path, url: str):
    sent(tmp_path / "old", url, is_sparse=True, parts=("validation", "test"))

    sent(tmp_path / "new", url, parts=("test",))

    assert names(url) == on_disk(tmp_path / "new")


def test_a_folder_that_holds_other_things_is_refused_and_left_alone(tmp_path: Path, url: str):
    change(url, "thesis/chapter.txt", b"")

    for attempt in (lambda: store_of(url).whole(), lambda: sent(tmp_path / "shards", url)):
        with pytest.raises(DataError, match=f"^{url} holds thesis, which is not a shard; give the shards"):
            attempt()
    assert names(url) == {"thesis/chapter.txt"}


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("shard-1/labels.npy", b"short", r"/shard-1/labels\.npy has 5 bytes, expected \d+\. Make the shards again"),
        ("shard-1/labels.npy", None, r"/shard-1/labels\.npy is missing\. Make the shards again"),
        (MANIFEST, b"{}", r"/manifest\.json is damaged: "),
    ],
)
def test_a_store_whose_files_do_not_fit_the_manifest_is_no_whole_one(
    tmp_path: Path, url: str, file: str, content: bytes | None, said: str
):
    store = sent(tmp_path / "shards", url)
    FILES.rm_file(f"{url.removeprefix('memory:/')}/{file}")
    if content is not None:
        change(url, file, content)

    with pytest.raises(DataError, match=f"^{url}{said}"):
        store.whole()


def test_a_store_that_takes_nothing_says_so(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    def full(*arguments: Any, **more: Any) -> None:
        raise OSError("XMinioStorageFull")

    monkeypatch.setattr(MemoryFileSystem, "put_file", full)

    with pytest.raises(DiskError, match=f"^Can't write shards to {url}: XMinioStorageFull. May this"):
        sent(tmp_path / "shards", url)


# the sharder
def test_the_sharder_finds_in_a_store_what_it_has_sent_there(tmp_path: Path, url: str):
    said: list[str] = []
    progress = type("Heard", (type(SILENT),), {"say": lambda self, line: said.append(line)})()
    config = Config.model_validate(DIGITS)

    for other in (url, None):
        with placed(other, load(None, {**DIGITS, "data": {"shards_at": url}}), progress) as place:
            assert not place.folder.exists()
            make_shards(config, place.folder, progress=progress, store=place.store)

    assert not place.folder.parent.exists(), "a folder that nobody named is gone"
    assert said[-1] == f"2 shards of 1,257 examples are already there, in {url}."
    with (
        placed(url, config, progress) as place,
        pytest.raises(DataError, match=f"^The shards in {url} were made with other settings: seed was 0 and is now 5"),
    ):
        make_shards(config.model_copy(update={"seed": 5}), place.folder, store=place.store)


def test_shards_that_were_made_here_and_did_not_get_to_the_store_are_sent(tmp_path: Path, url: str):
    config, store = Config.model_validate(DIGITS), store_of(url)
    make_shards(config, tmp_path / "shards")
    before = (tmp_path / "shards" / MANIFEST).stat().st_ino

    make_shards(config, tmp_path / "shards", store=store)

    assert store.whole() == open_shards(tmp_path / "shards").manifest
    assert (tmp_path / "shards" / MANIFEST).stat().st_ino == before


def test_shards_in_a_store_need_no_data_set(tmp_path: Path, url: str):
    (tmp_path / "data").mkdir()
    task = tmp_path / "mine.py"
    task.write_text(
        "from paceline.data.files import at\nfrom paceline.tasks.builtin.digits import *\n"
        "from paceline.tasks.builtin.digits import data as digits\n"
        "def data(path):\n    at(path)\n    return digits('bundled')\n"
    )
    config, store = Config.model_validate({"task": str(task), "workers": 2}), store_of(url)
    named = config.model_copy(update={"data": DataConfig(path=str(tmp_path / "data"))})
    made_here = make_shards(named, tmp_path / "shards", store=store)

    assert make_shards(config, tmp_path / "others", store=store) == made_here
    with pytest.raises(ConfigError, match=r"^This task needs your own data: set data\.path"):
        make_shards(config, tmp_path / "others", store=store_of(f"{url}-2"))


@pytest.mark.parametrize(
    ("out", "at", "kind", "said"),
    [
        (None, None, UsageError, r"^Nothing says where the shards go\. Give --out FOLDER, or set data\.shards_at"),
        ("s3://a/b", "s3://c/d", ConfigError, r"^--out is s3://a/b, but data\.shards_at is s3://c/d\. Leave one"),
    ],
)
def test_one_place_is_named_for_the_shards(out: str | None, at: str | None, kind: type[Exception], said: str):
    config = Config.model_validate({"data": {"shards_at": at}})

    with pytest.raises(kind, match=said), placed(out, config, SILENT):
        pass


@pytest.mark.parametrize("value", ["shards", "s3:/a/b", "s3://", "/shards"])
def test_a_place_that_is_no_url_is_refused(value: str):
    with pytest.raises(ValidationError, match=r"expected a URL like s3://bucket/folder\. A folder needs no setting"):
        DataConfig(shards_at=value)


# fetching
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_worker_gets_from_a_store_what_the_files_hold(tmp_path: Path, url: str, is_sparse: bool):
    sent(tmp_path / "shards", url, is_sparse=is_sparse)
    whole, mine = open_shards(tmp_path / "shards"), reader(tmp_path / "mine", url)
    positions = np.array([0, 5, 6, 99, 100, 180])

    def plain(values: Any) -> Any:
        return values.toarray() if is_sparse else values

    mine.verify(1)
    assert np.array_equal(plain(mine.shard(1).features), plain(whole.shard(1).features))
    assert np.array_equal(mine.part("test").labels, whole.part("test").labels)
    assert np.array_equal(mine.ids(2), whole.ids(2))
    for found, expected in zip(mine.rows(positions), whole.rows(positions), strict=True):
        assert np.array_equal(
            plain(found) if found.ndim > 1 else found, plain(expected) if found.ndim > 1 else expected
        )
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [".ids", "shard-1", "test"]
    if is_sparse:
        assert np.array_equal(mine.feature_counts(), whole.feature_counts())


def test_rows_that_are_near_each_other_are_asked_for_at_once(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    sent(tmp_path / "shards", url)
    mine, asked = reader(tmp_path / "mine", url), Asked(monkeypatch)

    mine.rows(np.arange(0, 100, 3))
    assert [len(call) for call in asked] == [1, 1], "features and labels"

    monkeypatch.setattr(wait_for_shards, "_GAP", 0)
    mine.rows(np.arange(0, 100, 3))
    assert [len(call) for call in asked[2:]] == [34, 34]


def test_a_killed_process_fetches_only_what_it_lacks(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    sent(tmp_path / "shards", url)
    reader(tmp_path / "mine", url).verify(0)
    half = (tmp_path / "shards/shard-1/features.npy").read_bytes()[:1000]
    (tmp_path / "mine/.shard-1.fetching").mkdir()
    (tmp_path / "mine/.shard-1.fetching/features.part").write_bytes(half)
    asked, again = Asked(monkeypatch), reader(tmp_path / "mine", url)

    again.verify(0)
    again.verify(1)

    assert sorted(start for ((start, _),) in asked) == [0, 0, 1000], "labels, ids and the rest of the features"


def test_all_shards_are_fetched_to_a_folder_that_needs_the_store_no_more(tmp_path: Path, url: str):
    store = sent(tmp_path / "shards", url, is_sparse=True)
    config = Config.model_validate({"data": {"shards_at": url}})

    whole_shards(config, tmp_path / "here", Said())
    store.send(tmp_path / "shards")
    FILES.rm(url.removeprefix("memory:/"), recursive=True)

    assert on_disk(tmp_path / "here") == on_disk(tmp_path / "shards")
    assert whole_shards(config, tmp_path / "here", Said()).manifest == open_shards(tmp_path / "shards").manifest


def test_shards_that_are_replaced_while_they_are_fetched_are_refused(tmp_path: Path, url: str):
    sent(tmp_path / "shards", url)
    mine = reader(tmp_path / "mine", url)
    sent(tmp_path / "others", url, amounts=True)

    with pytest.raises(DataError, match=rf"^The shards in {url} \(\w{{12}}\) are not those .* \(\w{{12}}\): "):
        mine.verify(0)


@pytest.mark.parametrize(
    ("change_it", "said"),
    [
        (lambda content: content[:-1] + b"x", r"^shard-0/labels came damaged 3 times from URL: somebody changes it"),
        (lambda content: content[:-1], r"^URL/shard-0/labels\.npy is damaged: it has fewer bytes than expected"),
        (lambda content: None, r"^A file of the shards in URL is missing: .*shard-0/labels\.npy"),
    ],
)
def test_a_file_that_somebody_changed_is_named(
    tmp_path: Path, url: str, change_it: Callable[[bytes], bytes | None], said: str
):
    sent(tmp_path / "shards", url)
    mine = reader(tmp_path / "mine", url)
    content = change_it((tmp_path / "shards/shard-0/labels.npy").read_bytes())
    FILES.rm_file(f"{url.removeprefix('memory:/')}/shard-0/labels.npy")
    if content is not None:
        change(url, "shard-0/labels.npy", content)

    with pytest.raises(DataError, match=said.replace("URL", url)):
        mine.verify(0)


# a store that is away
@pytest.mark.parametrize("patience", [60.0, -1.0])
def test_a_store_that_is_away_is_asked_again_for_a_while(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, patience: float
):
    sent(tmp_path / "shards", url)
    monkeypatch.setattr(retries, "STORE_PATIENCE", patience)
    monkeypatch.setattr(retries, "backoff", lambda: iter([0.0] * 9))
    cat, count = MemoryFileSystem.cat_file, 0

    def away(*arguments: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count <= 3:
            raise StoreGone("Can't reach the bucket 'mine'.")
        return cat(*arguments, **more)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", away)
    if patience > 0:
        reader(tmp_path / "mine", url).verify(0)
        assert count > 3
    else:
        with pytest.raises(ServersGone, match=r"^the object store did not answer in time: Can't reach") as it:
            reader(tmp_path / "mine", url)
        assert it.value.exit_code == 69
