"""What the fuzzing has found, each as it was found or as the smallest file that does the same; and files that claim, or unpack
to, far more than they hold."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import ConfigError, DataError, PacelineError, UsageError
from paceline.data import files
from paceline.data.cifar import read_cifar10
from paceline.data.idx import read_mnist
from paceline.data.manifest import FileEntry
from paceline.data.npz import read_npy, read_npz
from paceline.data.svmlight import read_svmlight
from paceline.launch.folder.cluster_key import ClusterKey
from paceline.launch.other_machines import packed_files
from paceline.launch.other_machines.key import JoinKey
from paceline.launch.other_machines.packed_files import unpack
from paceline.rpc.token_file import content_of
from paceline.server.disk import Disk
from paceline.server.json_files import CheckedFiles
from paceline.server.snapshot_files import SnapshotFiles, packed
from paceline.server.state_folder import StateFolder
from paceline.settings.load_settings import MOST_BYTES, load, parse_sets, read_yaml
from tests.fuzz.cases import MEMORY, limited, tried
from tests.fuzz.readers import READERS, sealed, tarred, unsealed

MIB = 1 << 20


def refused(read: Callable[[], object], error: type[PacelineError], said: str) -> None:
    """By the error that says so, quickly and in little memory."""
    told: list[PacelineError] = []

    def remembered(_: bytes) -> None:
        try:
            read()
        except PacelineError as found:
            told.append(found)
            raise

    with limited(MEMORY):
        tried(remembered, b"")
    assert [type(each) for each in told] == [error]
    assert re.search(said, str(told[0])), told[0]


# YAML
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- " * 300_000, "more than 100 deep"),  # ended the process
        ("? " * 300_000, "more than 100 deep"),
        ("[" * 100_000, "more than 100 deep"),  # took 30 s
        ("a: 2024-13-13", "month must be in 1..12"),
        ("a: &a [*a]", "an alias stands for what it is a part of"),
        ("a: !!bool x", "KeyError|'x'"),
        ("task: digits\n" * 100_000, "more than 1,048,576 bytes"),
    ],
)
def test_a_text_that_is_no_yaml_of_settings_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    refused(lambda: read_yaml(tmp_path / "config.yaml"), ConfigError, said)


@pytest.mark.parametrize("part", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_that_stand_for_billions_of_values_are_refused(part: str, tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1}"] + [
        f"a{number}: &a{number} " + part.format(", ".join(10 * [f"*a{number - 1}"])) for number in range(1, 10)
    ]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    refused(lambda: read_yaml(tmp_path / "config.yaml"), ConfigError, "it says more than 100,000 values")


def test_a_value_of_a_policy_that_is_no_yaml_is_refused() -> None:
    refused(lambda: load(overrides=parse_sets(["policy=ssp:@1"])), ConfigError, "policy ssp:@1: can't read the value")


def test_a_file_of_settings_may_be_as_large_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("task: digits\n#".ljust(MOST_BYTES, "x"))
    assert read_yaml(tmp_path / "config.yaml") == {"task": "digits"}


# keys
def test_a_key_with_a_letter_that_is_not_of_ascii_is_refused() -> None:
    text = JoinKey.new(b"x").text()
    refused(lambda: JoinKey.read("\u00e4" + text[1:]), UsageError, "The key holds '\u00c4'; a key has only the letters")


@pytest.mark.parametrize("run", ["a: [", "- a list", ""])
def test_a_key_of_a_cluster_without_settings_is_refused(run: str, tmp_path: Path) -> None:
    parts = dict.fromkeys(("token", "authority", "certificate", "key"), "x")
    key = ClusterKey(run="a", servers=("b:1",), files={"run.yaml": run} if run else {}, **parts)
    (tmp_path / "key").write_text(key.text())
    refused(
        lambda: ClusterKey.read(tmp_path / "key").settings(),
        UsageError,
        "(?s)run.yaml.* Copy the whole file, or make one",
    )


def test_a_superscript_is_no_digit_of_a_time() -> None:
    refused(
        lambda: content_of(f"{'a' * 40}\nwas {'b' * 40} from \u00b2 until \u00b2"),
        ConfigError,
        "neither a run's secret",
    )


# a server's folder
@pytest.fixture
def server(tmp_path: Path) -> Path:
    READERS["snapshot data"](tmp_path / "server")
    return tmp_path / "server"


@pytest.mark.parametrize("name", ["term.json", "settings.json", "run.json", "snapshot-000000000001.json"])
@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"of": []}',
        '{"of": {"term": {}}}',
        '{"of": {"term": 1e400}}',
        '{"format": "1"}',
        '{"settings": 3, "term": "x"}',
    ],
)
def test_a_servers_file_that_says_something_else_is_told(text: str, name: str, server: Path) -> None:
    (server / name).write_bytes(sealed(text.encode()))

    def start() -> None:
        store = StateFolder(server, 3, lambda event, **facts: None)
        try:
            store.check_settings(["a=1"])
            store.load_run()
            store.check_run({"worker-0": {"incarnation": 1}})
            store.newest_snapshot()
        finally:
            store.close()

    with pytest.raises(PacelineError) as told, limited(MEMORY):
        start()
    assert type(told.value) in (DataError, ConfigError)


def test_a_servers_file_that_is_too_large_is_not_read(server: Path) -> None:
    with (server / "run.json").open("wb") as file:
        file.truncate(65 * MIB)
    files_of = CheckedFiles(server, Disk(), None)
    refused(lambda: files_of.read("run.json", None), DataError, "68,157,440 bytes; no such file is above 67,108,864")


def test_no_server_writes_a_file_that_it_would_not_read(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.server.json_files.MOST_BYTES", 1000)
    files_of = CheckedFiles(server, Disk(), None)
    with pytest.raises(PacelineError, match=r"would have 1,[0-9]+ bytes; .* above 1,000. The older one stays"):
        files_of.write("run.json", {"scores": 1000 * "x"})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("table", {"version": 1e400, "clocks": {}}, "expected a whole number from 0"),  # Infinity
        ("table", {"version": 1, "clocks": {"worker-0": {"clock": -1, "incarnation": 1}}}, "is -1; expected"),
        ("plan", {"shapes": [["a", [10**12]]], "slices": [[[0, 9]]], "strategy": ""}, "cuts 9 of 1,000,"),
        ("plan", {"shapes": [["a", [9.0]]], "slices": [[[0, 9]]], "strategy": ""}, "no whole numbers from 0"),
        ("plan", 3, "TypeError"),
    ],
)
def test_a_manifest_that_describes_no_snapshot_is_told(key: str, value: object, said: str, server: Path) -> None:
    manifest = server / "snapshot-000000000001.json"
    manifest.write_bytes(sealed(json.dumps(json.loads(unsealed(manifest.read_bytes())) | {key: value}).encode()))
    found = SnapshotFiles(CheckedFiles(server, Disk(), None), Disk(), 3, None, lambda event, **facts: None)
    refused(lambda: found.load(1), DataError, said)


def test_arrays_that_are_not_as_long_as_the_weights_are_told(server: Path) -> None:
    content = b"".join(packed({"weights": np.ones(9, np.float32), "slot0": np.ones(8, np.float32)}))
    (server / "snapshot-000000000001.safetensors").write_bytes(content)
    manifest = server / "snapshot-000000000001.json"
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.write_bytes(sealed(json.dumps(json.loads(unsealed(manifest.read_bytes())) | facts).encode()))
    found = SnapshotFiles(CheckedFiles(server, Disk(), None), Disk(), 3, None, lambda event, **facts: None)
    refused(lambda: found.load(1), DataError, "arrays that are not as long as its weights")


# LIBSVM
def test_a_line_of_long_numbers_that_is_bad_at_its_end_takes_no_longer(tmp_path: Path) -> None:
    long = "1" * 2000
    (tmp_path / "rows").write_text(f"{long} 1:{long} 2:{long} 3:{long}x\n")
    refused(lambda: read_svmlight(tmp_path / "rows"), DataError, "line 1")


@pytest.mark.parametrize("label", ["1e300", "1e30", "9223372036854775808"])
def test_a_label_that_is_no_class_number_is_refused(label: str, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text(f"{label} 1:1\n0 1:1\n")
    refused(lambda: read_svmlight(tmp_path / "rows"), DataError, "too large for float32|whole numbers below 2.63")


def test_an_index_that_makes_dense_rows_of_zeros_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("0 10000000:1\n2 6000000:1 1:2\n")
    refused(
        lambda: read_svmlight(tmp_path / "rows"),
        DataError,
        r"10,000,000 features.*4,194,304 features\. Keep them sparse",
    )
    assert read_svmlight(tmp_path / "rows", dense=False).train.features.shape == (2, 10_000_000)


def test_wide_dense_rows_are_made_in_little_memory(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("0 4194304:1\n" + 5 * "1 2:3\n")
    with limited(MEMORY):
        read = read_svmlight(tmp_path / "rows").train.features
    assert read.shape == (6, 4_194_304)
    assert (read[0, -1], read[5, 1], read.sum()) == (1, 3, 16)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_line_without_end_fills_no_memory(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    ending = {gzip: ".gz", bz2: ".bz2", lzma: ".xz"}[
        {"gzip": gzip, "bz2": bz2, "lzma": lzma}[pack.__module__.lstrip("_")]
    ]
    (tmp_path / f"rows{ending}").write_bytes(pack(bytes(100 * MIB)))
    refused(lambda: read_svmlight(tmp_path / f"rows{ending}"), DataError, "a line has more than|unpacks to more than")


def test_what_unpacks_to_far_more_than_gzip_can_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.xz").write_bytes(lzma.compress(b"1 1:1\n" * (6 * MIB)))
    blocks = files.parsed(tmp_path / "rows.xz", len, "")
    refused(lambda: sum(blocks), DataError, "it unpacks to more than 1,100 times its size; unpack it")


# idx
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_an_idx_file_that_claims_a_gibibyte_is_not_believed(ending: str, tmp_path: Path) -> None:
    for name in ("train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte").write_bytes(b"")
    content = bytes((0, 0, 8, 3)) + np.array([1_000_000, 32, 32], ">u4").tobytes() + bytes(99)
    file = tmp_path / f"train-images-idx3-ubyte{ending}"
    file.write_bytes(gzip.compress(content) if ending else content)
    refused(lambda: read_mnist(tmp_path), DataError, "claims 1,024,000,000 bytes after its header but has only 99")


# tar
def sparse_tar() -> bytes:
    """One member of 512 bytes that claims a hole of 1 GB, in the form of GNU tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("x")
        sparse = {"major": "1", "minor": "0", "name": "data_batch_1.bin", "realsize": "1000000000"}
        member.pax_headers = {f"GNU.sparse.{key}": value for key, value in sparse.items()}
        member.size = 512
        tar.addfile(member, io.BytesIO(b"0\n".ljust(512, b"\0")))
    return buffer.getvalue()


