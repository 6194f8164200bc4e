"""Runs on a real cluster, as a user starts them: `make e2e KUBECONFIG=...`. The images must be where the cluster finds them
(`make e2e` says how). Every namespace used begins with paceline-e2e and is deleted afterwards."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors import safe_open

from e2e.cluster import (
    ACCURACY,
    AGAIN,
    CRAWLING_SVM,
    DATA,
    DEMO,
    REGISTRY,
    REPOSITORY,
    SVM,
    TAG,
    accuracy_of,
    apply,
    issue_keys,
    kill,
    left,
    paceline,
    pod_of,
    put_rows,
    reaches,
    run_of,
    running,
    server_patch,
    set_policy,
    status,
    until,
    version,
    worker_patch,
)
from paceline.data.dataset import Dataset
from paceline_k8s.cluster_status import look
from paceline_k8s.findings import condition
from paceline_k8s.kubectl import COMPONENT, Kubectl
from tools.authority import Authority

OWN_POLICY = """
from paceline.core.policies.builtin.everyone import Everyone

class Mine(Everyone):
    pass
"""
"""There is no other way for a run whose settings name it to come to an end."""
pytestmark = pytest.mark.timeout(900)


def listening(kubectl: Kubectl) -> dict[str, str]:
    """The addresses of every port that a run's parts listen on; the local models of workers are of other runs."""
    ports = {"server": {"grpc": 50051, "health": 50052, "lane": 50054}, "sharder": {"grpc": 50051, "health": 50052}}
    return {
        f"{component} {name}": f"{running(kubectl, component)[0]['status']['podIP']}:{port}"
        for component in ("server", "sharder", "worker", "evaluator")
        for name, port in {"metrics": 9464, **ports.get(component, {})}.items()
    }


def test_two_runs_of_a_namespace_share_nothing_but_the_data(namespace: str, tmp_path: Path, rows: Dataset) -> None:
    kubectl, other = Kubectl(namespace, "svm"), Kubectl(namespace, "second")
    svm = run_of(tmp_path / "run", CRAWLING_SVM, ["tls"])
    short = CRAWLING_SVM | {"workers": 2, "slow": {}, "data": {"path": "/data/rcv1", "validation": 0.0}}
    second = run_of(tmp_path / "second", short)
    put_rows(rows, tmp_path / "data", namespace)

    deployed = paceline("k8s", "deploy", *svm, "-n", namespace)
    assert (deployed.returncode, "made the run's certificate" in deployed.stdout) == (0, True)
    until("the first steps", lambda: version(kubectl) > 2)
    assert paceline("k8s", "deploy", *second, "--run", "second", "-n", namespace).returncode == 0
    several = paceline("k8s", "status", "-n", namespace)
    assert (several.returncode, "2 runs: second, svm" in several.stderr) == (64, True)

    targets = listening(kubectl)
    assert reaches(kubectl, {}, targets) == dict.fromkeys(targets, False)
    prometheus = reaches(kubectl, {"app.kubernetes.io/name": "prometheus"}, targets)
    assert prometheus == {target: target.endswith(" metrics") for target in targets}

    assert "asp" in set_policy(kubectl, "asp")
    done = paceline("k8s", "run", *svm, "-n", namespace)
    ended = paceline("k8s", "run", *second, "--run", "second", "-n", namespace)
    assert (done.returncode, ended.returncode) == (0, 0)
    assert min(accuracy_of(done.stdout), accuracy_of(ended.stdout)) >= ACCURACY["svm"]
    for run in (kubectl, other):
        assert run.get(run.servers)["spec"]["replicas"] == 0

    this = ("--run", "svm", "-n", namespace)
    assert accuracy_of(paceline("k8s", "status", *this).stdout) == accuracy_of(done.stdout)
    assert paceline("k8s", "fetch-model", "--out", str(tmp_path / "models"), *this).returncode == 0
    before = left(kubectl)
    assert paceline("k8s", "teardown", *this).returncode == 0
    mine = {name.partition("/")[0] for name in left(kubectl) if "second-paceline" not in name}
    assert mine == {"PersistentVolumeClaim", "Secret"}
    assert paceline("k8s", "purge", *this).returncode == 0
    assert left(kubectl) - {DATA} == {name for name in before if "second-paceline" in name}
    assert paceline("k8s", "teardown", "-n", namespace).returncode == 0
    assert paceline("k8s", "purge", "--data", "-n", namespace).returncode == 0
    assert left(kubectl) == set()


@pytest.mark.usefixtures("second_image")
def test_an_edited_run_is_applied_again_and_the_run_goes_on(namespace: str, tmp_path: Path, rows: Dataset) -> None:
    """As docs/run/kubernetes-security.md says, by kubectl alone: an image, a setting, more epochs when the run is over."""
    kubectl = Kubectl(namespace, "svm")
    settings: dict[str, Any] = SVM | {
        "workers": 2,
        "data": {"path": "/data/rcv1", "validation": 0.0},
        "epochs": 60,
        "slow": {"all": "2x"},  # the run still trains when the new pods come
        "nominal_step": 0.01,
        "checkpoint": {"every": "2s"},
        "svm": {"stop": "own"},
    }
    svm = run_of(tmp_path / "run", settings)
    put_rows(rows, tmp_path / "data", namespace)
    kubectl.run("create", "secret", "generic", kubectl.part("token"), "--from-literal=token=applied-by-hand-for-a-test")

    def edit(file: str, old: str, new: str) -> None:
        text = (tmp_path / "run" / file).read_text()
        assert old in text
        (tmp_path / "run" / file).write_text(text.replace(old, new))

    def incarnations() -> set[int]:
        found = status(kubectl)
        return {worker.incarnation for worker in found.workers if worker.member} if found else set()

    apply(kubectl, svm)
    claims = {one["metadata"]["uid"] for one in kubectl.items("persistentvolumeclaims")}
    until("the first steps", lambda: (found := status(kubectl)) and found.version > 20)
    edit("profile.yaml", f"paceline-worker-slim:{TAG}", f"paceline-worker-slim:{AGAIN}")
    edit("run.yaml", "every: 2s", "every: 3s")
    apply(kubectl, svm)
    until("the new workers", lambda: incarnations() == {2}, 240)
    until("the end", lambda: look(kubectl).result, 400)
    ended = look(kubectl).result
    apply(kubectl, svm)  # wakes nothing
    until(
        "no process", lambda: [one["metadata"]["labels"][COMPONENT] for one in kubectl.items("pods")] == ["controller"]
    )

    edit("run.yaml", "epochs: 60", "epochs: 70")
    apply(kubectl, svm, "--server-side", "--field-manager=argocd-controller", "--force-conflicts")
    until("more epochs", lambda: (found := status(kubectl)) and found.epoch > 62, 240)
    until("the end of all epochs", lambda: (found := look(kubectl).result) and found.epochs == 70, 240)
    last = look(kubectl).result

    assert ended is not None
    assert last is not None
    assert ended.epochs == 60
    assert last.version > ended.version
    assert claims <= {one["metadata"]["uid"] for one in kubectl.items("persistentvolumeclaims")}
    assert accuracy_of(paceline("k8s", "status", "-n", namespace).stdout) >= ACCURACY["svm"]


def test_async_svm_with_tls_and_a_policy_of_ones_own_is_finished_and_stopped_by_its_controller(
    namespace: str, tmp_path: Path, rows: Dataset
) -> None:
    kubectl = Kubectl(namespace, "svm")
    settings: dict[str, Any] = SVM | {
        "data": {"path": "/data/rcv1", "validation": 0.0},
        "epochs": 10,
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.0, "weight_decay": 0.0},
        "svm": {"stop": "own"},
        "policy": {"name": "mine.py", "merge": "overwrite"},
    }
    (tmp_path / "run").mkdir()
    (tmp_path / "run/mine.py").write_text(OWN_POLICY)
    svm = run_of(tmp_path / "run", settings, ["tls"])
    put_rows(rows, tmp_path / "data", namespace)
    kubectl.run("create", "secret", "generic", kubectl.part("token"), "--from-literal=token=the-secret-of-this-test")
    issue_keys(kubectl, Authority(), tmp_path / "keys")

    apply(kubectl, svm)
    until("the sharder", lambda: running(kubectl, "sharder"))
    kill(kubectl, pod_of(kubectl, "sharder"))

    until("the end of the run", lambda: look(kubectl).result, 420)
    until("the end of all processes", lambda: len(kubectl.items("pods")) == 1, 60)  # the controller
    shown = paceline("k8s", "status", "-n", namespace)
    assert accuracy_of(shown.stdout) >= ACCURACY["svm"] - 0.05


@pytest.mark.usefixtures("torch_image")
def test_digits_train_with_torch(namespace: str, tmp_path: Path) -> None:
    kubectl = Kubectl(namespace, "demo")
    demo = run_of(tmp_path / "run", DEMO | {"epochs": 60, "checkpoint": {"every": "2s"}}, worker="paceline-worker")

    assert paceline("k8s", "deploy", *demo, "-n", namespace).returncode == 0
    until("the first steps", lambda: (found := status(kubectl)) and found.version > 50)
    kill(kubectl, f"{kubectl.part('server')}-1")
    kill(kubectl, pod_of(kubectl, "worker"))
    done = paceline("k8s", "run", *demo, "-n", namespace)

    assert done.returncode == 0
    assert accuracy_of(done.stdout) >= ACCURACY["digits"]


@pytest.mark.usefixtures("torch_image")
@pytest.mark.skipif((REGISTRY, TAG) != ("localhost", "0.1.0"), reason="the overlay is taken with its own images")
def test_a_script_of_ones_own_trains_through_the_death_of_a_server_and_a_worker(namespace: str, tmp_path: Path) -> None:
    kubectl = Kubectl(namespace, "script")
    script = tmp_path / "mine.py"
    script.write_text((REPOSITORY / "k8s/overlays/script/train.py").read_text())
    told = ("script", "-n", namespace, "--script", str(script), "--", "--steps", "6000")

    assert paceline("k8s", "deploy", *told).returncode == 0
    until("the first steps", lambda: (found := status(kubectl)) and found.version > 200)
    kill(kubectl, f"{kubectl.part('server')}-1")
    kill(kubectl, pod_of(kubectl, "worker"))
    done = paceline("k8s", "run", *told)

    assert done.returncode == 0
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("validation accuracy ")
    assert float(last.split()[2]) > 0.9
    assert paceline("k8s", "fetch-model", "--out", str(tmp_path / "models"), "-n", namespace).returncode == 0
    assert (tmp_path / "models" / "last.safetensors").stat().st_size > 0
    script.write_text(script.read_text() + "# changed\n")
    assert "is finished, with another script" in paceline("k8s", "deploy", *told).stderr


def rank(kubectl: Kubectl, index: int) -> str:
    """The id of the running pod of worker-`index`; empty where there is none."""
    pods = [pod["metadata"] for pod in running(kubectl, "worker")]
    return next((str(pod["uid"]) for pod in pods if pod["name"] == f"{kubectl.part('worker')}-{index}"), "")


@pytest.mark.usefixtures("torch_image")
def test_three_peers_train_on_through_the_death_of_one_and_their_mean_is_scored(namespace: str, tmp_path: Path) -> None:
    kubectl = Kubectl(namespace, "demo")
    settings: dict[str, Any] = {"workers": 3, "servers": 0, "policy": "adpsgd", "epochs": 120}
    slow: dict[str, Any] = {"slow": {"all": "3x"}, "lease": 6, "heartbeat": 1}
    peers = run_of(tmp_path / "run", DEMO | settings | slow, worker="paceline-worker")

    assert paceline("k8s", "deploy", *peers, "-n", namespace).returncode == 0
    until("the first steps", lambda: sum(one.clock > 20 for one in getattr(status(kubectl), "workers", ())) == 3)
    gone, name = rank(kubectl, 1), f"{kubectl.part('worker')}-1"
    kill(kubectl, name)
    until("its successor", lambda: rank(kubectl, 1) not in (gone, ""))
    until("the successor's training", lambda: '"founder": false' in kubectl.logs(name, lines=200))
    done = paceline("k8s", "run", *peers, "-n", namespace)

    assert done.returncode == 0
    assert accuracy_of(done.stdout) >= ACCURACY["digits"]
    assert paceline("k8s", "fetch-model", "--out", str(tmp_path / "models"), "-n", namespace).returncode == 0
    with safe_open(tmp_path / "models" / "last.safetensors", "numpy") as file:
        facts = file.metadata()
    assert (facts["model"], facts["local_models"]) == ("mean", "3")


@pytest.fixture
def gpus() -> Iterator[Callable[[int], None]]:
    """Has the cluster's node claim this many GPUs that it has not, and none again afterwards."""
    kubectl = Kubectl("default")
    (node,) = kubectl.items("nodes", selector="")

    def pretend(count: int) -> None:
        counts = {"nvidia.com/gpu": str(count)}
        patch = json.dumps({"status": {"capacity": counts, "allocatable": counts}})
        name = f"node/{node['metadata']['name']}"
        kubectl.run("patch", name, "--subresource=status", "--type=merge", f"--patch={patch}")

    yield pretend
    pretend(0)


def test_workers_with_gpus_are_scheduled_as_far_as_there_are_gpus(
    namespace: str, tmp_path: Path, gpus: Callable[[int], None]
) -> None:
    kubectl = Kubectl(namespace, "demo")
    # what has no image is scheduled, and does not end for want of a real GPU
    demo = run_of(tmp_path / "run", DEMO, ["gpu"], worker="paceline-absent")
    gpus(1)
    kubectl.run("create", "namespace", namespace)
    kubectl.run("create", "secret", "generic", kubectl.part("token"), "--from-literal=token=the-secret-of-this-test")

    apply(kubectl, demo)

    def scheduled() -> int:
        pods = kubectl.items("pods", f"{kubectl.selector},{COMPONENT}=worker")
        return sum(condition(pod, "PodScheduled") is not None for pod in pods)

    until("one worker's place", lambda: scheduled() == 1)
    until(
        "the word of the other's", lambda: "No node has a GPU left" in paceline("k8s", "doctor", "-n", namespace).stdout
    )
    gpus(2)
    until("both workers' places", lambda: scheduled() == 2)


MISSING = "localhost/paceline-worker:no-such-tag"


def claim_patch(**spec: Any) -> dict[str, str]:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "paceline-shards"}, "spec": spec}
    return {"patch": yaml.safe_dump(claim)}


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (
            worker_patch({"image": MISSING}, image=MISSING),
            f"the image {MISSING}",
        ),
        (server_patch(resources={"requests": {"cpu": "500"}, "limits": {"cpu": "500"}}), "No node has room"),
        (claim_patch(storageClassName="no-such-class"), "no-such-class"),
    ],
    ids=["image", "room", "claim"],
)
def test_deploy_names_what_keeps_it_from_coming_up(
    namespace: str, tmp_path: Path, patch: dict[str, str], told: str
) -> None:
    demo = run_of(tmp_path / "run", DEMO, patches=[patch])

    done = paceline("k8s", "deploy", *demo, "-n", namespace)

    assert done.returncode == 78
    assert told in done.stderr
    again = paceline("k8s", "doctor", "-n", namespace)
    assert again.returncode == 78
    assert told in again.stdout


def test_a_missing_token_is_named(namespace: str, tmp_path: Path) -> None:
    kubectl = Kubectl(namespace, "demo")
    kubectl.run("create", "namespace", namespace)
    kubectl.run("apply", f"--kustomize={REPOSITORY / 'k8s/overlays/demo'}")

    def is_named() -> bool:
        found = paceline("k8s", "doctor", "-n", namespace)
        return found.returncode == 78 and "paceline-token" in found.stdout and "make deploy" in found.stdout

    until("the word of the token", is_named)


def test_a_typo_in_the_settings_is_told_before_anything_is_deployed(namespace: str, tmp_path: Path) -> None:
    demo = run_of(tmp_path / "run", DEMO | {"polivy": {"name": "bsp"}})

    done = paceline("k8s", "deploy", *demo, "-n", namespace)

    assert done.returncode == 78
    assert "policy" in done.stderr
    assert Kubectl(namespace).find(f"namespace/{namespace}") is None
