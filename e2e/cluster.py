"""What several tests on a cluster share."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from paceline.core.errors import ServersGone
from paceline.data.dataset import Dataset
from paceline.rpc.tls import read_keys
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.cluster_status import chief_of
from paceline_k8s.kubectl import COMPONENT, GRPC, Kubectl, NotThere
from paceline_papers.rcv1_like import write_lyrl2004
from tools.authority import Authority

REPOSITORY = Path(__file__).parents[1]
REGISTRY, TAG = os.environ.get("REGISTRY", "localhost"), os.environ.get("TAG", "0.1.0")
AGAIN = f"{TAG}-again"
"""The same image of workers under another name, to which a run is changed."""
ACCURACY = {"svm": 0.88, "digits": 0.90}
DEMO: dict[str, Any] = yaml.safe_load((REPOSITORY / "k8s/overlays/demo/run.yaml").read_text())
SVM: dict[str, Any] = yaml.safe_load((REPOSITORY / "papers/k8s/svm-hogwild.yaml").read_text()) | {"run": "svm"}
SLOW_SVM: dict[str, Any] = SVM | {
    "data": {"path": "/data/rcv1", "source": "server", "validation": 0.0},
    "workers": 2,
    "epochs": 60,
    "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.0, "weight_decay": 0.0},
    "svm": {"stop": "own"},
    "slow": {"all": "2x"},
    "nominal_step": 0.02,
    "checkpoint": {"every": "2s"},
}
"""Settings of a run that has pauses of 30 s in all, so that it still trains on a fast machine while a test looks at it."""


CRAWLING_SVM: dict[str, Any] = SLOW_SVM | {
    "workers": 3,
    "epochs": 8,
    "svm": {"stop": "own", "batches": 1},
    "slow": {"1": "100x", "2": "100x"},
    "nominal_step": 0.01,
    "lease": 4.0,
    "heartbeat": 1.0,
}
"""Settings of a run that takes a quarter of an hour under bsp, where one worker waits for the slow ones. Under asp it takes
seconds. So it trains until a test changes its policy."""
DATA = "PersistentVolumeClaim/paceline-data"


def command(*arguments: str) -> list[str]:
    """The command as a user gives it."""
    return [sys.executable, "-m", "paceline.cli", *arguments]


@contextmanager
def going_on(terminal: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs the command in another terminal, which is a file; it is interrupted at the block's end, if it still runs then."""
    with (
        terminal.open("wb") as out,
        subprocess.Popen(command(*arguments), stdout=out, stderr=out, cwd=REPOSITORY) as it,
    ):
        try:
            yield it
        finally:
            it.send_signal(signal.SIGINT)
            it.wait()
            print(f"\n$ paceline {' '.join(arguments)}  # exit {it.returncode}\n{terminal.read_text()}", flush=True)


def paceline(*arguments: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """Runs the command; what it says goes on to the test's own output."""
    start = time.monotonic()
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=seconds, cwd=REPOSITORY)
    took = time.monotonic() - start
    print(
        f"\n$ paceline {' '.join(arguments)}  # {took:.0f} s, exit {done.returncode}\n{done.stdout}{done.stderr}",
        flush=True,
    )
    return done


def run_of(
    folder: Path,
    settings: Mapping[str, Any],
    components: Sequence[str] = (),
    patches: Sequence[Any] = (),
    worker: str = "paceline-worker-slim",
    **profile: Any,
) -> list[str]:
    """What deploy, run and render take for a run with these settings: a run.yaml and a profile in `folder`, as a user writes
    them. Workers ask for little, so that there is room for another run. `worker`: their image; `profile`: more of its keys."""
    folder.mkdir(parents=True, exist_ok=True)
    images = {"server": "paceline-server", "worker": worker, "sharder": "paceline-sharder"}
    platform = {
        "images": {part: full_name(name) for part, name in images.items()},
        "components": ["network-policy", *components],
        "resources": {"worker": {"requests": {"cpu": "50m"}}},
        "patches": list(patches),
        **profile,
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(dict(settings)))
    (folder / "profile.yaml").write_text(yaml.safe_dump(platform))
    return [str(folder / "run.yaml"), "--profile", str(folder / "profile.yaml")]


def apply(kubectl: Kubectl, run: Sequence[str], *how: str) -> None:
    """Renders the run and applies the file, as a tool for GitOps does."""
    file = Path(run[0]).with_name("manifests.yaml")
    assert paceline("k8s", "render", *run, "--out", str(file)).returncode == 0
    kubectl.run("apply", f"--filename={file}", *how)


