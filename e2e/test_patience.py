"""A busy node, and a namespace that goes with all that is in it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster import SLOW_SVM, overlay, paceline, pool, put_rows, status, until
from paceline.core.errors import ConfigError
from paceline.data.dataset import Dataset
from paceline_k8s.kubectl import Kubectl

AT_ONCE, CALLS = 5, 25
GONE = "gone"


def end_of(kubectl: Kubectl) -> str:
    """GONE, or what doctor says of a namespace that waits for pods that have ended; nothing where it does not yet."""
    if kubectl.find(f"namespace/{kubectl.namespace}") is None:
        return GONE
    done = paceline("k8s", "doctor", "-n", kubectl.namespace)
    said = [line for line in done.stdout.splitlines() if line.startswith("namespace/")]
    return said[0] if said and done.returncode == ConfigError.exit_code else ""


def test_every_call_of_status_is_answered_under_load_and_doctor_says_why_a_namespace_hangs(
    namespace: str, tmp_path: Path, rows: Dataset
) -> None:
    kubectl = Kubectl(namespace, "svm-hogwild")
    place = overlay(tmp_path / "run", "svm-hogwild", SLOW_SVM | {"epochs": 600}, "data-server", patches=[pool(2)])
    put_rows(rows, tmp_path / "data", namespace)
    assert paceline("k8s", "deploy", place, "-n", namespace).returncode == 0
    until("the first steps", lambda: (found := status(kubectl)) and found.version > 20)

    with ThreadPoolExecutor(AT_ONCE) as callers:  # a call is a second of CPU: that many at once are the load
        asked = [callers.submit(paceline, "k8s", "status", "-n", namespace) for _ in range(CALLS)]
    shown = [call.result() for call in asked]
    assert [call.stderr for call in shown if call.returncode] == []
    assert all("worker-1" in call.stdout for call in shown)

    kubectl.run("delete", f"namespace/{namespace}", "--wait=false")
    told = until("the namespace to go, or to hang", lambda: end_of(kubectl))
    if told != GONE:  # so does Kubernetes 1.33
        assert told.endswith(f"Let them go: kubectl -n {namespace} delete jobs --all")
        kubectl.run("delete", "jobs", "--all")
        until("the namespace to go", lambda: end_of(kubectl) == GONE)
