"""A busy node, and a namespace that goes with all that is in it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster import SLOW_SVM, paceline, put_rows, run_of, status, until
from paceline.data.dataset import Dataset
from paceline_k8s.kubectl import Kubectl

AT_ONCE, CALLS = 5, 25


def test_every_call_of_status_is_answered_under_load_and_a_namespace_goes_with_its_run(
    namespace: str, tmp_path: Path, rows: Dataset
) -> None:
    kubectl = Kubectl(namespace, "svm")
    svm = run_of(tmp_path / "run", SLOW_SVM | {"epochs": 600})
    put_rows(rows, tmp_path / "data", namespace)
    assert paceline("k8s", "deploy", *svm, "-n", namespace).returncode == 0
    until("the first steps", lambda: (found := status(kubectl)) and found.version > 20)

    with ThreadPoolExecutor(AT_ONCE) as callers:  # a call is a second of CPU: that many at once are the load
        asked = [callers.submit(paceline, "k8s", "status", "-n", namespace) for _ in range(CALLS)]
    shown = [call.result() for call in asked]
    assert [call.stderr for call in shown if call.returncode] == []
    assert all("worker-1" in call.stdout for call in shown)

    kubectl.run("delete", f"namespace/{namespace}", "--wait=false")
    until("the namespace to go", lambda: kubectl.find(f"namespace/{namespace}") is None)
