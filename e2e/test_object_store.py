"""Data and shards in a bucket of a real S3 server (moto) in the namespace, with other traffic forbidden; a copy that was cut.

No image is built for the server: it runs in that of the sharder, which has most of its libraries, and gets the others from
the environment of this test. That one must have been made from requirements.lock (`make setup`), with the image's Python."""

import importlib.metadata
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import s3fs
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e.cluster import (
    ACCURACY,
    REGISTRY,
    REPOSITORY,
    SVM,
    TAG,
    accuracy_of,
    paceline,
    reaches,
    run_of,
    until,
)
from paceline.data.dataset import Dataset
from paceline_k8s.kubectl import COMPONENT, RUN, Kubectl
from paceline_papers.rcv1_like import write_lyrl2004

pytestmark = pytest.mark.timeout(600)
PORT, KEYS = 5000, {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
SERVER = "until [ -e /cache/all ]; do sleep 0.2; done; exec python -m moto.server -H 0.0.0.0 -p 5000"
"""Starts once its libraries have arrived."""
ANY: dict[str, Any] = {"podSelector": {}}


def of_kind(kind: str, name: str, spec: dict[str, Any], group: str = "v1") -> dict[str, Any]:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "labels": {"app": "s3"}}, "spec": spec}


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return of_kind("NetworkPolicy", name, spec, "networking.k8s.io/v1")


def server() -> list[dict[str, Any]]:
    """The S3 server as a pod under Pod Security restricted, its address, and policies: nobody may do anything, but the pods
    that may go out may call it."""
    container = {
        "name": "s3",
        "image": f"{REGISTRY}/paceline-sharder:{TAG}",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", SERVER],
        "env": [{"name": "PYTHONPATH", "value": "/cache/site"}],
        "ports": [{"containerPort": PORT}],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}],
    }
    calls = [{"from": [ANY], "ports": [{"protocol": "TCP", "port": PORT}]}]
    return [
        policy("deny-all", podSelector={}, policyTypes=["Ingress", "Egress"]),
        policy("s3", podSelector={"matchLabels": {"app": "s3"}}, policyTypes=["Ingress"], ingress=calls),
        of_kind("Service", "s3", {"selector": {"app": "s3"}, "ports": [{"port": PORT}]}),
        of_kind("Pod", "s3", pod),
    ]


def libraries() -> Iterator[tuple[Path, str]]:
    """Every file of moto's that the sharder's image does not have, and its place among the libraries."""
    there = set(re.findall(r"^([a-z0-9._-]+)==", (REPOSITORY / "docker/sharder.lock").read_text(), re.MULTILINE))
    wanted, seen = ["moto", "py-partiql-parser", "flask", "flask-cors"], set(there)
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in seen:
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        needs = map(Requirement, found.requires or ())
        wanted += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        for file in found.files or ():
            if file.parts[0] != ".." and file.suffix != ".pyc":
                yield Path(str(found.locate_file(file))), str(file)


def bring_libraries(kubectl: Kubectl) -> None:
    """By the pod's own tar; the server starts then."""
    unpack = "mkdir -p /cache/site && tar --extract --no-same-owner --directory /cache/site && touch /cache/all"
    command = kubectl.command("exec", "--stdin", "s3", "--", "sh", "-c", unpack)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as exec_:
        assert exec_.stdin is not None
        with tarfile.open(fileobj=exec_.stdin, mode="w|") as archive:
            for path, place in libraries():
                archive.add(path, place, recursive=False)
        exec_.stdin.close()
    assert exec_.returncode == 0


def fill(kubectl: Kubectl, bucket: str, folder: Path) -> None:
    """Makes the bucket, with the files of this folder, as soon as the server answers."""
    until("the S3 server", lambda: "Running on" in kubectl.logs("s3"))
    with kubectl.forwarded("s3", PORT) as address:
        url, user = f"http://{address}", {"key": "key", "secret": "secret"}
        files = s3fs.S3FileSystem(endpoint_url=url, skip_instance_cache=True, **user)
        files.mkdir(bucket)
        for path in sorted(folder.iterdir()):
            files.put_file(str(path), f"{bucket}/{folder.name}/{path.name}")


