"""kube-score, which finds what Kubernetes takes but a platform team would not, and the reasons why some of it stays."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_FINE = 10
"""kube-score's grade of a rule that an object keeps; warnings and critical findings have less."""
_AT_MOST = 60
"""Seconds for its answer."""


class Finding(NamedTuple):
    """What it has against an object. `check`: its identifier of the rule; `of`: 'KIND NAME', with the container's behind."""

    check: str
    of: str
    summary: str


class Reasons:
    """Why findings stay, as k8s/kube-score.yaml has it: for each `check` of objects that match `of`, the `why`."""

    def __init__(self, listed: Sequence[Mapping[str, str]]) -> None:
        self._listed = [(each["check"], each["of"], each["why"]) for each in listed]
        self._used: set[int] = set()

    def has(self, finding: Finding) -> bool:
        """Whether there is one for this finding."""
        rows = {
            row
            for row, (check, of, why) in enumerate(self._listed)
            if check == finding.check and re.search(of, finding.of) and why
        }
        self._used |= rows
        return bool(rows)

    def unused(self) -> list[str]:
        """Returns those that no finding has needed so far, as 'CHECK of OBJECTS'."""
        return [f"{check} of {of}" for row, (check, of, _) in enumerate(self._listed) if row not in self._used]


def score(tool: str, documents: Sequence[Mapping[str, Any]], version: str) -> list[Finding]:
    """Returns what kube-score finds in objects of one namespace. `tool`: its path; `version`: of Kubernetes,
    like '1.29'. Raises ValueError if it could not read them."""
    command = [tool, "score", "--output-format=json", f"--kubernetes-version=v{version}", "-"]
    text = "---\n".join(json.dumps(each) + "\n" for each in documents)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_AT_MOST, check=False)
    try:
        scores = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise ValueError(f"kube-score ended with {done.returncode}: {done.stderr or done.stdout}") from error
    return list(_findings(scores))


def _findings(scores: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for scored in scores:
        kind, name = scored["type_meta"]["kind"], scored["object_meta"]["name"]
        for rule in scored["checks"]:
            if rule["skipped"] or rule["grade"] >= _FINE:
                continue
            for comment in rule["comments"]:
                of = f"{kind} {name} {comment['path']}".rstrip()
                yield Finding(rule["check"]["id"], of, comment["summary"])
