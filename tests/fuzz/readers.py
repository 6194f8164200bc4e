"""The readers of files that others may have written, each with valid ones: what is damaged begins as one of these."""

import bz2
import gzip
import hashlib
import io
import itertools
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event

import jwt
import numpy as np
import sklearn.datasets  # where a line is bad it is loaded, which takes a second
import yaml
from scipy.sparse import csr_array

from paceline.core import registry
from paceline.core.codecs.codec import PACKAGE, load_codec
from paceline.core.linear.sparse import decode_places, encode_places
from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.core.slice.state import SliceState
from paceline.core.values import Sparse
from paceline.data import rcv1
from paceline.data.cifar import PIXELS, TEST, TRAIN, read_cifar10
from paceline.data.dataset import Labelled, PartName, Selection
from paceline.data.files import reading
from paceline.data.idx import read_mnist
from paceline.data.manifest import MANIFEST, Recipe
from paceline.data.npz import loaded, read_npy, read_npz
from paceline.data.rcv1 import read_documents, read_rcv1
from paceline.data.shard_writer import Dealt, write_shards
from paceline.data.shards import open_shards
from paceline.data.svmlight import read_rows, read_svmlight
from paceline.launch.folder.cluster_key import ClusterKey
from paceline.launch.other_machines.key import JoinKey
from paceline.launch.other_machines.packed_files import SETTINGS, unpack
from paceline.results.model.live_run import KeptVersions
from paceline.rpc.token_file import Secret, read_token_file
from paceline.rpc.tokens import Claims, check_time, private_key
from paceline.rpc.tokens import read as read_claims
from paceline.server.disk import Disk
from paceline.server.fetched_snapshots import FetchedSnapshots
from paceline.server.json_files import CheckedFiles, Owner
from paceline.server.snapshot_files import SnapshotFiles
from paceline.server.snapshot_store import StoredSnapshot
from paceline.server.state_audit import audit_folder, check_chief
from paceline.server.state_folder import TABLES, StateFolder
from paceline.settings.load_settings import load, parse_sets
from tests.fuzz.cases import Form, Reader, as_it_is

Make = Callable[[Path], Reader]
"""Makes a reader whose files lie in this folder."""
MOST_ELEMENTS = 1 << 20
"""Of a part or a slice, in a server that gets it."""
OWNER = Owner("a", 0, 1)
AGREED = ("task=digits", "policy.name=ssp", "policy.bound=3")


class _ReadOnly(Disk):
    """So that each case finds the folder as it was."""

    def write(self, path: Path, parts: object) -> None:
        pass

    def rename(self, before: Path, after: Path) -> None:
        pass

    def unlink(self, path: Path) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


def sealed(text: bytes) -> bytes:
    """With the checksum that a server's JSON files end with."""
    return text + b"\n" + hashlib.sha256(text).hexdigest().encode() + b"\n"


def unsealed(content: bytes) -> bytes:
    return content.rstrip().rpartition(b"\n")[0]


def _server_folder(folder: Path) -> Path:
    """Of a server that is also the chief, with one snapshot."""
    clocks = {"worker-0": {"clock": 3, "incarnation": 1, "examples": 96}}
    table = {"version": 3, "pushes": 3, "examples": 96, "clocks": clocks, "policy": {"bound": 3}, "rounds": True}
    plan = make_plan((("a.weight", (3, 2)), ("a.bias", (3,))), 1, Config().plan)
    arrays = [np.full(9, number, np.float32) for number in range(4)]
    store = StateFolder(folder, 3, lambda event, **facts: None, OWNER)
    shares = {name: Sparse(np.array([2, 7]), np.ones(2, np.float32), 9) for name in ("worker-0", "worker-1")}
    store.save_snapshot(plan, SliceState(arrays[0], [arrays[1]], table, arrays[2], arrays[3], shares))
    store.save_run({"membership": {"view": 4, "incarnations": {"worker-0": 1}}, "phase": "training"})
    store.check_settings(AGREED)
    store.save_strikes({"worker-0": 2})
    store.close()
    return folder


