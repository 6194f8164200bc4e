"""Sizes of a run: slices, memory, what links let through; a patch of them."""

import json
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from paceline.core.errors import UsageError
from paceline.core.policies.builtin.auto import Auto
from paceline.core.policies.policy import from_shorthand
from paceline.core.settings.config import Config, Options
from paceline.core.units import size
from paceline.launch.settings.read_config import read_config
from paceline.rpc import memory
from paceline.settings.flags import Flags
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.overlay import read_overlay
from paceline_studies.planning.patch import check_new, write_patch
from paceline_studies.planning.sizes import plan_report, print_report, read_shapes
from tests.support.tree import ROOT

SHAPES = [["conv.weight", [16, 3, 3, 3]], ["conv.bias", [16]], ["head.weight", [10, 16]]]


def console() -> tuple[Console, StringIO]:
    text = StringIO()
    return Console(file=text, width=120), text


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps(SHAPES))
    return file


def test_the_plan_has_slices_memory_and_traffic(shapes: Path) -> None:
    config = Config(servers=2, workers=4, policy={"name": "bsp"})

    report = plan_report(config, read_shapes(shapes), bandwidth=8e9)

    lengths = [server["elements"] for server in report["servers"]]
    assert report["elements"] == sum(lengths) == 16 * 27 + 16 + 160
    assert report["imbalance"] == max(lengths) * 2 / sum(lengths)
    assert report["servers"][0]["memory"]["weights"] == 4 * lengths[0]
    assert report["servers"][0]["limit"] > sum(report["servers"][0]["memory"].values())
    assert report["traffic"]["push_bytes"] == report["bytes"]
    # 1 GB/s each way through the larger slice's server, for all workers' steps
    assert report["traffic"]["steps_per_second"] == pytest.approx(1e9 / (4 * max(lengths)))


def test_one_worker_and_many_servers_are_limited_by_the_workers_link(shapes: Path) -> None:
    config = Config(servers=4, workers=1, codec={"push": "fp16"})

    traffic = plan_report(config, read_shapes(shapes), bandwidth=8e9)["traffic"]

    assert traffic["limited_by"] == "workers' links"
    assert traffic["push_bytes"] == traffic["pull_bytes"] / 2
    assert traffic["steps_per_second"] == pytest.approx(1e9 / traffic["pull_bytes"])


