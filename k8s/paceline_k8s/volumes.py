"""Files into and out of a run's volumes, through a pod that only mounts one."""

import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml

from paceline.base.private import make_private
from paceline.core.errors import DataError, DiskError, PacelineError, ServersGone
from paceline_k8s.cluster_status import look
from paceline_k8s.deploy import EVERY, Say, make_namespace
from paceline_k8s.findings import finding_lines
from paceline_k8s.kubectl import DATA, PARTS, RUN, TEXT, Kubectl
from paceline_k8s.lacking_files import incomplete, is_plain, lacking

HELPER, LIFE = "paceline-files", 6 * 3600
"""Names of such pods begin with this; none lives longer than this many seconds."""
IDLE = 600
"""Seconds after which such a pod ends once nothing but itself runs in it, since its caller is gone. Files that are only read
here take no longer."""
_UNTIL_IDLE = """
idle=0
while [ $idle -lt $1 ]; do
  sleep 5
  idle=$((idle + 5))
  for each in /proc/[0-9]*; do [ $each = /proc/$$ ] || idle=0; done
done
"""
"""Of a shell, whose first argument is the number of seconds."""
_IMAGE = "localhost/paceline-server:0.1.0"


def put_data(kubectl: Kubectl, source: Path, say: Say, size: str, image: str | None = None) -> None:
    """Copies a file, or what is in a folder, to the claim that the sharder reads at /data, but for files that an earlier call
    has copied. Makes the claim if it does not exist (`size`: as Kubernetes writes it). DiskError where a copy fails
    midway: the next call goes on."""
    if not source.exists():
        raise DataError(f"There is no {source} to copy. Give a file or a folder.")
    folder = source if source.is_dir() else source.parent
    paths = sorted(source.rglob("*")) if source.is_dir() else [source]
    if not paths:
        raise DataError(f"The folder {source} is empty. Give a file, or a folder with files.")
    _check_links(paths)
    make_namespace(kubectl, say)
    if kubectl.find(f"persistentvolumeclaim/{DATA}") is None:
        kubectl.run("apply", "--filename=-", stdin=yaml.safe_dump(_claim(size, _labels(kubectl))))
        say(f"made volume claim {DATA} of {size}")
    with _files(kubectl, DATA, image) as pod:
        _send(kubectl, pod, folder, paths, say)
        listed = kubectl.run("exec", pod, "--", "ls", "-l", "/files").strip()
    say(f"/data now holds:\n{listed}")


def _check_links(paths: list[Path]) -> None:
    """DataError where a link would lead nowhere on the volume: its target is not among these, or it says where it is here."""
    links = [path for path in paths if path.is_symlink()]
    there = {path.resolve() for path in paths if not path.is_symlink()} if links else set()
    for link in links:
        if link.readlink().is_absolute() or link.resolve() not in there:
            raise DataError(
                f"{link} is a link to {link.readlink()}, which would lead nowhere on the volume. Put the file itself in its "
                "place, or give a folder that has both, with a relative link."
            )


def _send(kubectl: Kubectl, pod: str, folder: Path, paths: list[Path], say: Say) -> None:
    """What the pod's volume lacks of these, which are in `folder`."""

    def ask(script: str, text: str) -> str:
        return kubectl.run("exec", "--stdin", pod, "--", "sh", "-c", f"cd /files && {script}", stdin=text, seconds=LIFE)

    missing = lacking(folder, paths, ask, say)
    files = [path for path in missing if is_plain(path)]
    size = sum(path.stat().st_size for path in files)
    say(f"copying {len(files)} of {sum(map(is_plain, paths))} files, {size:,} bytes")
    if not missing:
        return
    with NamedTemporaryFile() as names:
        names.write(b"".join(bytes(path.relative_to(folder)) + b"\0" for path in missing))
        names.flush()
        pack = ["tar", "--create", "--directory", str(folder), "--no-recursion", "--null", "--files-from", names.name]
        unpack = kubectl.command(
            "exec", "--stdin", pod, "--", "tar", "--extract", "--no-same-owner", "--directory", "/files"
        )
        try:
            _piped(pack, unpack, say)
        except DiskError as error:
            raise DiskError(f"{error}. Call it again to go on with the files that are not whole.") from error
    if cut := incomplete(folder, missing, ask):
        raise DiskError(f"Not all arrived whole: {len(cut)} files are cut, like {cut[0]}. Call it again to go on.")