def credentials(kubectl: Kubectl, **more: str) -> None:
    """The Secret of docs/run/object-stores.md, in place of one that may be there."""
    kubectl.run("delete", "secret/paceline-object-store", "--ignore-not-found")
    given = {"AWS_ENDPOINT_URL": f"http://s3:{PORT}", "AWS_DEFAULT_REGION": "us-east-1", **more}
    literals = [f"--from-literal={name}={value}" for name, value in given.items()]
    kubectl.run("create", "secret", "generic", "paceline-object-store", *literals)


def bucket_with(rows: Dataset, namespace: str, folder: Path) -> Kubectl:
    """A new namespace under Pod Security restricted, and in it a bucket with this data set, at s3://mine/rcv1."""
    kubectl = Kubectl(namespace, "svm")
    kubectl.run("create", "namespace", namespace)
    kubectl.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubectl.run("apply", "--filename=-", stdin=yaml.safe_dump_all(server()))
    (folder / "rcv1").mkdir()
    write_lyrl2004(rows, folder / "rcv1")
    kubectl.run("wait", "pod/s3", "--for=condition=Ready", "--timeout=120s", seconds=130)
    bring_libraries(kubectl)
    fill(kubectl, "mine", folder / "rcv1")
    return kubectl


def reading(folder: Path, more: Mapping[str, Any] = MappingProxyType({}), **data: Any) -> list[str]:
    """A run of two workers whose data is in that bucket, and who may go out to it and nowhere else. `more`: settings."""
    settings: dict[str, Any] = SVM | {
        "workers": 2,
        "data": {"path": "s3://mine/rcv1", "validation": 0.0, **data},
        "epochs": 20,
        "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.0, "weight_decay": 0.0},
        "svm": {"stop": "own"},
        **more,
    }
    store = {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["s3"]}]}}
    way = {"to": [store], "ports": [{"protocol": "TCP", "port": PORT}]}
    way_out = {
        "target": {"kind": "NetworkPolicy", "name": "paceline-object-store"},
        "patch": yaml.safe_dump([{"op": "replace", "path": "/spec/egress/0", "value": way}]),
    }
    return run_of(folder, settings, patches=[way_out])


def test_a_run_trains_on_a_bucket_that_only_its_sharder_reaches(namespace: str, tmp_path: Path, rows: Dataset) -> None:
    kubectl = bucket_with(rows, namespace, tmp_path)
    svm = reading(tmp_path / "run")

    credentials(kubectl)
    refused = paceline("k8s", "run", *svm, "-n", namespace)
    assert refused.returncode == 78
    said = " ".join(refused.stderr.split())
    assert f"No credentials for the bucket 'mine' of S3 at http://s3:{PORT} (AWS_ENDPOINT_URL)" in said
    credentials(kubectl, **KEYS)
    done = paceline("k8s", "run", *svm, "-n", namespace)

    assert done.returncode == 0
    assert accuracy_of(done.stdout) >= ACCURACY["svm"]
    address = {"s3": f"{kubectl.get('pod/s3')['status']['podIP']}:{PORT}"}
    labels = {"app.kubernetes.io/name": "paceline", RUN: "svm"}
    reader = {COMPONENT: "sharder", "paceline-object-store": "reader"}
    assert reaches(kubectl, labels | reader, address) == {"s3": True}
    assert reaches(kubectl, labels | {COMPONENT: "worker"}, address) == {"s3": False}


def fetched(kubectl: Kubectl) -> set[str]:
    """The shards that workers have fetched, by their logs."""
    lines = kubectl.run("logs", f"--selector={COMPONENT}=worker", "--tail=-1")
    return set(re.findall(r'"what": "(shard-\d)".*"event": "fetched"', lines))


