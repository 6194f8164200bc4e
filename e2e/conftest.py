"""Fixtures of several tests on a cluster."""

import os
import re
import time
from collections.abc import Iterator

import pytest

from e2e.cluster import AGAIN, TAG, has_image, source_here, source_in
from paceline.data.dataset import Dataset
from paceline_k8s.deploy import purge, purge_data, teardown
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.run_name import runs_of
from paceline_papers.rcv1_like import rcv1_like

TRAIN, TEST = 6000, 2000


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A new name; what the test leaves there goes."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name)[5:25].strip("-")
    name = f"paceline-e2e-{stem}-{time.time_ns() // 10**9 % 10**6}"
    yield name
    kubectl = Kubectl(name)
    if kubectl.find(f"namespace/{name}") is not None:
        for run in runs_of(kubectl):
            teardown(kubectl.of_run(run), print)
            purge(kubectl.of_run(run), print)
        purge_data(kubectl, print)
        kubectl.run("delete", f"namespace/{name}", "--wait=false")


@pytest.fixture(scope="session")
def rows() -> Dataset:
    return rcv1_like(TRAIN, TEST, features=20_000)


@pytest.fixture(scope="session")
def second_image() -> None:
    """For tests that edit the workers' image; they are skipped where no node has it under its other name."""
    if not has_image("paceline-worker-slim", AGAIN):
        pytest.skip(f"no node has the image paceline-worker-slim:{AGAIN}, the same as :{TAG}: .ci/e2e makes it")


@pytest.fixture(scope="session")
def torch_image() -> None:
    """For tests that need the image with torch; they are skipped where it is not, or is of another tree."""
    if os.environ.get("E2E_DIGITS"):
        return
    source = source_in("paceline-worker")
    if source is None:
        pytest.skip("no node has the image paceline-worker, with torch: make images; E2E_DIGITS=1 where nodes pull it")
    if source != source_here():
        pytest.skip("the nodes' image paceline-worker holds other code than this tree: make images")
