"""What `make release` puts into its folder: images by digest, manifests that Kubernetes takes, an artifact."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from paceline_k8s.kubectl import Kubectl, containers
from paceline_k8s.overlay import read_overlay
from paceline_k8s.profile import read_profile
from paceline_k8s.render import text_of
from tests.support.kustomize import objects, render
from tools.release import provenance
from tools.release.__main__ import main
from tools.release.artifact import packed, write_artifact
from tools.release.images import NAMES, digest_of, save
from tools.release.manifests import K8S, pin, pinned

DIGESTS = {name: f"sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name in NAMES}
IMAGES = {name: f"registry.example/team/paceline-{name}@{digest}" for name, digest in DIGESTS.items()}
OVERLAYS = sorted(path.parent.name for path in (K8S / "overlays").glob("*/run.yaml"))
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="no helm is here: .ci/packages says how to get it")


@cache
def rendered(folder: Path) -> str:
    """The overlay in this folder of the release, rendered once for all tests."""
    return render(folder)


def archive(path: Path, *digests: str, has_index: bool = True) -> Path:
    index = json.dumps({"manifests": [{"digest": digest} for digest in digests]}).encode()
    with tarfile.open(path, "w") as found:
        member = tarfile.TarInfo("index.json" if has_index else "manifest.json")
        member.size = len(index)
        found.addfile(member, io.BytesIO(index))
    return path


def test_the_digest_of_an_archive_is_that_of_its_image(tmp_path: Path) -> None:
    assert digest_of(archive(tmp_path / "one.tar", DIGESTS["server"])) == DIGESTS["server"]


@pytest.mark.parametrize(
    ("digests", "has_index", "told"),
    [((), True, "has 0 images"), (("a", "b"), True, "has 2 images"), (("a",), False, "from release 25 on")],
)
def test_an_archive_without_one_image_is_refused(
    tmp_path: Path, digests: tuple[str, ...], has_index: bool, told: str
) -> None:
    with pytest.raises(SystemExit, match=told):
        digest_of(archive(tmp_path / "image.tar", *digests, has_index=has_index))


def test_a_program_that_writes_no_archives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ENGINE=kaniko: expected one of buildah, podman, docker"):
        save("kaniko", "localhost/paceline-server:0.1.0", tmp_path / "server.tar")


def test_an_image_that_is_not_in_the_release_is_refused() -> None:
    with pytest.raises(SystemExit, match="names the image paceline-worker, which this release does not have"):
        pin('- {name: paceline-worker, newName: localhost/paceline-worker, newTag: "0.1.0"}', "here", {})


@pytest.fixture(scope="module")
def k8s(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "k8s"
    pinned(folder, "registry.example/team", DIGESTS)
    return folder


@needs_kubectl
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_names_the_images_by_digest_and_can_be_deployed(
    k8s: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kubectl, "run", lambda _, verb, folder: {"kustomize": rendered}[verb](Path(folder)))
    overlay = read_overlay(Kubectl("here"), str(k8s / "overlays" / name))
    found = {container["image"] for one in overlay.documents for container in containers(one)}
    assert found <= set(IMAGES.values())
    assert found


def test_every_profile_names_the_images_by_digest(k8s: Path) -> None:
    for file in sorted((k8s / "profiles").iterdir()):
        images = read_profile(str(file)).images
        assert {images.server, images.worker, images.sharder} <= set(IMAGES.values())


def test_an_artifact_holds_the_files_by_their_digests_and_is_the_same_each_time(k8s: Path, tmp_path: Path) -> None:
    digest = write_artifact(k8s, tmp_path / "a", "0.1.0", {"revision": "abc"})
    index = json.loads((tmp_path / "a" / "index.json").read_text())
    (named,) = index["manifests"]
    blobs = {path.name: path.read_bytes() for path in (tmp_path / "a" / "blobs" / "sha256").iterdir()}
    manifest = json.loads(blobs[digest.removeprefix("sha256:")])
    (layer,) = manifest["layers"]

    assert named["digest"] == digest
    assert named["annotations"]["org.opencontainers.image.ref.name"] == "0.1.0"
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())
    assert manifest["annotations"] == {"revision": "abc"}
    with tarfile.open(fileobj=io.BytesIO(blobs[layer["digest"].removeprefix("sha256:")])) as found:
        found.extractall(tmp_path / "out", filter="data")
    assert files(tmp_path / "out") == files(k8s)
    assert write_artifact(k8s, tmp_path / "b", "0.1.0", {"revision": "abc"}) == digest


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@needs_helm
@needs_kubectl
def test_a_chart_around_a_rendered_file_gives_its_objects(tmp_path: Path) -> None:
    documents = read_overlay(Kubectl("here"), str(K8S / "overlays/demo/run.yaml")).documents
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: mine, version: 0.1.0}\n")
    (tmp_path / "templates/run.yaml").write_text('{{ .Files.Get "manifests.yaml" }}\n')
    (tmp_path / "manifests.yaml").write_text(text_of(documents, "paceline k8s render run.yaml"))

    done = subprocess.run(["helm", "template", "mine", tmp_path], capture_output=True, text=True, check=True)

    def by_name(found: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
        return {(one["kind"], one["metadata"]["name"]): one for one in found}

    assert by_name(objects(done.stdout)) == by_name(documents)


def test_the_provenance_names_what_was_made_and_from_which_commit_and_locks() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    found = provenance.statement({"a/server": DIGESTS["server"]}, {"TAG": "0.1.0"}, "c0ffee", began)
    assert found["subject"] == [{"name": "a/server", "digest": {"sha256": DIGESTS["server"].removeprefix("sha256:")}}]
    built = found["predicate"]["buildDefinition"]
    assert built["externalParameters"] == {"TAG": "0.1.0"}
    materials = {one["uri"]: one["digest"] for one in built["resolvedDependencies"]}
    assert materials["git+paceline"] == {"gitCommit": "c0ffee"}
    lock = provenance.ROOT / "docker" / "server.lock"
    assert materials["docker/server.lock"] == {"sha256": hashlib.sha256(lock.read_bytes()).hexdigest()}


def test_the_same_files_are_packed_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "in" / "file").write_text("same")
    assert packed(tmp_path / "a") == packed(tmp_path / "b")


@pytest.mark.parametrize(
    ("more", "told"),
    [(["--tag", "latest"], "TAG=latest: expected a version like 0.1.0"), (["--tag", "1.2.3"], "exists. Delete it")],
)
def test_what_would_be_no_release_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: list[str], told: str
) -> None:
    (tmp_path / "out").mkdir()
    words = ["--engine", "docker", "--registry", "here", "--out", str(tmp_path / "out"), *more]
    monkeypatch.setattr(sys, "argv", ["make release", *words])
    with pytest.raises(SystemExit, match=told):
        main()
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
