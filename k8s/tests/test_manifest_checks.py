"""What `make check` says of rendered manifests: keys that Kubernetes does not know, findings of kube-score without a reason,
reasons without a finding, and tools that are missing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tools.manifests import __main__ as checks
from tools.manifests.kube_score import Finding, score
from tools.manifests.schemas import OLDEST

OPEN = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "door"},
    "spec": {"type": "NodePort", "selector": {"app": "one"}, "ports": [{"port": 80}]},
}
DOOR = Finding("service-type", "Service door", "The service is of type NodePort")
WHY = {"check": "service-type", "of": "door", "why": "It is meant to be open."}


def program(path: Path, prints: str) -> str:
    """A stand-in for kube-score."""
    path.write_text(f"#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{prints}\nEND\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def test_a_finding_needs_a_reason_and_a_reason_needs_a_finding() -> None:
    scores = {"overlay demo": [DOOR]}

    (wrong,) = checks.unexplained(scores, [])
    assert all(word in wrong for word in ("overlay demo", "Service door", "NodePort"))
    assert checks.unexplained(scores, [WHY]) == []
    (wrong,) = checks.unexplained(scores, [WHY, WHY | {"of": "window"}])
    assert "service-type of window" in wrong
    assert len(checks.unexplained(scores, [WHY | {"why": ""}])) == 2


def test_findings_are_read_but_not_what_is_fine_or_left_out(tmp_path: Path) -> None:
    def rule(check: str, grade: int, skipped: bool = False) -> dict[str, Any]:
        comments = [{"path": "sidecar", "summary": f"{check} is broken"}]
        return {"check": {"id": check}, "grade": grade, "skipped": skipped, "comments": comments}

    rules = [rule("critical", 1), rule("warning", 5), rule("fine", 10), rule("optional", 0, skipped=True)]
    scores = [{"type_meta": {"kind": "Deployment"}, "object_meta": {"name": "web"}, "checks": rules}]

    assert score(program(tmp_path / "tool", json.dumps(scores)), [OPEN], OLDEST) == [
        Finding("critical", "Deployment web sidecar", "critical is broken"),
        Finding("warning", "Deployment web sidecar", "warning is broken"),
    ]


def test_what_is_no_answer_of_kube_score_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ended with 1: out of order"):
        score(program(tmp_path / "tool", "out of order"), [OPEN], OLDEST)


def test_a_key_that_kubernetes_does_not_know_is_found_in_both_versions_and_an_operators_object_is_left_out() -> None:
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "all"}}
    misspelt = OPEN | {"spec": OPEN["spec"] | {"kind": "NodePort"}}  # type: ignore[operator]
    unknown = OPEN | {"apiVersion": "v2"}

    assert checks.refused({"a run": [OPEN, monitor]}) == []
    found = checks.refused({"a run": [misspelt]})
    assert len(found) == 2
    assert all("a run" in each and "'kind' was unexpected" in each for each in found)
    assert "has no Service of v2" in checks.refused({"a run": [unknown]})[0]


def test_without_a_tool_the_check_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"kubectl": "/bin/kubectl"}
    monkeypatch.setattr(shutil, "which", there.get)
    monkeypatch.setattr(checks, "rendered", lambda: {"a run": [OPEN]})

    assert checks.main() == 0
    assert "make kube-score" in capsys.readouterr().out
    there.clear()
    assert checks.main() == 0
    assert "no manifest is rendered" in capsys.readouterr().out
