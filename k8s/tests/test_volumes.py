"""Copies into a volume, which is a folder here, by programs of this machine; and claims for which pods would wait."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.core.errors import DataError, DiskError
from paceline_k8s import volumes
from paceline_k8s.kubectl import COMPONENT, Kubectl
from paceline_k8s.one_node import one_node_claims
from paceline_k8s.overlay import OVERLAYS, Changes, read_overlay
from paceline_k8s.profile import PROFILES
from paceline_k8s.volumes import fetch_model, put_data


class Here(Kubectl):
    """Runs in this folder what is for the pod; everything else exists already."""

    def __init__(self, folder: Path) -> None:
        super().__init__("here", program="true")
        self.folder = folder
        self.cut: int | None = None
        """The connection breaks after this many bytes of an archive."""

    def command(self, *arguments: str) -> list[str]:
        if arguments[0] != "exec":
            return super().command(*arguments)
        _, _, *words = arguments[arguments.index("--") - 1 :]
        words = [word.replace("/files", str(self.folder)) for word in words]
        if words[0] == "tar" and self.cut is not None:
            return ["sh", "-c", f'head -c {self.cut} | "$@"; exit 1', "-", *words]
        return words

    def find(self, what: str) -> dict[str, Any]:
        return {}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for number, name in enumerate(["a.csv", "deep/er/b b.csv", "deep/c.csv", "d.csv"]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 100_000)
    (folder / "empty").mkdir()
    (folder / "link.csv").symlink_to("a.csv")
    return folder


@pytest.fixture
def cluster(tmp_path: Path) -> Here:
    (tmp_path / "volume").mkdir()
    return Here(tmp_path / "volume")


def content(folder: Path) -> dict[str, object]:
    """What is in it: bytes of files, targets of links."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


def written(folder: Path) -> dict[str, int]:
    """When each file was last touched, by the system's own account."""
    return {str(path.relative_to(folder)): path.lstat().st_ctime_ns for path in folder.rglob("*.csv")}


def test_an_interrupted_copy_goes_on_with_the_files_that_are_not_whole(source: Path, cluster: Here):
    cluster.cut = 150_000
    with pytest.raises(DiskError, match=r"(?s)^Copying failed.*Call it again to go on"):
        put_data(cluster, source, print, "1Gi")
    before = written(cluster.folder)
    cut = {name for name in before if content(cluster.folder)[name] != content(source)[name]}
    assert 0 < len(before) - len(cut) < 4

    said: list[str] = []
    cluster.cut = None
    put_data(cluster, source, said.append, "1Gi")

    assert content(cluster.folder) == content(source)
    assert {name: time for name, time in written(cluster.folder).items() if name in before.keys() - cut} == {
        name: time for name, time in before.items() if name not in cut
    }
    assert "1 of 4 files (100,000 bytes) have arrived with the right size; comparing their checksums" in said


def test_only_a_file_that_differs_is_sent_again_though_it_has_the_same_size(source: Path, cluster: Here):
    put_data(cluster, source, print, "1Gi")
    (cluster.folder / "deep/c.csv").write_bytes(b"x" * 100_000)
    (cluster.folder / "kept.csv").write_bytes(b"of another call")
    before = written(cluster.folder)

    put_data(cluster, source, print, "1Gi")

    assert content(cluster.folder) == content(source) | {"kept.csv": b"of another call"}
    changed = {name for name, time in written(cluster.folder).items() if time != before[name]}
    assert changed == {"deep/c.csv", "link.csv"}


def test_a_file_that_was_copied_is_not_copied_again(source: Path, cluster: Here):
    put_data(cluster, source / "a.csv", print, "1Gi")
    said: list[str] = []

    put_data(cluster, source / "a.csv", said.append, "1Gi")

    assert content(cluster.folder) == {"a.csv": content(source)["a.csv"]}
    assert "copying 0 of 1 files, 0 bytes" in said


def test_a_copy_that_lost_bytes_without_an_error_is_refused(source: Path, cluster: Here):
    class Losing(Here):
        def command(self, *arguments: str) -> list[str]:
            words = super().command(*arguments)
            return ["sh", "-c", 'cat >/dev/null; exec "$@" </dev/null', "-", "true"] if words[0] == "tar" else words

    with pytest.raises(DiskError, match=r"^Not all arrived whole: 4 files are cut, like a\.csv\. Call it again"):
        put_data(Losing(cluster.folder), source, print, "1Gi")


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\u2028b", "a\\b", " a ", "-a", "ä"])
def test_odd_names_arrive_as_well(tmp_path: Path, cluster: Here, name: str):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / name).write_bytes(b"content")

    for _ in range(2):
        put_data(cluster, tmp_path / "odd", print, "1Gi")

    assert content(cluster.folder) == {name: b"content"}


@pytest.mark.parametrize("target", ["../outside.csv", "gone.csv", "{folder}/a.csv"])
def test_a_link_that_would_lead_nowhere_is_refused(source: Path, cluster: Here, target: str):
    (source.parent / "outside.csv").touch()
    (source / "other.csv").symlink_to(target.format(folder=source))

    with pytest.raises(DataError, match=r"other\.csv is a link to .*, which would lead nowhere on the volume"):
        put_data(cluster, source, print, "1Gi")
    with pytest.raises(DataError, match=r"link\.csv is a link to a\.csv, which would lead nowhere"):
        put_data(cluster, source / "link.csv", print, "1Gi")
    assert content(cluster.folder) == {}