def long_name_tar() -> bytes:
    """A member whose name has 200 MiB."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 200 * MIB
    return gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(200 * MIB), 6)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (sparse_tar(), "'data_batch_1.bin' that is a link or a sparse file"),
        (long_name_tar(), "a name takes 209,715,200 bytes; the limit is 8,192"),
        (gzip.compress(tarred({"x": b""}).replace(b"x\0", b"\xff\0", 1)), "invalid header|checksum"),
    ],
    ids=["sparse", "name", "header"],
)
def test_a_tar_that_unpacks_to_more_than_it_holds_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "cifar.tar.gz").write_bytes(content)
    refused(lambda: read_cifar10(tmp_path / "cifar.tar.gz"), DataError, said)
    (tmp_path / "to").mkdir()
    refused(lambda: unpack(content, tmp_path / "to"), DataError, said)


def test_a_head_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_files, "MOST_SENT", 30_000)
    refused(lambda: unpack(gzip.compress(tarred({"a": bytes(40_000)})), tmp_path), DataError, "claims 40,000 bytes")
    many = gzip.compress(tarred({f"a{number}": bytes(3000) for number in range(9)}))
    refused(lambda: unpack(many, tmp_path), DataError, "unpacks to more than 30,000 bytes; nothing was started")
    monkeypatch.setattr(packed_files, "MOST_FILES", 3)
    refused(
        lambda: unpack(gzip.compress(tarred(dict.fromkeys("abcdefg", b""))), tmp_path), DataError, "more than 6 members"
    )


@pytest.mark.parametrize("settings", [b"task: 3\n", b"task: [folder-0/x.py]\n"])
def test_settings_of_a_head_that_name_no_task_are_left_to_their_check(settings: bytes, tmp_path: Path) -> None:
    unpack(gzip.compress(tarred({"config.yaml": settings})), tmp_path)
    with pytest.raises(ConfigError, match="task: got"):
        load(tmp_path / "config.yaml")


# numpy's files
def claiming(shape: tuple[int, ...]) -> bytes:
    """An npy file that holds nothing of what it claims."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def test_an_array_that_claims_more_than_its_file_holds_is_not_made(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", claiming((1 << 28,)))
        archive.writestr("labels.npy", claiming((0,)))
    refused(lambda: read_npz(tmp_path / "a.npz"), DataError, "claims an array of 1,073,741,824 bytes in a file of 128")
    (tmp_path / "a.npy").write_bytes(claiming((1 << 28,)))
    refused(lambda: read_npy(tmp_path / "a.npy", tmp_path / "a.npy"), DataError, "Can't read")


def test_a_header_that_claims_four_gibibytes_is_not_read(tmp_path: Path) -> None:
    for form in (2, 3):
        (tmp_path / "a.npy").write_bytes(b"\x93NUMPY" + bytes((form, 0, 255, 255, 255, 255)) + bytes(100))
        refused(lambda: read_npy(tmp_path / "a.npy", tmp_path / "a.npy"), DataError, "Can't read")


# shards
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"bytes": 128, "dtype": "<f4", "shape": (10**9,)}, "the bytes of its array and a header"),
        ({"bytes": 10**12, "dtype": "<f4", "shape": (1,)}, "the bytes of its array and a header"),
        ({"bytes": 128, "dtype": "O", "shape": (0,)}, "no array of numbers"),
        ({"bytes": 128, "dtype": "(9999,9999)f4", "shape": (0,)}, "no array of numbers"),
        ({"bytes": 128, "dtype": "<f4", "shape": (-1, -1)}, "no array of numbers"),
    ],
)
def test_a_manifest_whose_files_can_not_hold_their_arrays_is_refused(entry: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FileEntry.model_validate({"sha256": "", **entry})
