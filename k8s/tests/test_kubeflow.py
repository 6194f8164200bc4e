"""The runtime for Kubeflow Trainer: the published types know all of it, and its containers' commands train a script."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubeflow_trainer_api.models as trainer
import pytest
import yaml

from tests.support.ports import own_port
from tests.support.processes import PATIENCE, QUIET, TOKEN, eventually
from tests.support.tree import ROOT
from tools.manifests.schemas import NEWEST, OLDEST, complaint

FOLDER = ROOT / "k8s/kubeflow"
RUNTIME, JOB = (yaml.safe_load((FOLDER / name).read_text()) for name in ("runtime.yaml", "trainjob.yaml"))
RUN, ANCESTOR = JOB["metadata"]["name"], "trainer.kubeflow.org/trainjob-ancestor-step"
TARGETS = RUNTIME["spec"]["mlPolicy"]["torch"]["envInjection"]["targets"]
AS_NODE = {"jobName": "node", "containerNames": ["node"]}
"""The containers that Trainer gives the number of nodes: the trainer's, and those that the runtime names."""
IMAGE = {"PYTHONHASHSEED": "0"}
"""What docker/Dockerfile sets."""


def filled(text: str, variables: dict[str, str]) -> str:
    """As Kubernetes fills in $(NAME): what it does not know stays as it is."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)


def lost(mine: Any, taken: Any, path: str = "") -> list[str]:
    """What is not in the types' own form of it: keys that they do not know, and values of another type."""
    if isinstance(mine, dict) and isinstance(taken, dict):
        return [each for key in mine for each in lost(mine[key], taken.get(key), f"{path}.{key}")]
    if isinstance(mine, list) and isinstance(taken, list) and len(mine) == len(taken):
        return [each for n, one in enumerate(mine) for each in lost(one, taken[n], f"{path}[{n}]")]
    return [] if mine == taken else [path]


def replicated(name: str) -> dict[str, Any]:
    """The Job of that name."""
    jobs = RUNTIME["spec"]["template"]["spec"]["replicatedJobs"]
    return next(each["template"] for each in jobs if each["name"] == name)


@pytest.mark.parametrize(
    ("document", "kind"),
    [(RUNTIME, trainer.TrainerV1alpha1ClusterTrainingRuntime), (JOB, trainer.TrainerV1alpha1TrainJob)],
    ids=["runtime", "trainjob"],
)
def test_the_published_types_know_every_key(document: dict[str, Any], kind: Any) -> None:
    assert lost(document, kind.from_dict(document).to_dict()) == []
    misspelt = document | {"spec": document["spec"] | {"mlPolice": {}}}
    assert lost(misspelt, kind.from_dict(misspelt).to_dict()) == [".spec.mlPolice"]