def test_workers_fetch_shards_that_stay_in_a_bucket(namespace: str, tmp_path: Path, rows: Dataset) -> None:
    kubectl = bucket_with(rows, namespace, tmp_path)
    svm = reading(tmp_path / "run", shards_at="s3://mine/shards")

    credentials(kubectl, **KEYS)
    assert paceline("k8s", "deploy", *svm, "-n", namespace).returncode == 0
    until("both shards", lambda: fetched(kubectl) == {"shard-0", "shard-1"})  # logs go with their pods
    done = paceline("k8s", "run", *svm, "-n", namespace)

    assert done.returncode == 0
    assert accuracy_of(done.stdout) >= ACCURACY["svm"]
    assert kubectl.find(f"pvc/{kubectl.part('shards')}") is None
    address = {"s3": f"{kubectl.get('pod/s3')['status']['podIP']}:{PORT}"}
    labels = {"app.kubernetes.io/name": "paceline", RUN: "svm"}
    assert reaches(kubectl, labels | {COMPONENT: "server"}, address) == {"s3": False}


def sent(kubectl: Kubectl, server: int) -> int:
    """How many of this server's snapshots are whole in the bucket."""
    with kubectl.forwarded("s3", PORT) as address:
        files = s3fs.S3FileSystem(
            endpoint_url=f"http://{address}", skip_instance_cache=True, key="key", secret="secret"
        )
        return len(files.glob(f"mine/checkpoints/svm/server-{server}/*/*/snapshot-*.json"))


def test_a_server_whose_volume_is_gone_goes_on_from_the_bucket(namespace: str, tmp_path: Path, rows: Dataset) -> None:
    kubectl = bucket_with(rows, namespace, tmp_path)
    slow = {"epochs": 60, "slow": {"all": "2x"}, "nominal_step": 0.02, "servers": 2}
    stored = {"checkpoint": {"at": "s3://mine/checkpoints", "every": "2s"}}
    svm = reading(tmp_path / "run", slow | stored, shards_at="s3://mine/shards")
    server = f"{kubectl.part('server')}-1"

    credentials(kubectl, **KEYS)
    assert paceline("k8s", "deploy", *svm, "-n", namespace).returncode == 0
    until("snapshots in the bucket", lambda: min(sent(kubectl, 0), sent(kubectl, 1)) > 0)
    kubectl.run("delete", f"pvc/checkpoints-{server}", "--wait=false")
    kubectl.run("delete", f"pod/{server}", "--grace-period=0", "--force")
    until("the server", lambda: "fetched snapshots from the store" in kubectl.logs(server, lines=200))
    done = paceline("k8s", "run", *svm, "-n", namespace)

    assert done.returncode == 0
    assert accuracy_of(done.stdout) >= ACCURACY["svm"]


def test_a_copy_goes_on_where_it_was_cut(namespace: str, tmp_path: Path) -> None:
    image = ("--image", f"{REGISTRY}/paceline-server:{TAG}")
    for folder, size in (("cut", 1 << 19), ("whole", 1 << 20)):
        (tmp_path / folder / "more").mkdir(parents=True)
        (tmp_path / folder / "a.bin").write_bytes(b"a" * (1 << 20))
        (tmp_path / folder / "more" / "b b.bin").write_bytes(b"b" * size)

    first = paceline("k8s", "put-data", str(tmp_path / "cut"), "-n", namespace, *image)
    second = paceline("k8s", "put-data", str(tmp_path / "whole"), "-n", namespace, *image)
    third = paceline("k8s", "put-data", str(tmp_path / "whole"), "-n", namespace, *image)

    assert [done.returncode for done in (first, second, third)] == [0, 0, 0]
    assert "copying 2 of 2 files" in first.stdout + first.stderr
    assert "copying 1 of 2 files, 1,048,576 bytes" in second.stdout + second.stderr
    assert "copying 0 of 2 files, 0 bytes" in third.stdout + third.stderr
