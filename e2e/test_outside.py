"""Workers on a machine outside the cluster: they come with a key, leave, are killed, and the run goes on to its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.cluster import (
    ACCURACY,
    SLOW_SVM,
    accuracy_of,
    issue_keys,
    kill,
    members,
    paceline,
    pod_of,
    put_rows,
    run_of,
    running,
    serial_of,
    status,
    until,
)
from paceline.data.dataset import Dataset
from paceline.launch.other_machines.join_cluster import RANKS
from paceline_k8s.cluster_status import chief_of, look
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.observation import PODS
from tools.authority import Authority

pytestmark = pytest.mark.timeout(600)


class Machine:
    """One without kubectl's config, on which `paceline join` is typed in an empty folder."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        folder.mkdir()
        self._folder = folder
        self._held = held

    def types(self, key: Path, workers: int) -> "subprocess.Popen[bytes]":
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        line = [sys.executable, "-P", "-m", "paceline.cli", "join", str(key), "-w", str(workers), "--name", "box"]
        terminal = self._held.enter_context((self._folder / "terminal.txt").open("ab"))
        typed = subprocess.Popen(line, cwd=self._folder, stdout=terminal, stderr=terminal, env=environment)
        self._held.callback(typed.wait)
        self._held.callback(typed.kill)
        return typed

    def shows(self, what: str) -> bool:
        return what in (self._folder / "terminal.txt").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with ExitStack() as held:
        yield Machine(tmp_path / "box", held)
    print((tmp_path / "box/terminal.txt").read_text())


def outside(kubectl: Kubectl, steps: int = 0) -> list[str]:
    """Members from outside that have made this many steps."""
    found = status(kubectl)
    members = [one for one in (found.workers if found else ()) if one.member and one.clock >= steps]
    return [one.worker for one in members if int(one.worker.rpartition("-")[2]) in RANKS]


def pods_of_workers(count: int) -> dict[str, str]:
    """A patch by which the run has fewer workers in the cluster than seats."""
    about = {"name": "paceline-worker", "annotations": {PODS: str(count)}}
    return {"patch": json.dumps({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about})}


def ids_of(kubectl: Kubectl) -> list[str]:
    """Of the pods of workers that run: a successor has the same name."""
    return [pod["metadata"]["uid"] for pod in running(kubectl, "worker")]


def stops(kubectl: Kubectl, why: str) -> bool:
    """False where the chief does not answer in time."""
    with chief_of(kubectl) as chief:
        return chief.stop(why)


def test_a_machine_outside_takes_the_seat_that_is_free(
    namespace: str, tmp_path: Path, rows: Dataset, machine: Machine
) -> None:
    kubectl = Kubectl(namespace, "svm")
    settings = SLOW_SVM | {"workers": 3, "epochs": 600, "start_when": 2, "lease": 4.0, "heartbeat": 1.0}
    svm = run_of(tmp_path / "run", settings, ["outside", "tls"], [pods_of_workers(2)])
    (node,) = kubectl.items("nodes", "")
    address = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    put_rows(rows, tmp_path / "data", namespace)
    authority = Authority()
    issue_keys(kubectl, authority, tmp_path / "keys", address)
    assert paceline("k8s", "deploy", *svm, "-n", namespace).returncode == 0

    key = tmp_path / "demo.key"
    assert paceline("k8s", "key", "--out", str(key), "-n", namespace).returncode == 0
    typed = machine.types(key, 1)
    (first,) = until("a worker from outside", lambda: outside(kubectl, 5))
    assert "box" in paceline("k8s", "status", "-n", namespace).stdout
    typed.send_signal(signal.SIGINT)
    assert typed.wait(90) == 130
    until("its leave", lambda: first not in outside(kubectl))

    issued = serial_of(kubectl, tmp_path / "keys")
    issue_keys(kubectl, authority, tmp_path / "keys", address)
    until("the newer certificate", lambda: serial_of(kubectl, tmp_path / "keys") not in ("", issued))
    before = set(ids_of(kubectl))
    kill(kubectl, pod_of(kubectl, "worker"))
    until("its successor", lambda: len(found := ids_of(kubectl)) == 2 and before != set(found))
    until("its training with the newer certificate", lambda: len(members(kubectl)) == 2)

    typed = machine.types(key, 2)
    until("another one", lambda: outside(kubectl, 5))
    until("one without a seat", lambda: machine.shows("waiting for a seat: All 3 seats are taken"))
    typed.kill()
    until("the end of its lease", lambda: not outside(kubectl))

    until("its stop", lambda: stops(kubectl, "this test has seen enough"))
    ended = until("the end", lambda: look(kubectl).result)
    assert (ended.reason, accuracy_of(ended.sentence) >= ACCURACY["svm"]) == ("this test has seen enough", True)