def worker_patch(first: dict[str, Any] | None = None, **spec: Any) -> dict[str, str]:
    """A patch of the workers' container; `first`: of the one before it, which makes the token."""
    return _patch(
        "worker", initContainers=[{"name": "token", **(first or {})}], containers=[{"name": "worker", **spec}]
    )


def server_patch(**spec: Any) -> dict[str, str]:
    """A patch of the servers' container."""
    return _patch("server", containers=[{"name": "server", **spec}])


def _patch(part: str, **pod: Any) -> dict[str, str]:
    about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": f"paceline-{part}"}}
    return {"patch": yaml.safe_dump(about | {"spec": {"template": {"spec": pod}}})}


def outputs(images: Sequence[str], script: str) -> dict[str, str | None]:
    """What a shell's script prints in each of these images, in one pod; None where the node does not have the image."""
    kubectl, name = Kubectl("default"), f"paceline-e2e-images-{time.time_ns() % 10**6}"
    command = ["sh", "-c", f"({script}) >/dev/termination-log"]
    containers = [
        {"name": f"image-{index}", "image": image, "imagePullPolicy": "Never", "command": command}
        for index, image in enumerate(images)
    ]
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": containers}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl.run("apply", "--filename=-", stdin=json.dumps(pod))
    try:
        states = until("the end of a script in images", lambda: _ended(kubectl.get(f"pod/{name}"), len(images)))
    finally:
        kubectl.run("delete", f"pod/{name}", "--wait=false")
    return {image: _output(image, states[f"image-{index}"]) for index, image in enumerate(images)}


def _ended(pod: dict[str, Any], containers: int) -> dict[str, dict[str, Any]]:
    """The states of a pod's containers, once each has ended or has no image; empty before."""
    found = {each["name"]: each["state"] for each in pod["status"].get("containerStatuses", ())}
    is_over = [("terminated" in state or _has_no_image(state)) for state in found.values()]
    return found if len(found) == containers and all(is_over) else {}


def _has_no_image(state: dict[str, Any]) -> bool:
    return bool(state.get("waiting", {}).get("reason") == "ErrImageNeverPull")


def _output(image: str, state: dict[str, Any]) -> str | None:
    """What a container has printed; None where the node does not have its image."""
    if _has_no_image(state):
        return None
    ended = state["terminated"]
    assert ended["exitCode"] == 0, f"a script in {image} ended with {ended}"
    return str(ended.get("message", "")).strip()


def full_name(image: str, tag: str = TAG) -> str:
    """'localhost/paceline-server:0.1.0' for 'paceline-server'."""
    return f"{REGISTRY}/{image}:{tag}"


def has_image(name: str, tag: str = TAG) -> bool:
    """Whether the node has it already."""
    return outputs([full_name(name, tag)], "true") != {full_name(name, tag): None}


SOURCE = """
import hashlib, pathlib, paceline.core, paceline.rpc, paceline.worker
found = hashlib.sha256()
for package in (paceline.core, paceline.rpc, paceline.worker):
    for path in sorted(pathlib.Path(package.__path__[0]).rglob("*.py")):
        found.update(path.read_bytes())
print(found.hexdigest())
"""
"""Prints a checksum of the code that servers and workers must have in common."""


def source_here() -> str:
    return subprocess.run([sys.executable, "-c", SOURCE], check=True, capture_output=True, text=True).stdout.strip()


def source_in(name: str) -> str | None:
    """The same of an image's code; None where the node does not have the image."""
    return outputs([full_name(name)], f"python -c {shlex.quote(SOURCE)}")[full_name(name)]


def put_rows(rows: Dataset, folder: Path, namespace: str) -> None:
    """Gives a run its data, as RCV1's authors publish theirs: at /data/rcv1, in a namespace that this makes."""
    (folder / "rcv1").mkdir(parents=True)
    write_lyrl2004(rows, folder / "rcv1")
    image = full_name("paceline-server")
    assert paceline("k8s", "put-data", str(folder), "-n", namespace, "--image", image).returncode == 0


def issue_keys(kubectl: Kubectl, authority: Authority, folder: Path, *more: str) -> None:
    """The run's Secret of keys, or a newer one, in the form that cert-manager gives it: one certificate with the names of two
    servers, of all workers, and `more`."""
    server, worker, shards = (kubectl.part(name) for name in ("server", "worker", "shards"))
    servers = [f"{server}-{index}.{server}" for index in range(2)]
    workers = f"*.{worker}.{kubectl.namespace}.svc"
    authority.write(folder, "localhost", "127.0.0.1", shards, *servers, workers, *more)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": kubectl.part("tls"), "annotations": {"cert-manager.io/certificate-name": "paceline"}},
        "stringData": {file.name: file.read_text() for file in folder.iterdir()},
    }
    kubectl.run("apply", "--filename=-", stdin=json.dumps(secret))