def test_the_plan_command_prints_json_without_torch(shapes: Path, tmp_path: Path) -> None:
    script = (
        "import sys\nsys.modules['torch'] = None\nfrom paceline.cli.__main__ import main\n"
        f"sys.argv = ['paceline', 'plan', 'digits', '-s', '3', '--json', '--no-probe', '--shapes', {str(shapes)!r}]\nmain()"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert len(json.loads(done.stdout)["servers"]) == 3


def test_the_plan_has_room_for_every_policy_that_auto_may_change_to(shapes: Path) -> None:
    def report(policy: str) -> dict[str, Any]:
        settings = Config(policy=Options(**from_shorthand(policy)), optimizer=Options(name="adam"))
        return plan_report(settings, read_shapes(shapes))

    each = [report(policy) for policy in ("bsp", *Auto.alternatives)]

    found, stays = report("auto"), report("auto:exact")
    for key in ("optimizer", "policy"):
        assert found["servers"][0]["memory"][key] == max(one["servers"][0]["memory"][key] for one in each)
    assert found["worker_copies"] == max(one["worker_copies"] for one in each)
    assert stays["worker_copies"] == each[0]["worker_copies"]


def test_the_plan_prints_for_people(shapes: Path) -> None:
    screen, text = console()

    print_report(plan_report(Config(), read_shapes(shapes)), screen)

    assert "model: 608 elements, 2.4 KiB" in text.getvalue()
    assert "suggested memory limit" in text.getvalue()
    assert "10 Gbit/s allow" in text.getvalue()
    assert "each worker takes up to 448.0 MiB of memory on a CPU (448.0 MiB, and 8 times the model)" in " ".join(
        text.getvalue().split()
    )


def test_the_plan_has_no_memory_of_a_worker_with_sparse_updates(shapes: Path) -> None:
    screen, text = console()
    config = Config(
        task="svm", updates="sparse", optimizer={"name": "sgd", "lr": 0.1, "momentum": 0, "weight_decay": 0}
    )

    report = plan_report(config, read_shapes(shapes))
    print_report(report, screen)

    assert report["worker"] is None
    assert "each worker takes" not in " ".join(text.getvalue().split())


@pytest.mark.parametrize(
    ("settings", "retained", "said"),
    [
        ({}, 1 << 30, "each worker also keeps up to 1.0 GiB (checkpoint.retain) of pushes"),
        ({"checkpoint": {"retain": 0}}, 0, "a worker keeps no pushes that no server has on disk yet"),
        ({"checkpoint": {"retain": 9}, "codec": {"push": "topk"}}, 1 << 30, "also keeps up to 1.0 GiB"),
    ],
)
def test_the_plan_says_what_a_worker_keeps_of_its_pushes(
    settings: dict[str, Any], retained: int, said: str, shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: 64 << 30)
    screen, text = console()

    report = plan_report(Config.model_validate(settings), read_shapes(shapes))
    print_report(report, screen)

    assert report["retained"] == retained
    assert said in " ".join(text.getvalue().split())


@pytest.mark.parametrize("content", ["{", '["a"]', '[["a", ["x"]]]', "[]", '[["a", [0]]]', "3"])
def test_shapes_that_can_not_be_read_are_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "shapes.json"
    file.write_text(content)

    with pytest.raises(UsageError, match=r"shapes\.json .*expected"):
        read_shapes(file)


def test_sizes_are_readable() -> None:
    values: list[Any] = [size(count) for count in (12, 2048, 3 << 20, 5 << 30)]

    assert values == ["12 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]


LARGE = [("weights", (10_000_000,))]


def written(path: Path, what: str = "digits", **words: Any) -> list[dict[str, Any]]:
    config = read_config(what, Flags(**words))
    write_patch(path, config, plan_report(config, LARGE), "a plan")
    return list(yaml.safe_load_all(path.read_text()))


def test_a_patch_has_memory_and_the_whole_settings_and_no_number_of_replicas(tmp_path: Path) -> None:
    servers, workers, settings = written(tmp_path / "plan.yaml", workers=6, servers=3, policy="bsp", sets=["epochs=7"])

    assert servers["spec"].keys() == workers["spec"].keys() == {"template"}
    (server,) = servers["spec"]["template"]["spec"]["containers"]
    limit = plan_report(read_config("digits", Flags(workers=6, servers=3, policy="bsp")), LARGE)["servers"][0]["limit"]
    assert server["resources"] == {key: {"memory": f"{limit >> 20}Mi"} for key in ("requests", "limits")}
    (worker,) = workers["spec"]["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["memory"] == "832Mi"
    run = yaml.safe_load(settings["data"]["run.yaml"])
    assert (run["workers"], run["servers"], run["policy"], run["epochs"]) == (6, 3, {"name": "bsp"}, 7)
    assert (run["run"], run["batch_size"]) == ("digits", 64)  # the task's own


def limit_of(part: dict[str, Any]) -> str:
    """The memory that its one container may take."""
    (container,) = part["spec"]["template"]["spec"]["containers"]
    return str(container["resources"]["limits"]["memory"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")
def test_kubectl_renders_an_overlay_with_the_patch_and_deploy_takes_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    folder = tmp_path / "mine"
    folder.mkdir()
    parts = written(folder / "plan.yaml", workers=6, servers=3, policy="asp")
    lines = (folder / "plan.yaml").read_text().splitlines()
    told = [line.removeprefix("#   ").replace("PATH/TO", "..") for line in lines if line.startswith("#   ")]
    (folder / "kustomization.yaml").write_text("\n".join(told))

    overlay = read_overlay(Kubectl("paceline"), str(folder))

    assert (overlay.config.workers, overlay.config.servers, overlay.config.policy.name) == (6, 3, "asp")
    deployed = [overlay.find("StatefulSet", part) or {} for part in ("server", "worker")]
    assert list(map(limit_of, deployed)) == list(map(limit_of, parts[:2]))


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
