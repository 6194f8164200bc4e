"""All that k8s/ renders for users, by kubectl's kustomize: the overlays, and what `paceline k8s render` makes of runs with
each profile, as it is shipped and as a platform team fills it."""

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paceline.settings.load_settings import read_yaml
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.overlay import Changes, read_overlay
from paceline_k8s.profile import PROFILES, Profile

Document = dict[str, Any]
_K8S = Path(__file__).parents[2] / "k8s"
_OVERLAYS = _K8S / "overlays"
_RUNS: Mapping[str, tuple[str, Document]] = {
    "script": ("script", {}),
    "streamed shards": ("demo", {"data": {"source": "server"}}),
    "shards in a bucket": ("demo", {"data": {"shards_at": "s3://bucket/shards"}}),
}
"""Run -> the overlay that has its run.yaml, and settings on top, from which other components follow."""
_SCRAPERS = ("monitoring", "prometheus")
"""Components that exclude each other: each process would be scraped twice."""
_OF_A_PLATFORM = {
    "queue": "team-a",
    "pull_secret": "registry",
    "service_account": "training",
    "priority_class": "paceline-servers",
    "shared_storage": True,
}


def rendered() -> dict[str, list[Document]]:
    """Returns what it is -> its objects. Raises ConfigError if something can't be rendered."""
    kubectl = Kubectl("here")

    def run(settings: Path, profile: Path) -> list[Document]:
        return read_overlay(kubectl, str(settings), Changes(profile=str(profile))).documents

    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(2) as pool:
        jobs = {
            f"overlay {path.parent.name}": pool.submit(kubectl.kustomized, path.parent)
            for path in sorted(_OVERLAYS.glob("*/kustomization.yaml"))
        }
        jobs |= {name: pool.submit(run, settings, profile) for name, settings, profile in _runs(Path(made))}
        return {name: job.result() for name, job in jobs.items()}


def _runs(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """What it is, its run.yaml and its profile; `folder` gets the files that k8s/ does not have."""
    profiles = sorted(PROFILES.glob("*.yaml"))
    for profile in profiles:
        yield f"demo with profile {profile.stem}", _OVERLAYS / "demo/run.yaml", profile

    for (run, (overlay, more)), profile, scraper in zip(_RUNS.items(), cycle(profiles), cycle(_SCRAPERS)):
        settings = _write(folder / f"{run}.yaml", read_yaml(_OVERLAYS / overlay / "run.yaml") | more)
        filled = _write(folder / profile.name, _filled(read_yaml(profile), scraper))
        yield f"{run} with profile {profile.stem}, filled", settings, filled


def _write(path: Path, document: Document) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


def _filled(profile: Document, scraper: str) -> Document:
    """The profile with every component that it may name, but of the scrapers this one alone, and none for GPUs that it does
    not have itself; and with more keys of a platform."""
    folders = sorted((_K8S / "components").glob("*/kustomization.yaml"))
    within = {Path(each).name for path in folders for each in read_yaml(path).get("components", [])}
    other = {*_SCRAPERS} - {scraper} | within
    if "gpu" not in profile["components"]:
        other |= {"gpu"}

    names = [path.parent.name for path in folders if path.parent.name not in other]
    allowed = [name for name in names if _is_of_platforms(profile | {"components": [name]})]
    return profile | _OF_A_PLATFORM | {"components": allowed}


def _is_of_platforms(profile: Document) -> bool:
    """Whether a profile may be like this: some components follow from run.yaml alone."""
    try:
        Profile.model_validate(profile)
    except ValidationError:
        return False
    return True