def fetch_model(kubectl: Kubectl, target: Path, say: Say, image: str | None = None) -> list[Path]:
    """Copies the run's models to a folder here; the paths. `image`: of the pod that reads them, in place of the servers' own.
    DataError where there are no models yet; DiskError."""
    try:
        make_private(target)
    except OSError as error:
        raise DiskError(f"Can't make the folder {target}: {error.strerror}. Give another one (OUT=).") from error
    claim = kubectl.part("models")
    with _files(kubectl, claim, image) as pod:
        names = kubectl.run("exec", pod, "--", "ls", "/files").split()
        models = [name for name in names if name.startswith(("last.", "best."))]
        if not models:
            raise DataError(
                f"The volume {claim} holds no model yet ({', '.join(names) or 'nothing'}). A run saves its first "
                "model after it has scored an epoch."
            )
        pack = kubectl.command("exec", pod, "--", "tar", "--create", "--directory", "/files", "--", *models)
        _piped(pack, ["tar", "--extract", "--no-same-owner", "--directory", str(target)], say)
    paths = sorted(path for path in target.iterdir() if path.name.startswith(("last.", "best.")))
    for path in paths:
        say(f"{path}  {path.stat().st_size:,} bytes")
    return paths


@contextmanager
def _files(kubectl: Kubectl, claim: str, image: str | None) -> Iterator[str]:
    """A pod that has the claim at /files, until the block ends; its name. It is made as those of the run's servers, which the
    cluster can start; `image`: another one for it."""
    pod = f"{HELPER}-{secrets.token_hex(4)}"
    servers = _spec_of_servers(kubectl)
    image = image or (servers["containers"][0]["image"] if servers else _IMAGE)
    made = _pod(pod, claim, image, _labels(kubectl), servers)
    kubectl.run("apply", "--filename=-", stdin=yaml.safe_dump(made))
    try:
        try:
            kubectl.run("wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=120s", seconds=130)
        except PacelineError as error:
            causes = finding_lines(one for one in look(kubectl).troubles if pod in one.part)
            raise ServersGone(f"The pod that reads {claim} does not start: {' '.join(causes) or error}") from error
        yield pod
    finally:
        kubectl.run("delete", f"pod/{pod}", "--ignore-not-found", "--grace-period=1", "--wait=false")


def _piped(first: list[str], second: list[str], say: Say) -> None:
    """Runs two programs, the first one's output being the other's input; says every 10 s that it goes on."""
    start = time.monotonic()
    with subprocess.Popen(first, stdout=subprocess.PIPE) as pack:
        with subprocess.Popen(second, stdin=pack.stdout, stderr=subprocess.PIPE, **TEXT) as unpack:
            assert pack.stdout is not None
            pack.stdout.close()  # so that the first one ends where the other does
            while True:
                try:
                    _, errors = unpack.communicate(timeout=EVERY)
                    break
                except subprocess.TimeoutExpired:
                    say(f"{time.monotonic() - start:4.0f} s  copying")
        if pack.wait() or unpack.returncode:
            raise DiskError(
                "Copying failed. Is the volume full, or the connection gone? "
                f"{errors.strip() or f'{first[0]} ended with {pack.returncode}'}"
            )


def _spec_of_servers(kubectl: Kubectl) -> dict[str, Any]:
    """That of the servers' pods; empty where there are none, or no run is meant."""
    found = kubectl.find(kubectl.servers) if kubectl.run_name else None
    return dict(found["spec"]["template"]["spec"]) if found else {}


def _labels(kubectl: Kubectl) -> dict[str, str]:
    """Of the run; of no run where none is meant, as input data is."""
    run = {RUN: kubectl.run_name} if kubectl.run_name else {}
    return {"app.kubernetes.io/name": "paceline", **dict([PARTS.split("=")]), **run}


def _claim(size: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": DATA, "labels": labels},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def _pod(name: str, claim: str, image: str, labels: dict[str, str], servers: dict[str, Any]) -> dict[str, Any]:
    """Restricted as all other pods; nodes with GPUs take it, too. `servers`: how their pods are made."""
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    user = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "files",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _UNTIL_IDLE, "files", str(IDLE)],
        "securityContext": security,
        "volumeMounts": [{"name": "files", "mountPath": "/files"}],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi"},
            "limits": {"cpu": "500m", "memory": "256Mi", "ephemeral-storage": "64Mi"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": user,
            "tolerations": [gpu, *servers.get("tolerations", ())],
            "imagePullSecrets": servers.get("imagePullSecrets", []),
            "containers": [container],
            "volumes": [{"name": "files", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }
