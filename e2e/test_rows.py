"""What once went wrong on Kubernetes, as it was found: edits, reverts and refusals in the midst of a run, a full node, another
secret, few rights, a spent quota."""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import (
    AGAIN,
    DEMO,
    REPOSITORY,
    SLOW_SVM,
    TAG,
    accuracy_of,
    apply,
    full_name,
    kill,
    members,
    paceline,
    put_rows,
    run_of,
    running,
    until,
    version,
)
from paceline.data.dataset import Dataset
from paceline_k8s.cluster_status import look
from paceline_k8s.kubectl import COMPONENT, Kubectl

RUN = "svm"
LASTING: dict[str, Any] = SLOW_SVM | {"epochs": 2000, "lease": 4.0, "heartbeat": 1.0}
"""Settings of a run that outlasts its test."""
MOST = {"server": 2, "worker": 2, "evaluator": 1, "sharder": 1, "controller": 1}
pytestmark = pytest.mark.timeout(900)


def trains_on(kubectl: Kubectl, workers: int = 2) -> Callable[[], bool]:
    """Whether the model has moved by now, and has that many workers."""
    before = version(kubectl)
    return lambda: version(kubectl) > before + 2 and len(members(kubectl)) == workers


def images_of(kubectl: Kubectl) -> set[str]:
    """Those of all workers that run."""
    return {pod["spec"]["containers"][0]["image"] for pod in running(kubectl, "worker")}


def counts_for(kubectl: Kubectl, seconds: float) -> Counter[str]:
    """The most processes of each part that ran at once meanwhile."""
    most, end = Counter[str](), time.monotonic() + seconds
    while time.monotonic() < end:
        pods = kubectl.items("pods", kubectl.selector)
        most |= Counter(pod["metadata"]["labels"][COMPONENT] for pod in pods if pod["status"]["phase"] == "Running")
        time.sleep(1)
    return most


def with_image(run: list[str], tag: str) -> list[str]:
    """The run with this image of workers."""
    profile = yaml.safe_load(Path(run[2]).read_text())
    profile["images"]["worker"] = full_name("paceline-worker-slim", tag)
    Path(run[2]).write_text(yaml.safe_dump(profile))
    return run


@pytest.fixture
def kubectl(namespace: str, tmp_path: Path, rows: Dataset) -> Kubectl:
    """A namespace with the rows and with a token."""
    found = Kubectl(namespace, RUN)
    put_rows(rows, tmp_path / "data", namespace)
    found.run("create", "secret", "generic", found.part("token"), "--from-literal=token=applied-by-hand-for-a-test")
    return found


@pytest.mark.usefixtures("second_image")
def test_many_edits_and_a_revert_leave_one_process_of_each_rank_which_train_on(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    svm, most = run_of(tmp_path / "run", LASTING), Counter[str]()
    apply(kubectl, svm)
    until("the first steps", lambda: version(kubectl) > 2)

    for tag in (AGAIN, TAG, AGAIN, TAG):
        apply(kubectl, with_image(svm, tag))
        most |= counts_for(kubectl, 20)
    for tag in (AGAIN, TAG):  # an edit and its revert at once
        apply(kubectl, with_image(svm, tag))
    most |= counts_for(kubectl, 20)

    until("steps of all workers", trains_on(kubectl))
    assert images_of(kubectl) == {full_name("paceline-worker-slim", TAG)}
    assert most <= Counter(MOST)


def test_a_refused_edit_is_named_and_the_run_goes_on_once_it_is_set_back(kubectl: Kubectl, tmp_path: Path) -> None:
    svm = run_of(tmp_path / "run", LASTING)
    apply(kubectl, svm)
    until("the first steps", lambda: version(kubectl) > 2)

    apply(kubectl, run_of(tmp_path / "run", LASTING | {"seed": 7}))
    said = until(
        "the refusal",
        lambda: (found := paceline("k8s", "doctor", "-n", kubectl.namespace)).returncode == 78 and found.stdout,
    )
    apply(kubectl, run_of(tmp_path / "run", LASTING))

    assert "seed" in said
    until("steps of all workers", trains_on(kubectl))
    healthy = paceline("k8s", "doctor", "-n", kubectl.namespace)
    assert (healthy.returncode, "no trouble" in healthy.stdout.lower()) == (0, True)


def spare_millicores(kubectl: Kubectl) -> int:
    """The CPU of the only node that no pod has asked for."""
    (node,) = kubectl.items("nodes", selector="")
    pods = json.loads(kubectl.run("get", "pods", "--all-namespaces", "--output=json"))["items"]
    asked = [
        container.get("resources", {}).get("requests", {}).get("cpu", "0")
        for pod in pods
        if pod["status"]["phase"] in ("Running", "Pending")
        for container in pod["spec"]["containers"]
    ]
    return millicores(node["status"]["allocatable"]["cpu"]) - sum(map(millicores, asked))


def millicores(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


@pytest.mark.usefixtures("second_image")
def test_an_edit_on_a_node_without_spare_room_goes_through(kubectl: Kubectl, tmp_path: Path) -> None:
    others = 2 * 100 + 100 + 100 + 10  # servers, evaluator, sharder, controller
    each = (spare_millicores(kubectl) - others) // 2
    full = {"worker": {"requests": {"cpu": f"{each}m"}, "limits": {"cpu": 2}}}
    svm = run_of(tmp_path / "run", LASTING, resources=full)
    apply(kubectl, svm)
    until("the first steps", lambda: version(kubectl) > 2)
    assert spare_millicores(kubectl) < each

    apply(kubectl, with_image(svm, AGAIN))

    until("the new image", lambda: images_of(kubectl) == {full_name("paceline-worker-slim", AGAIN)})
    until("steps of all workers", trains_on(kubectl))


def test_a_secret_that_is_replaced_in_mid_run_ends_no_process_and_a_new_pod_takes_part(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    apply(kubectl, run_of(tmp_path / "run", LASTING))
    until("the first steps", lambda: version(kubectl) > 2)

    secret = ("create", "secret", "generic", kubectl.part("token"), "--from-literal=token=another-word-of-this-test")
    kubectl.run("apply", "--filename=-", stdin=kubectl.run(*secret, "--dry-run=client", "--output=yaml"))
    gone = kubectl.get(f"pod/{kubectl.part('worker')}-1")["metadata"]["uid"]
    kill(kubectl, f"{kubectl.part('worker')}-1")  # the servers do not know the new word yet

    until(
        "its successor",
        lambda: gone not in {pod["metadata"]["uid"] for pod in running(kubectl, "worker")} and trains_on(kubectl)(),
    )
    until("steps of all workers", trains_on(kubectl))
    ends = [
        status["restartCount"] for pod in kubectl.items("pods") for status in pod["status"].get("containerStatuses", ())
    ]
    assert ends == [0] * len(ends)
    assert look(kubectl).is_up


def test_an_account_with_the_rights_of_the_page_alone_runs_looks_and_tears_down(
    kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who may has applied the manifests once: the controller needs rights that this account can't give."""
    settings = SLOW_SVM | {"epochs": 20}
    svm = run_of(tmp_path / "run", settings)
    apply(kubectl, svm)
    kubectl.run("apply", f"--filename={REPOSITORY / 'k8s/role.yaml'}")
    kubectl.run("create", "serviceaccount", "ada")
    whose = f"--serviceaccount={kubectl.namespace}:ada"
    kubectl.run("create", "rolebinding", "ada", "--role=paceline-user", whose)
    token = kubectl.run("create", "token", "ada").strip()
    config = yaml.safe_load(kubectl.run("config", "view", "--raw", "--flatten", "--minify"))
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    done = paceline("k8s", "run", *svm, "-n", kubectl.namespace)

    assert done.returncode == 0
    shown = paceline("k8s", "status", "-n", kubectl.namespace)
    assert accuracy_of(shown.stdout) == accuracy_of(done.stdout)
    gone = paceline("k8s", "teardown", "-n", kubectl.namespace)
    assert gone.returncode == 0
    assert not running(kubectl, "server")


def test_a_spent_quota_is_one_trouble(namespace: str, tmp_path: Path) -> None:
    kubectl = Kubectl(namespace, "demo")
    kubectl.run("create", "namespace", namespace)
    kubectl.run("create", "quota", "team", "--hard=pods=2")
    demo = run_of(tmp_path / "run", DEMO)

    done = paceline("k8s", "deploy", *demo, "-n", namespace)

    assert done.returncode == 78
    said = paceline("k8s", "doctor", "-n", namespace)
    assert (said.returncode, said.stdout.count("quota team is spent")) == (78, 1)


def test_a_script_whose_image_lacks_a_library_ends_at_its_first_start(namespace: str, tmp_path: Path) -> None:
    kubectl = Kubectl(namespace, "script")
    (tmp_path / "train.py").write_text("import torch\nimport paceline\n")  # the image is the one without torch
    settings: dict[str, Any] = {"run": "script", "task": "train.py", "data": {"source": "script"}, "workers": 2}
    script = run_of(tmp_path, settings | {"servers": 2})

    done = paceline("k8s", "run", *script, "-n", namespace)

    assert done.returncode not in (0, None)
    assert "needs torch, which is not installed here" in done.stderr
    starts = [
        each["restartCount"]
        for pod in kubectl.items("pods", f"{kubectl.selector},{COMPONENT}=worker")
        for each in pod["status"].get("containerStatuses", ())
    ]
    assert max(starts, default=0) <= 1
