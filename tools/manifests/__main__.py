"""`python -m tools.manifests`: ends with 1 where a manifest that k8s/ renders for users has a key or a value that the oldest
or the newest Kubernetes does not take, or where kube-score finds what k8s/kube-score.yaml has no reason for. Without kubectl
or kube-score it names what is left out."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tools.manifests.kube_score import Finding, Reasons, score
from tools.manifests.rendered import Document, rendered
from tools.manifests.schemas import NEWEST, OLDEST, PAGE, complaint, newest_schema

REASONS = Path(__file__).parents[2] / "k8s/kube-score.yaml"
_OF_OPERATOR = "monitoring.coreos.com/"
"""The Prometheus operator's group, of which Kubernetes has no schema."""


def main() -> int:
    """Returns the exit code."""
    if shutil.which("kubectl") is None:
        print(
            "kubectl is missing, so no manifest is rendered or checked. Get it: https://kubernetes.io/docs/tasks/tools"
        )
        return 0
    manifests = rendered()
    wrong = refused(manifests)

    tool = shutil.which("kube-score")
    if tool is None:
        print(
            "kube-score is missing, so its rules are left out. Where Go is, `make kube-score` builds it, in a minute."
        )
    else:
        scores = {name: score(tool, documents, OLDEST) for name, documents in manifests.items()}
        wrong += unexplained(scores, yaml.safe_load(REASONS.read_text()))

    print(*wrong, sep="\n", end="\n" if wrong else "")
    number = sum(map(len, manifests.values()))
    print(
        f"{number} objects of {len(manifests)} rendered manifests, Kubernetes {OLDEST} and {NEWEST}: {len(wrong)} findings"
    )
    return int(bool(wrong))


def refused(manifests: Mapping[str, Sequence[Document]]) -> list[str]:
    """Returns what the oldest and the newest Kubernetes has against objects, with the manifest that has them."""
    wrong = []
    if newest_schema() != NEWEST:
        wrong.append(
            f"kubernetes-validate has Kubernetes {newest_schema()}, and {PAGE} promises {NEWEST}: make them one."
        )
    for name, documents in manifests.items():
        own = [each for each in documents if not each["apiVersion"].startswith(_OF_OPERATOR)]
        for text in (json.dumps(each, sort_keys=True) for each in own):
            wrong += [f"{name}: {found}" for version in (OLDEST, NEWEST) if (found := complaint(text, version))]
    return wrong


def unexplained(scores: Mapping[str, Sequence[Finding]], listed: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the findings that have no reason in the list, and the reasons that no finding needs."""
    reasons = Reasons(listed)
    found = [(name, each) for name, findings in scores.items() for each in findings]
    wrong = [f"{name}: {each.of}: {each.summary} ({each.check})" for name, each in found if not reasons.has(each)]
    return wrong + [
        f"{REASONS.name} has a reason for {each}, which nothing needs: take it out." for each in reasons.unused()
    ]


if __name__ == "__main__":
    sys.exit(main())