def test_a_model_is_not_fetched_to_what_is_no_folder(tmp_path: Path, cluster: Here):
    (tmp_path / "models").write_text("a file")

    with pytest.raises(DiskError, match=r"Can't make the folder .*models: File exists"):
        fetch_model(cluster, tmp_path / "models", print)


class Applying(Here):
    """Keeps the pods that are made, and has these servers, or none."""

    def __init__(self, folder: Path, servers: dict[str, Any] | None) -> None:
        super().__init__(folder)
        self.run_name = "demo"
        self.pods: list[dict[str, Any]] = []
        self._servers = servers

    def find(self, what: str) -> dict[str, Any] | None:
        return self._servers and {"spec": {"template": {"spec": self._servers}}}

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
        if arguments[0] == "apply":
            self.pods.append(yaml.safe_load(stdin or ""))
        return super().run(*arguments, stdin=stdin, seconds=seconds)


def test_the_pod_that_reads_models_is_made_as_those_of_the_servers(tmp_path: Path):
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/last.safetensors").write_bytes(b"weights")
    taint = {"key": "team", "operator": "Exists"}
    servers = {
        "containers": [{"image": "registry/mine:2"}],
        "tolerations": [taint],
        "imagePullSecrets": [{"name": "pull"}],
    }
    there = Applying(tmp_path / "volume", servers)

    assert [path.name for path in fetch_model(there, tmp_path / "models", print)] == ["last.safetensors"]

    spec = there.pods[0]["spec"]
    assert spec["containers"][0]["image"] == "registry/mine:2"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert taint in spec["tolerations"]
    assert "nvidia.com/gpu" in [each["key"] for each in spec["tolerations"]]


@pytest.mark.parametrize("image", ["registry/mine:2", None])
def test_models_of_a_run_whose_servers_are_gone_are_read_by_the_image_that_is_given(image: str | None, tmp_path: Path):
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/last.safetensors").write_bytes(b"weights")
    gone = Applying(tmp_path / "volume", None)

    fetch_model(gone, tmp_path / "models", print, image)

    assert gone.pods[0]["spec"]["containers"][0]["image"] == (image or "localhost/paceline-server:0.1.0")


def test_an_empty_folder_is_refused(tmp_path: Path, cluster: Here):
    (tmp_path / "none").mkdir()

    with pytest.raises(DataError, match=r"none is empty\. Give a file, or a folder with files"):
        put_data(cluster, tmp_path / "none", print, "1Gi")


TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def claim(name: str, *modes: str) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {"accessModes": list(modes)}}


def part(name: str, claim: str) -> dict[str, Any]:
    volumes = [{"name": "x", "persistentVolumeClaim": {"claimName": claim}}, {"name": "y", "emptyDir": {}}]
    spec = {"template": {"spec": {"volumes": volumes}}}
    return {"kind": "StatefulSet", "metadata": {"name": f"run-{name}", "labels": {COMPONENT: name}}, "spec": spec}


SHARDS = claim("run-shards", "ReadWriteOnce")
NODES = [node("a"), node("b"), node("cordoned", unschedulable=True), node("of-gpus", taints=[TAINT])]


def test_a_claim_that_one_node_can_mount_is_named_with_its_parts_and_what_to_do() -> None:
    overlay = [SHARDS, part("sharder", "run-shards"), part("worker", "run-shards")]
    (said,) = one_node_claims(overlay, [], NODES)
    assert said.startswith("claim run-shards is ReadWriteOnce: one node at a time can mount it, and 2 nodes take")
    assert "sharder, worker" in said
    assert "set shared_storage in the profile, or use the component data-server" in said


@pytest.mark.parametrize(
    ("overlay", "claims", "nodes"),
    [
        ([SHARDS, part("worker", "run-shards")], [], [NODES[0], *NODES[2:]]),
        ([SHARDS, part("evaluator", "run-shards")], [], NODES),
        ([claim("run-shards", "ReadWriteMany"), part("worker", "run-shards")], [], NODES),
        ([SHARDS, part("worker", "run-shards")], [claim("run-shards", "ReadWriteMany")], NODES),
        ([part("worker", "of-another")], [], NODES),
    ],
    ids=["one node", "one pod", "many nodes may", "the cluster's claim counts", "unknown claim"],
)
def test_nothing_is_said_where_no_pod_can_wait(overlay: list[Any], claims: list[Any], nodes: list[Any]) -> None:
    assert not list(one_node_claims(overlay, claims, nodes))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")
@pytest.mark.parametrize(("shared", "is_named"), [(False, True), (True, False)])
def test_only_a_run_without_a_shared_volume_is_warned_of(shared: bool, is_named: bool, tmp_path: Path) -> None:
    profile = yaml.safe_load((PROFILES / "cpu.yaml").read_text()) | {"shared_storage": shared}
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(profile))
    settings, changes = OVERLAYS / "demo/run.yaml", Changes(profile=str(tmp_path / "profile.yaml"))

    overlay = read_overlay(Kubectl("here"), str(settings), changes)

    assert bool(list(one_node_claims(overlay.documents, [], NODES))) == is_named


HAS_NAMESPACES = (
    os.geteuid() == 0 and not subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode
)


@pytest.mark.skipif(not HAS_NAMESPACES, reason="only root has process namespaces")
def test_a_pod_that_is_left_behind_ends_once_nothing_else_runs_in_it(tmp_path: Path) -> None:
    copying = f"(command sleep 0.3; touch {tmp_path}/copied) &\n"
    quick = "sleep() { command sleep 0.01; }\n"

    subprocess.run(
        [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            copying + quick + volumes._UNTIL_IDLE,
            "files",
            "20",
        ],
        check=True,
        timeout=30,
    )

    assert (tmp_path / "copied").exists()