def serial_of(kubectl: Kubectl, keys: Path) -> str:
    """Of the certificate that the chief shows; '' where it does not answer."""
    with suppress(OSError), kubectl.forwarded(kubectl.chief_pod, GRPC) as address:
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host, int(port)), 10)
        with read_keys(keys).client.wrap_socket(plain, server_hostname=host) as encrypted:
            return str((encrypted.getpeercert() or {})["serialNumber"])
    return ""


def until(what: str, ready: Callable[[], Any], seconds: float = 240) -> Any:
    """What `ready` gives, once it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := ready():
            return found
        time.sleep(1)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


def running(kubectl: Kubectl, component: str) -> list[dict[str, Any]]:
    """The pods of a part that run."""
    pods = kubectl.items("pods", f"{kubectl.selector},{COMPONENT}={component}")
    return [pod for pod in pods if pod["status"]["phase"] == "Running"]


def pod_of(kubectl: Kubectl, component: str) -> str:
    """A running one."""
    return str(running(kubectl, component)[0]["metadata"]["name"])


def kill(kubectl: Kubectl, pod: str) -> None:
    """At once, without a word to its process."""
    kubectl.run("delete", f"pod/{pod}", "--grace-period=0", "--force", "--wait=false")


def status(kubectl: Kubectl) -> StatusReply | None:
    """None where the chief does not answer, as while its pod starts."""
    with suppress(ServersGone, NotThere), chief_of(kubectl) as chief:
        return chief.status()
    return None


def version(kubectl: Kubectl) -> int:
    """The model's; 0 where the chief does not answer."""
    found = status(kubectl)
    return found.version if found else 0


def members(kubectl: Kubectl) -> list[str]:
    """The workers that train."""
    found = status(kubectl)
    return [one.worker for one in (found.workers if found else ()) if one.member]


def set_policy(kubectl: Kubectl, policy: str) -> str:
    """Calls `paceline k8s set`; what it prints."""
    named = ("--run", kubectl.run_name, "-n", kubectl.namespace)
    return paceline("k8s", "set", f"policy={policy}", *named).stdout


def left(kubectl: Kubectl) -> set[str]:
    """What is in the namespace, but for what Kubernetes itself puts there."""
    kinds = "statefulsets,deployments,pods,services,configmaps,networkpolicies,persistentvolumeclaims,secrets"
    found = {(item["kind"], item["metadata"]["name"]) for item in kubectl.items(kinds, selector="")}
    return {f"{kind}/{name}" for kind, name in found if name != "kube-root-ca.crt"}


def accuracy_of(text: str) -> float:
    """Of the last line, which is the run's test accuracy."""
    last = text.strip().splitlines()[-1]
    assert last.startswith("test accuracy "), last
    return float(last.split()[2].rstrip(","))


def reaches(kubectl: Kubectl, labels: dict[str, str], targets: dict[str, str]) -> dict[str, bool]:
    """Which of these addresses a new pod with such labels can connect to within 10 s, when policies know the pod."""
    script = (
        "import json, socket, sys, time\n"
        "left, found, end = json.loads(sys.argv[1]), {}, time.monotonic() + 10\n"
        "while left and time.monotonic() < end:\n"
        "    time.sleep(1)\n"
        "    for name, address in list(left.items()):\n"
        "        host, port = address.rsplit(':', 1)\n"
        "        try:\n"
        "            socket.create_connection((host, int(port)), 2).close()\n"
        "            found[name] = True\n"
        "            del left[name]\n"
        "        except OSError:\n"
        "            found[name] = False\n"
        "print(json.dumps(found))"
    )
    container = {
        "name": "asks",
        "image": full_name("paceline-server"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", script, json.dumps(targets)],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    name = f"asks-{len(labels)}-{time.monotonic_ns() % 100000}"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    kubectl.run("apply", "--filename=-", stdin=yaml.safe_dump(pod))
    until(
        "the asking pod's end",
        lambda: (kubectl.find(f"pod/{name}") or {})["status"]["phase"] in ("Succeeded", "Failed"),
    )
    found: dict[str, bool] = json.loads(kubectl.run("logs", name))
    kubectl.run("delete", f"pod/{name}", "--wait=false")
    return found