def test_what_a_train_job_sets_goes_to_the_workers_and_names_lead_where_they_should() -> None:
    node, server = replicated("node"), replicated("server")

    assert node["metadata"]["labels"] == {ANCESTOR: "trainer"}
    assert "parallelism" not in node["spec"]  # numNodes is
    assert ANCESTOR not in server.get("metadata", {}).get("labels", {})
    assert [each["name"] for each in node["spec"]["template"]["spec"]["containers"]] == ["node"]
    assert JOB["spec"]["runtimeRef"]["name"] == RUNTIME["metadata"]["name"]
    settings = yaml.safe_load(server["spec"]["template"]["metadata"]["annotations"]["paceline.dev/run.yaml"])
    assert settings["servers"] == server["spec"]["parallelism"] == server["spec"]["completions"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", ["server", "node"])
def test_kubernetes_knows_every_key_of_the_pods(name: str, version: str) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": replicated(name)["spec"]}

    assert complaint(json.dumps(job), version) is None


def variables_of(job: str, container: dict[str, Any], index: int) -> dict[str, str]:
    """What Kubernetes and Trainer set in this container of the pod with that index."""
    facts = {
        "metadata.labels['jobset.sigs.k8s.io/jobset-name']": RUN,
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        "status.podIP": "127.0.0.1",
    }
    variables: dict[str, str] = {}
    for each in container["env"]:
        source = each.get("valueFrom", {})
        if "resourceFieldRef" in source:
            variables[each["name"]] = "1"
        elif source:
            variables[each["name"]] = facts[source["fieldRef"]["fieldPath"]]
        else:
            variables[each["name"]] = filled(each["value"], variables)
    if {"jobName": job, "containerNames": [container["name"]]} in (AS_NODE, *TARGETS):
        variables["PET_NNODES"] = str(JOB["spec"]["trainer"]["numNodes"])  # behind the others, as Trainer does
    return variables


class Pods:
    """Starts containers of the runtime as processes, with folders, addresses and ports of this machine."""

    def __init__(self, folder: Path, script: Path) -> None:
        self.folder = folder
        self._script = script
        self._shared = {port: str(own_port()) for port in ("50051", "50054")}
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "secret").mkdir()
        (folder / "secret/token").write_text(TOKEN)

    def run(self, job: str, index: int, kind: str = "containers") -> subprocess.Popen[bytes]:
        """The only container of that kind in that pod."""
        template = replicated(job)["spec"]["template"]
        (container,) = template["spec"][kind]
        pod = self.folder / f"{job}-{index}"
        for name in ("etc", "checkpoints", "token"):
            (pod / name).mkdir(parents=True, exist_ok=True)
        (pod / "etc/run.yaml").write_text(template["metadata"]["annotations"]["paceline.dev/run.yaml"])

        variables = variables_of(job, container, index)
        rest = JOB["spec"]["trainer"]["args"] if container["name"] == "node" else container["args"]
        words = [self._here(filled(word, variables), pod) for word in [*container["command"], *rest]]
        own = {key: value for key, value in os.environ.items() if not key.startswith("PACELINE_")}
        own |= QUIET | IMAGE | {"PATH": f"{Path(sys.executable).parent}:{own['PATH']}"}
        own |= {key: self._here(value, pod) for key, value in variables.items()}
        with (pod / f"{container['name']}.log").open("wb") as log:
            process = subprocess.Popen(words, env=own, cwd=pod, stdout=log, stderr=subprocess.STDOUT)
        self._processes.append(process)
        return process

    def log(self, job: str, index: int) -> str:
        return (self.folder / f"{job}-{index}" / f"{job}.log").read_text()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _here(self, text: str, pod: Path) -> str:
        places = {
            f"{RUN}-server-0-0.{RUN}:": "127.0.0.1:",
            "/etc/paceline": str(pod / "etc"),
            "/checkpoints": str(pod / "checkpoints"),
            "/run/secrets/paceline": str(pod / "token"),
            "/run/secret/": f"{self.folder / 'secret'}/",
            "/models": str(self.folder / "models"),
            "/workspace/train.py": str(self._script),
            "--bind=::": "--bind=127.0.0.1",
            '"::"': '"127.0.0.1"',
        }
        places |= self._shared | dict.fromkeys(("50052", "50053", "9464"), "0")
        for there, here in places.items():
            text = text.replace(there, here)
        return text


@contextmanager
def pods(folder: Path, script: Path) -> Iterator[Pods]:
    started = Pods(folder, script)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The README's, for fewer epochs."""
    pytest.importorskip("torch")
    (text,) = re.findall(r"```python\n(# train\.py\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "train.py"
    file.write_text(text.replace("paceline.epochs(10)", "paceline.epochs(2)"))
    return file


@pytest.mark.nightly  # 40 s of CPU time; by day tests/worker/script/test_script_in_pods.py starts a script as pods do
def test_its_containers_train_the_readmes_script_with_as_many_workers_as_the_job_has_nodes(
    tmp_path: Path, script: Path
) -> None:
    ranks = range(JOB["spec"]["trainer"]["numNodes"])
    with pods(tmp_path, script) as started:
        server = started.run("server", 0)
        for rank in ranks:
            assert started.run("node", rank, "initContainers").wait(PATIENCE) == 0
        workers = [started.run("node", rank) for rank in ranks]

        for rank, worker in zip(ranks, workers, strict=True):
            assert worker.wait(2 * PATIENCE) == 0, started.log("node", rank) + started.log("server", 0)
        eventually(lambda: "validation accuracy" in started.log("server", 0), lambda: started.log("server", 0))
        assert server.poll() is None
        assert f"here: {len(ranks)} workers" in started.log("server", 0)
        accuracy = re.findall(r"validation accuracy ([.\d]+)", started.log("server", 0))
        assert float(accuracy[-1]) > 0.8
        models = {path.name for path in (tmp_path / "models" / RUN).iterdir()}
        assert models == {"best.safetensors", "last.safetensors"}
