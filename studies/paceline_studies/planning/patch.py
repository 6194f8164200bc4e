"""A plan as a patch of Kubernetes' manifests: memory limits, and the run's settings."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from paceline.base.own_files import is_own
from paceline.core.errors import DiskError, UsageError
from paceline.core.settings.config import Config

MiB = 1 << 20
STEP = 64
"""Limits of workers are whole multiples of this (MiB)."""
RETAINED = 0.9
"""What pushes that no server has on disk yet leave of a worker's memory at least (ratio)."""
_HEAD = """\
# {title}
# To use it, write a kustomization.yaml next to this file with these two lines, and deploy that folder:
#   resources: [PATH/TO/k8s/overlays/{overlay}]
#   patches: [{{path: {name}}}]
"""
_OWN_TASK = "# The task's file goes there, too: data of this ConfigMap, as {name}.\n"


def check_new(path: Path) -> None:
    """UsageError where the patch can't be written there, before anything is measured."""
    if path.exists():
        raise UsageError(f"--write-patch {path}: the file exists. Delete it, or name another file.")
    if not path.parent.is_dir():
        raise UsageError(f"--write-patch {path}: there is no folder {path.parent}. Make it, or name another file.")


def write_patch(path: Path, config: Config, report: Mapping[str, Any], title: str) -> None:
    """Writes the patch. `report`: of `sizes.plan_report`; `title`: the plan in a line. UsageError where the
    file exists, DiskError where it can't be written."""
    head = _HEAD.format(title=title, name=path.name, overlay="script" if config.is_script else "demo")
    if is_own(config.task) and not config.is_script:
        head += _OWN_TASK.format(name=Path(config.task).name)
    text = head + yaml.safe_dump_all(_documents(config, report), sort_keys=False)
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        check_new(path)
    except OSError as error:
        raise DiskError(
            f"Can't write {path}: {error.strerror}. Is the disk full, or may this user not write there?"
        ) from error


def _documents(config: Config, report: Mapping[str, Any]) -> list[dict[str, Any]]:
    server = max(each["limit"] for each in report["servers"]) // MiB
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "paceline-server"},
            "spec": _containers("server", server, server),
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "paceline-worker"},
            "spec": _worker(report["worker"]),
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "paceline-config"},
            "data": {"run.yaml": yaml.safe_dump(run_settings(config), sort_keys=False)},
        },
    ]


def _worker(needs: int | None) -> dict[str, Any]:
    """A worker's memory; nothing where it is not known."""
    if needs is None:
        return {}
    limit = math.ceil(needs / RETAINED / (STEP * MiB)) * STEP
    return _containers("worker", min(512, limit), limit)


def _containers(name: str, request: int, limit: int) -> dict[str, Any]:
    memory = {"requests": {"memory": f"{request}Mi"}, "limits": {"memory": f"{limit}Mi"}}
    return {"template": {"spec": {"containers": [{"name": name, "resources": memory}]}}}


def run_settings(config: Config) -> dict[str, Any]:
    """What a run.yaml says: the settings that anybody gave, a name, and files where pods find them."""
    told = config.model_dump(mode="json", exclude_unset=True)
    place = "/script" if config.is_script else "/etc/paceline"
    task = f"{place}/{Path(config.task).name}" if is_own(config.task) else config.task
    name = config.run or Path(config.task).stem.replace("_", "-").lower()
    first = {"run": name, "task": task, "workers": config.workers, "servers": config.servers}
    return (
        first
        | {"policy": config.policy.model_dump()}
        | {key: value for key, value in told.items() if key not in (*first, "policy") and value != {}}
    )