def _start(folder: Path) -> None:
    """What a server reads of it."""
    store = StateFolder(folder, 3, lambda event, **facts: None, OWNER, _ReadOnly())
    try:
        store.check_settings(AGREED)
        store.strikes()
        found = store.newest_snapshot()
        if found is not None:
            store.check_run(found[1].table["clocks"])
    finally:
        store.close()


def _go_back(folder: Path) -> None:
    """What a server reads of it when the run goes back."""
    store = StateFolder(folder, 3, lambda event, **facts: None, OWNER, _ReadOnly())
    try:
        store.good_weights(3)
        store.go_back(3)
    finally:
        store.close()


def _pull(folder: Path) -> None:
    KeptVersions([folder], [9]).read(3)


def _audit(folder: Path) -> None:
    check_chief(audit_folder(folder, OWNER))


def _load(folder: Path) -> None:
    """What all of them do in the end; it takes a third of the time."""
    disk = _ReadOnly()
    SnapshotFiles(CheckedFiles(folder, disk, OWNER), disk, 3, OWNER, lambda event, **facts: None).load(1)


_LOOKS = (_load, _start, _load, _go_back, _load, _pull, _load, _audit)


def _server_json(names: Sequence[str]) -> Make:
    """JSON files in a server's folder."""

    def make(folder: Path) -> Reader:
        looks = itertools.cycle(_LOOKS if names != TABLES else (_start, _audit))

        def form(name: str) -> Form:
            place = _server_folder(folder / name.partition(".")[0])
            file = place / name
            content = file.read_bytes()

            def read(damaged: bytes) -> None:
                file.write_bytes(damaged)
                next(looks)(place)

            return Form(read, unsealed(content), sealed)

        return [form(name) for name in names]

    return make


def _stored(folder: Path) -> Reader:
    """Files of a server in its store, which is a folder here, and what a start fetches of it into an empty one."""
    kept = _server_folder(folder / "kept")
    place = folder / "store" / OWNER.run / f"server-{OWNER.server}" / StoredSnapshot(1, 1, "0a1b2c3d", 3).folder
    place.mkdir(parents=True)
    names = [file.name for file in kept.iterdir() if file.name.startswith("snapshot-") or file.name in TABLES[1:]]
    for name in names:
        (place / name).write_bytes((kept / name).read_bytes())
    numbers = itertools.count()

    def form(name: str) -> Form:
        content = (place / name).read_bytes()
        is_json = name.endswith(".json")

        def read(damaged: bytes) -> None:
            empty = folder / f"fetched-{next(numbers)}"
            (place / name).write_bytes(damaged)
            fetched = FetchedSnapshots(f"file://{folder / 'store'}", OWNER, lambda event, **facts: None, Event())
            try:
                StateFolder(empty, 3, lambda event, **facts: None, OWNER, fill=fetched.fill).close()
            finally:
                (place / name).write_bytes(content)
                shutil.rmtree(empty)

        return Form(read, unsealed(content), sealed) if is_json else Form(read, content)

    return [form(name) for name in sorted(names)]


