"""Data in an object store, read from a real S3 server; and what is said where the store can't be used."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="moto is not installed: make setup")

import s3fs

from paceline.core.errors import ConfigError, DataError, PacelineError, StoreGone
from paceline.data.files import at, reading
from paceline.data.table import read_table
from tests.support.object_store import ObjectStore, object_store

TABLE = b"a,b,y\n" + b"".join(b"%d,%d,%s\n" % (row, row % 7, (b"no", b"yes")[row % 2]) for row in range(200))


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        found.put("mine", {"rows/table.csv": TABLE})
        yield found


@pytest.fixture(autouse=True)
def variables(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that a user sets, and no file of credentials."""
    store.set_variables(monkeypatch)
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_table_in_a_bucket_is_the_table_on_disk(tmp_path: Path):
    (tmp_path / "table.csv").write_bytes(TABLE)

    found = read_table("s3://mine/rows/table.csv", "y")

    assert found.digest() == read_table(tmp_path / "table.csv", "y").digest()
    assert [file.name for file in at("s3://mine/rows").iterdir()] == ["table.csv"]


def test_a_file_that_is_not_in_its_bucket_is_bad_data():
    with pytest.raises(DataError, match=r"^Can't read s3://mine/rows/none\.csv: "):
        read_table("s3://mine/rows/none.csv", "y")


def test_a_bucket_that_is_not_there_is_named_with_the_endpoint(store: ObjectStore):
    with pytest.raises(DataError, match=rf"^There is no bucket 'other' in S3 at {store.url} .*: s3://other/a\.csv was"):
        read_table("s3://other/a.csv", "y")


def test_no_credentials_say_what_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")

    with pytest.raises(ConfigError, match=r"^No credentials for the bucket 'mine' .* Set AWS_ACCESS_KEY_ID .*=true"):
        read_table("s3://mine/rows/table.csv", "y")


def test_credentials_that_do_not_suffice_are_told_from_none(store: ObjectStore, monkeypatch: pytest.MonkeyPatch):
    allowed = r"^The credentials do not suffice for the bucket 'mine' of S3 .*: s3://mine/rows/table.csv was asked for"
    for name, value in store.user().items():
        monkeypatch.setenv(name, value)
    try:
        with pytest.raises(ConfigError, match=rf"{allowed} \(.+\)\. Let them list the bucket and read its objects"):
            read_table("s3://mine/rows/table.csv", "y")
    finally:
        store.let_in_everybody()


def test_a_store_that_does_not_answer_is_named_with_its_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    with pytest.raises(StoreGone, match=r"^Can't reach .* 'mine' .*127.0.0.1:9 .*Correct AWS_ENDPOINT_URL") as raised:
        read_table("s3://mine/rows/table.csv", "y")
    assert raised.value.exit_code == 69


class HttpError(Exception):
    """As gcsfs's."""

    def __init__(self, code: int) -> None:
        super().__init__("Anonymous caller does not have storage.objects.get access")
        self.code = code


class ClientAuthenticationError(Exception):
    """As azure's, whose status is that of a server, if one was asked."""

    status_code = None


class ClientConnectionError(Exception):
    """As aiohttp's."""


@pytest.mark.parametrize(
    ("path", "error", "kind", "words"),
    [
        ("gs://b/a", HttpError(401), ConfigError, "No credentials for the bucket 'b' of Google Cloud Storage"),
        ("gs://b/a", HttpError(403), ConfigError, "The credentials do not suffice for the bucket 'b'"),
        ("gs://b/a", OSError("Forbidden: b/a\nno"), ConfigError, "The credentials do not suffice"),
        ("gcs://b/a", ClientConnectionError("no"), StoreGone, "Can't reach the bucket 'b' of Google Cloud Storage"),
        ("gs://b/a", HttpError(503), StoreGone, "Can't reach the bucket 'b' of Google Cloud Storage"),
        ("s3://b/a", OSError(errno.EBUSY, "Reduce"), StoreGone, "Can't reach the bucket 'b' of S3"),
        ("abfs://c/a", ClientAuthenticationError(), ConfigError, "No credentials for the bucket 'c' of Azure"),
        ("s3://b/a", ValueError("bad row"), DataError, "Can't read s3://b/a: bad row"),
        ("memory://a", TimeoutError("late"), DataError, "Can't read memory://a: late"),
        ("/data/a", PermissionError(13, "no"), DataError, "Can't read /data/a: no"),
    ],
)
def test_the_errors_of_each_store_are_told_apart(path: str, error: Exception, kind: type[PacelineError], words: str):
    with pytest.raises(kind, match=f"^{words}") as raised, reading(path):
        raise error

    assert type(raised.value) is kind


def test_azure_without_an_account_says_what_to_set(monkeypatch: pytest.MonkeyPatch):
    for name in ("ACCOUNT_NAME", "CONNECTION_STRING"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)

    with pytest.raises(ConfigError, match=r"bucket 'c' of Azure: .*AZURE_STORAGE_ACCOUNT_NAME and"):
        at("abfs://c/a.csv")
