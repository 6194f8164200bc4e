"""The papers' runs on Kubernetes: each is its preset on a cluster, and its profile has what the paper gives its pods."""

import pytest

from paceline.settings.load_settings import load, task_of
from paceline.tasks.task import load_task
from paceline_k8s.profile import read_profile
from paceline_studies.planning.sizes import plan_report
from tests.support.tree import ROOT

RUNS = ROOT / "papers/k8s"
NAMES = [path.stem for path in sorted(RUNS.glob("*.yaml")) if "profile" not in path.stem]
FEATURES = 47_236
"""RCV1's."""


@pytest.mark.parametrize("name", NAMES)
def test_a_run_says_all_that_its_task_would(name: str) -> None:
    """Only the sharder adds a task's own settings; servers and workers take the file as it is."""
    path = RUNS / f"{name}.yaml"

    assert load(path, task=load_task(*task_of(path)).settings) == load(path)
    assert load(path).run == name


@pytest.mark.parametrize(
    ("name", "preset", "own"),
    [
        ("cifar10-shat", "shat", {"checkpoint", "deadline", "score_timeout"}),
        ("svm-hogwild", "hogwild", set()),
        ("svm-hogwild-async", "hogwild", {"policy", "svm"}),
    ],
)
def test_a_papers_run_is_its_preset_on_a_cluster(name: str, preset: str, own: set[str]) -> None:
    ours = load(RUNS / f"{name}.yaml").model_dump()
    theirs = load(preset=preset, task=load_task(*task_of(preset=preset)).settings).model_dump()
    theirs["data"]["path"] = ours["data"]["path"]

    differ = {key for key in ours if ours[key] != theirs[key]}

    assert differ <= own | {"run", "workers", "servers"}


def test_the_asynchronous_svm_is_as_published() -> None:
    config = load(RUNS / "svm-hogwild-async.yaml")

    assert config.policy.model_dump() == {"name": "everyone", "merge": "overwrite"}
    assert config.svm.stop == "own"


def test_pods_of_the_svm_start_from_the_papers_resources() -> None:
    """The paper: servers have 2Gi to 20Gi and as many CPUs as there are workers, workers one CPU and up to 4Gi."""
    parts = read_profile(str(RUNS / "hogwild-profile.yaml")).resources
    config = load(RUNS / "svm-hogwild.yaml")

    assert (parts["server"].requests["memory"], parts["server"].limits["memory"]) == ("2Gi", "20Gi")
    assert parts["server"].limits["cpu"] == str(config.workers)
    assert (parts["worker"].limits["cpu"], parts["worker"].limits["memory"]) == ("1", "4Gi")
    suggested = max(server["limit"] for server in plan_report(config, (("weights", (FEATURES,)),))["servers"])
    assert suggested < 2 << 30
