"""One run from its data to its purge, by the commands of a user: the short end-to-end test (`.ci/e2e`)."""

from pathlib import Path

from sklearn.datasets import dump_svmlight_file

from e2e.cluster import (
    ACCURACY,
    CRAWLING_SVM,
    DATA,
    accuracy_of,
    going_on,
    kill,
    left,
    members,
    paceline,
    pod_of,
    put_rows,
    run_of,
    set_policy,
    status,
    until,
    version,
)
from paceline.data.dataset import Dataset
from paceline_k8s.cluster_status import look
from paceline_k8s.kubectl import Kubectl


def lose_one_of_each(kubectl: Kubectl) -> None:
    """Kills a pod of each part, and waits until the run trains on with new ones."""
    gone = [pod_of(kubectl, component) for component in ("worker", "evaluator", "sharder")]
    gone.append(f"{kubectl.part('server')}-1")
    ids = {kubectl.get(f"pod/{pod}")["metadata"]["uid"] for pod in gone}
    for pod in gone:
        kill(kubectl, pod)
    until("their end", lambda: ids.isdisjoint(pod["metadata"]["uid"] for pod in kubectl.items("pods")))
    until("the new pods", lambda: look(kubectl).is_up)
    before = version(kubectl)
    until("steps of all workers", lambda: version(kubectl) > before + 2 and len(members(kubectl)) == 3)


def test_a_run_trains_through_deaths_more_workers_and_another_policy(
    namespace: str, tmp_path: Path, rows: Dataset
) -> None:
    kubectl = Kubectl(namespace, "svm")
    svm = run_of(tmp_path / "run", CRAWLING_SVM, ["tls"])
    put_rows(rows, tmp_path / "data", namespace)

    terminal = tmp_path / "terminal.txt"
    with going_on(terminal, "k8s", "run", *svm, "-n", namespace) as run:
        until("the first steps", lambda: version(kubectl) > 2 or run.poll() is not None)
        shown = paceline("k8s", "status", "-n", namespace)
        assert ("worker-2" in shown.stdout, "plain text" in shown.stdout) == (True, False)
        assert paceline("k8s", "scale", "-w", "4", "-n", namespace).returncode == 0
        until("a worker without a seat", lambda: (found := status(kubectl)) and "worker-3" in found.queued)
        lose_one_of_each(kubectl)
        assert "asp" in set_policy(kubectl, "asp")
        assert run.wait(240) == 0

    said = terminal.read_text()
    assert "made the run's certificate" in said
    accuracy = accuracy_of(said)
    assert accuracy >= ACCURACY["svm"]
    assert kubectl.get(kubectl.servers)["spec"]["replicas"] == 0
    assert accuracy_of(paceline("k8s", "status", "-n", namespace).stdout) == accuracy
    models = tmp_path / "models"
    assert paceline("k8s", "fetch-model", "--out", str(models), "-n", namespace).returncode == 0
    assert rows.test is not None
    dump_svmlight_file(rows.test.features, rows.test.labels, str(tmp_path / "test.libsvm"), zero_based=False)
    scored = paceline("predict", str(models / "last.safetensors"), str(tmp_path / "test.libsvm"))
    assert f"{accuracy:.4f}" in scored.stderr
    assert paceline("k8s", "teardown", "-n", namespace).returncode == 0
    assert {name.partition("/")[0] for name in left(kubectl)} == {"PersistentVolumeClaim", "Secret"}
    assert paceline("k8s", "purge", "--run", "svm", "-n", namespace).returncode == 0
    assert left(kubectl) == {DATA}
    assert paceline("k8s", "purge", "--data", "-n", namespace).returncode == 0
    assert left(kubectl) == set()
