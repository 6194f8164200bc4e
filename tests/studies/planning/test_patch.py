"""A plan as a patch of Kubernetes' manifests."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.core.errors import UsageError
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.studies.planning.patch import check_new, write_patch
from paceline.studies.planning.sizes import plan_report
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.overlay import read_overlay
from tests.support.tree import ROOT

SHAPES = [("weights", (10_000_000,))]


def written(path: Path, what: str = "digits", **words: Any) -> list[dict[str, Any]]:
    config = read_config(what, Flags(**words))
    write_patch(path, config, plan_report(config, SHAPES), "a plan")
    return list(yaml.safe_load_all(path.read_text()))


def test_a_patch_has_replicas_memory_and_the_whole_settings(tmp_path: Path) -> None:
    servers, workers, settings = written(tmp_path / "plan.yaml", workers=6, servers=3, policy="bsp", sets=["epochs=7"])

    assert servers["spec"]["replicas"] == 3
    (server,) = servers["spec"]["template"]["spec"]["containers"]
    limit = plan_report(read_config("digits", Flags(workers=6, servers=3, policy="bsp")), SHAPES)["servers"][0]["limit"]
    assert server["resources"] == {key: {"memory": f"{limit >> 20}Mi"} for key in ("requests", "limits")}
    assert workers["spec"]["completions"] == workers["spec"]["parallelism"] == 6
    (worker,) = workers["spec"]["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["memory"] == "832Mi"
    run = yaml.safe_load(settings["data"]["run.yaml"])
    assert (run["workers"], run["servers"], run["policy"], run["epochs"]) == (6, 3, {"name": "bsp"}, 7)
    assert (run["run"], run["batch_size"]) == ("digits", 64)  # the task's own


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")
def test_kubectl_renders_an_overlay_with_the_patch_and_deploy_takes_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    folder = tmp_path / "mine"
    folder.mkdir()
    written(folder / "plan.yaml", workers=6, servers=3, policy="asp")
    lines = (folder / "plan.yaml").read_text().splitlines()
    told = [line.removeprefix("#   ").replace("PATH/TO", "..") for line in lines if line.startswith("#   ")]
    (folder / "kustomization.yaml").write_text("\n".join(told))

    overlay = read_overlay(Kubectl("paceline"), str(folder))

    assert (overlay.config.workers, overlay.config.servers, overlay.config.policy.name) == (6, 3, "asp")
    server, worker = overlay.find("StatefulSet", "server"), overlay.find("Job", "worker")
    assert server is not None
    assert worker is not None
    assert (server["spec"]["replicas"], worker["spec"]["completions"]) == (3, 6)


def test_a_task_of_ones_own_is_where_pods_find_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    *_, settings = written(tmp_path / "plan.yaml", str(ROOT / "examples/wine.py"))

    assert yaml.safe_load(settings["data"]["run.yaml"])["task"] == "/etc/paceline/wine.py"
    assert "The task's file goes there, too: data of this ConfigMap, as wine.py" in (tmp_path / "plan.yaml").read_text()


def test_a_patch_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("mine")

    with pytest.raises(UsageError, match=r"plan\.yaml: the file exists\. Delete it, or name another file"):
        written(tmp_path / "plan.yaml")
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        check_new(tmp_path / "nowhere" / "plan.yaml")

    assert (tmp_path / "plan.yaml").read_text() == "mine"