def _snapshot_data(folder: Path) -> Reader:
    """The safetensors file of a snapshot, whose manifest has its checksum."""
    data = next(_server_folder(folder).glob("*.safetensors"))
    manifest = data.with_suffix(".json")
    facts = json.loads(unsealed(manifest.read_bytes()))

    def read(content: bytes) -> None:
        data.write_bytes(content)
        said = facts | {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        manifest.write_bytes(sealed(json.dumps(said).encode()))
        _load(folder)

    return [Form(read, data.read_bytes())]


def _settings(folder: Path) -> Reader:
    """A YAML file, as JSON too, of which a single value can be another; and what `--set` takes."""
    sections = {
        "policy": {"name": "ssp", "bound": 3},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "codec": {"push": {"name": "topk", "share": 0.01}},
        "schedule": {"name": "multistep", "milestones": [1, 2]},
        "data": {"strategy": {"name": "random"}, "validation": 0.1},
    }
    small = {"task": "digits", "workers": 4, "servers": 2, "epochs": 3}
    whole = Config.model_validate({"policy": sections["policy"]}).model_dump(mode="json")
    file = folder / "config.yaml"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        load(file)

    def read_sets(content: bytes) -> None:
        load(overrides=parse_sets(content.decode("utf-8", "surrogateescape").split("\n")))

    texts = [json.dumps(small | {key: value}) for key, value in sections.items()]
    texts += [json.dumps(small | {key: whole[key]}) for key in whole]
    texts += [
        yaml.safe_dump(small | sections),
        "policy: &a {name: asp}\ndata: {strategy: {<<: {name: random}}}\nworkers: 3\ntask: digits # !!int '3'\n",
    ]
    sets = ("policy.bound=3\nworkers=4", "optimizer=adam", "data={validation: 0.1}", "policy=ssp:3", "seed=7")
    return [*(Form(read, text.encode()) for text in texts), *(Form(read_sets, text.encode()) for text in sets)]


def _places(folder: Path) -> Reader:
    def read(content: bytes) -> None:
        places = decode_places(content, MOST_ELEMENTS, "worker-0")
        assert not len(places) or (places[0] >= 0 and places[-1] < MOST_ELEMENTS and (np.diff(places) > 0).all())

    steps = ([0, 5, 6, 900], [3], [1, 70_000, 1_000_000], range(0, 9000, 3))
    return [Form(read, encode_places(np.array(each, np.int64))) for each in steps]


def _codecs(folder: Path) -> Reader:
    return [form for name in registry.names(PACKAGE) for form in _codec(name)]


def _codec(name: str) -> Reader:
    """A part of a push, as a server gets it: of any bytes, but it knows how many elements the part may have."""
    codec, out = load_codec(name), np.empty(MOST_ELEMENTS, np.float32)

    def read(content: bytes) -> None:
        elements = codec.elements_in(content)
        assert elements >= 0
        own = out[: elements if elements <= MOST_ELEMENTS else 9]
        codec.decode(content, own)
        own.fill(0)
        codec.add(content, own, 0.5)

    def form(count: int) -> Form:
        values = np.random.default_rng(count).normal(size=count).astype(np.float32)
        part = np.empty(codec.most_bytes(count), np.uint8)
        return Form(read, part[: codec.encode(values, part)].tobytes())

    return [form(count) for count in (1, 9, 1030)]


def _libsvm(folder: Path) -> Reader:
    labelled = ("+1 1:0.5 7:1\n-1 2:1e-3 3:4 # a comment\n+1\n", "0 0:1\n2 3:1 1:2\n1 qid:3 2:.5\n")
    ways: tuple[tuple[Callable[[Path], object], Sequence[str]], ...] = (
        (read_svmlight, labelled),
        (partial(read_svmlight, dense=False), labelled),
        (partial(read_svmlight, classes=False, features=20), labelled),
        (partial(read_rows, features=20), (*labelled, "1:2 3:4\n2:1\n")),
    )
    plain = [Form(_reading(folder / "rows.txt", read), text.encode()) for read, texts in ways for text in texts]
    packed = [
        Form(_reading(folder / f"rows.txt{ending}", read_svmlight), labelled[0].encode(), pack)
        for ending, pack in (
            (".gz", _gzipped),
            (".bz2", partial(bz2.compress, compresslevel=1)),
            (".xz", partial(lzma.compress, preset=0)),
        )
    ]
    return [*plain, *packed]


def _reading(file: Path, reader: Callable[[Path], object]) -> Callable[[bytes], None]:
    def read(content: bytes) -> None:
        file.write_bytes(content)
        with sklearn.config_context(
            skip_parameter_validation=True
        ):  # of what we pass, which takes longer than the reading
            reader(file)

    return read


def _lyrl(folder: Path) -> Reader:
    """The vectors or the topics of RCV1, next to those that are right; vectors without topics."""
    texts = {
        rcv1.TRAIN: "2286  1:0.04 1523:0.0444\n2287  864:0.123456789012345678\n2288  47236:1\n",
        rcv1.TOPICS: "CCAT 2286 1\nE11 2287 1\nECAT 2287 1\nGCAT 2288 1\n",
    }

    def form(name: str) -> Form:
        place = folder / name
        place.mkdir()
        for each, text in texts.items():
            (place / each).write_text(text)
        return Form(_reading(place / name, lambda _: read_rcv1(place)), texts[name].encode())

    alone = partial(read_documents, topic="CCAT")
    plain = Form(_reading(folder / "vectors.dat", alone), texts[rcv1.TRAIN].encode())
    packed = Form(_reading(folder / "vectors.dat.gz", alone), texts[rcv1.TRAIN].encode(), _gzipped)
    return [form(rcv1.TRAIN), form(rcv1.TOPICS), plain, plain, packed]


def _gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def _idx(folder: Path) -> Reader:
    """One file of MNIST next to three that are right."""
    files: dict[str, bytes] = {}
    for half, count in (("train", 3), ("t10k", 2)):
        files[f"{half}-images-idx3-ubyte"] = _idx_bytes(np.zeros((count, 28, 28), np.uint8))
        files[f"{half}-labels-idx1-ubyte"] = _idx_bytes(np.arange(count, dtype=np.uint8))

    def form(name: str, ending: str = "") -> Form:
        place = folder / f"{name}{ending}"
        place.mkdir()
        for each, content in files.items():
            if each != name:
                (place / each).write_bytes(content)
        file = place / f"{name}{ending}"
        return Form(_reading(file, lambda _: read_mnist(place)), files[name], _gzipped if ending else as_it_is)

    return [form(f"train-{what}-ubyte", ending) for what in ("images-idx3", "labels-idx1") for ending in ("", ".gz")]


def _idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def tarred(files: Mapping[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _cifar(folder: Path) -> Reader:
    file = folder / "cifar-10-binary.tar.gz"
    files = {f"cifar-10-batches-bin/{name}": bytes(1 + PIXELS) for name in (*TRAIN, TEST)}
    long = {f"{'a' * 120}/{'b' * 120}": b"x", "\u00e4" * 60: b"y"}

    read, forms = _reading(file, read_cifar10), (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)
    return [Form(read, tarred({**long, **files}, form), _gzipped) for form in forms]


def _packed_files(folder: Path) -> Reader:
    """What a head sends to a machine that joins."""
    settings = b"task: folder-0/task.py\nworkers: 3\n"
    files = {SETTINGS: settings, "folder-0/task.py": b"...", "a" * 120: b"..."}
    place = folder / "to"

    def read(content: bytes) -> None:
        place.mkdir()
        try:
            unpack(content, place)
        finally:
            shutil.rmtree(place)

    return [Form(read, tarred(files, form), _gzipped) for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)]


def _keys(folder: Path) -> Reader:
    """Those of a run here, and of one on a cluster; files of secrets and tokens, and tokens of callers."""
    secret = Secret("a" * 40, "b" * 40, 1e9, 2e9)
    claims = Claims("a", "worker", "worker-0", 1e9, 2e9)
    public = tuple(each.text for each in secret.keys)

    def called(content: bytes) -> None:
        check_time(read_claims(content.decode("latin-1"), public)[0], 1.5e9)

    def signed(content: bytes) -> bytes:
        try:
            return jwt.encode(json.loads(content), private_key(secret.word), algorithm="EdDSA").encode()
        except (ValueError, TypeError, RecursionError, jwt.PyJWTError):
            return content

    said = {"run": "a", "role": "worker", "sub": "worker-0", "iat": 10**9, "exp": 2 * 10**9}
    files = (f"{secret.word}\nwas {secret.old} from 1000000000 until 2000000000\n", secret.token_file(claims, 1.5e9))
    tokens = [Form(_reading(folder / "token", read_token_file), text.encode()) for text in files]
    tokens.append(Form(called, json.dumps(said).encode(), signed))
    key = ClusterKey(
        run="a",
        servers=("10.0.0.1:30000",),
        token="t",
        authority="a",
        certificate="b",
        key="c",
        files={"run.yaml": "task: digits\npolicy: asp\n", "script/train.py": "..."},
    )
    short = Form(
        lambda content: JoinKey.read(content.decode("utf-8", "surrogateescape")),
        JoinKey.new(b"a certificate").text().encode(),
    )
    read = _reading(folder / "key.yaml", lambda file: ClusterKey.read(file).settings())
    return [
        *tokens,
        short,
        *(Form(read, text.encode()) for text in (key.text(), json.dumps(key.model_dump(mode="json")))),
    ]


def _arrays(folder: Path) -> Reader:
    """numpy's files."""
    rows, labels = np.ones((3, 2), np.float32), np.arange(3)
    buffers = [io.BytesIO() for _ in range(3)]
    np.save(buffers[0], rows)
    np.savez(buffers[1], features=rows, labels=labels)
    np.savez_compressed(buffers[2], features=rows, labels=labels)
    single, *archives = (buffer.getvalue() for buffer in buffers)
    (folder / "labels.npy").write_bytes(single)
    forms = [Form(_reading(folder / "rows.npy", lambda file: read_npy(file, folder / "labels.npy")), single)]
    forms += [Form(_reading(folder / "rows.npz", read_npz), each) for each in archives]
    return [*forms, Form(_reading(folder / "loaded.npy", _loaded), single)]


def _loaded(file: Path) -> None:
    """As from an object store."""
    with reading(file), file.open("rb") as stream:
        loaded(stream)


def _shard_manifest(folder: Path) -> Reader:
    """The manifest of shards, dense and sparse ones, and what is mapped by it."""

    def form(is_sparse: bool) -> Form:
        place = folder / f"{is_sparse}"
        features = np.eye(4, dtype=np.float32)
        source = Labelled(csr_array(features) if is_sparse else features, np.arange(4) % 2)
        recipe = Recipe(task="made", strategy="random", shards=1, validation=0, test=0, seed=0, examples="a" * 64)
        test: dict[PartName, Selection] = {"test": Selection(source, np.array([3]))}
        write_shards(place, "made", recipe, Dealt([Selection(source, np.arange(3))]), test)
        file = place / MANIFEST
        body = json.loads(file.read_bytes())
        del body["sha256"]

        def read(content: bytes) -> None:
            file.write_bytes(content)
            shards = open_shards(place)
            shards.shard(0)
            shards.part("test")

        return Form(read, json.dumps(body).encode(), _sealed_manifest)

    return [form(False), form(True)]


def _sealed_manifest(content: bytes) -> bytes:
    """With its checksum, where it is a manifest at all."""
    try:
        body = json.loads(content)
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        return (json.dumps({**body, "sha256": digest}, indent=1) + "\n").encode()
    except (ValueError, TypeError, RecursionError):
        return content


READERS: dict[str, Make] = {
    "server's tables": _server_json(TABLES),
    "snapshot manifest": _server_json(["snapshot-000000000001.json"]),
    "snapshot data": _snapshot_data,
    "snapshots in a store": _stored,
    "shards' manifest": _shard_manifest,
    "settings": _settings,
    "sparse places": _places,
    "codecs": _codecs,
    "LIBSVM": _libsvm,
    "LYRL": _lyrl,
    "idx": _idx,
    "npy and npz": _arrays,
    "CIFAR-10's tar": _cifar,
    "files from the head": _packed_files,
    "keys": _keys,
}
