"""Files into and out of a run's volumes, through a pod that only mounts one."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from paceline.core.errors import DataError, DiskError, ServersGone
from paceline.k8s.deploy import Say
from paceline.k8s.findings import told
from paceline.k8s.kubectl import PARTS, Kubectl

HELPER = "paceline-files"
DATA, MODELS = "paceline-data", "paceline-models"
_IMAGE = "localhost/paceline-server:0.1.0"


def put_data(kubectl: Kubectl, source: Path, say: Say, size: str, image: str = _IMAGE) -> None:
    """Copies a file, or what is in a folder, to the claim that the sharder reads at /data; makes the claim if it is not
    there (`size`: as Kubernetes writes it)."""
    if not source.exists():
        raise DataError(f"There is no {source} to copy. Give a file or a folder.")
    if kubectl.find(f"persistentvolumeclaim/{DATA}") is None:
        kubectl.run("apply", "--filename=-", stdin=yaml.safe_dump(_claim(size)))
        say(f"made volume claim {DATA} of {size}")
    folder = source if source.is_dir() else source.parent
    names = sorted(path.name for path in source.iterdir()) if source.is_dir() else [source.name]
    with _files(kubectl, DATA, image):
        pack = ["tar", "--create", "--directory", str(folder), *names]
        unpack = kubectl.command(
            "exec", "--stdin", HELPER, "--", "tar", "--extract", "--no-same-owner", "--directory", "/files"
        )
        _piped(pack, unpack)
        listed = kubectl.run("exec", HELPER, "--", "ls", "-l", "/files").strip()
    say(f"/data now holds:\n{listed}")


def fetch_model(kubectl: Kubectl, target: Path, say: Say, image: str | None = None) -> list[Path]:
    """Copies the run's models to a folder here; the paths. DataError where there are none yet."""
    target.mkdir(parents=True, exist_ok=True)
    with _files(kubectl, MODELS, image or _image_of(kubectl)):
        names = kubectl.run("exec", HELPER, "--", "ls", "/files").split()
        if not any(name.startswith(("last.", "best.")) for name in names):
            raise DataError(
                f"The volume {MODELS} holds no model yet ({', '.join(names) or 'nothing'}). Has an epoch been scored?"
            )
        _piped(kubectl.command("exec", HELPER, "--", "tar", "--create", "--directory", "/files", "."),
               ["tar", "--extract", "--no-same-owner", "--directory", str(target)])  # fmt: skip
    paths = sorted(path for path in target.iterdir() if path.name.startswith(("last.", "best.")))
    for path in paths:
        say(f"{path}  {path.stat().st_size:,} bytes")
    return paths


@contextmanager
def _files(kubectl: Kubectl, claim: str, image: str) -> Iterator[None]:
    """A pod that has the claim at /files, until the block ends."""
    kubectl.run("delete", f"pod/{HELPER}", "--ignore-not-found", "--wait=true")
    kubectl.run("apply", "--filename=-", stdin=yaml.safe_dump(_pod(claim, image)))
    try:
        try:
            kubectl.run("wait", f"pod/{HELPER}", "--for=condition=Ready", "--timeout=120s", seconds=130)
        except Exception as error:
            from paceline.k8s.look import look

            causes = told(one for one in look(kubectl).troubles if HELPER in one.part)
            raise ServersGone(f"The pod that reads {claim} does not start: {' '.join(causes) or error}") from error
        yield
    finally:
        kubectl.run("delete", f"pod/{HELPER}", "--ignore-not-found", "--grace-period=1", "--wait=false")


def _piped(first: list[str], second: list[str]) -> None:
    with subprocess.Popen(first, stdout=subprocess.PIPE) as pack:
        done = subprocess.run(second, stdin=pack.stdout, capture_output=True, text=True)
        if pack.wait() or done.returncode:
            raise DiskError(f"Copying failed: {done.stderr.strip() or f'{first[0]} ended with {pack.returncode}'}")


def _image_of(kubectl: Kubectl) -> str:
    """The servers' own image, which the cluster has."""
    found = kubectl.find("statefulset/paceline-server")
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"]) if found else _IMAGE


def _labels() -> dict[str, str]:
    return {"app.kubernetes.io/name": "paceline", **dict([PARTS.split("=")])}


def _claim(size: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": DATA, "labels": _labels()},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }  # fmt: skip


def _pod(claim: str, image: str) -> dict[str, Any]:
    """Restricted as all other pods."""
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    user = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"}}  # fmt: skip
    container = {
        "name": "files", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
        "securityContext": security, "volumeMounts": [{"name": "files", "mountPath": "/files"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": HELPER, "labels": _labels()},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1,
            "securityContext": user, "containers": [container],
            "volumes": [{"name": "files", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }  # fmt: skip
