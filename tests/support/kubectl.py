"""A kubectl whose cluster is in memory."""

from typing import Any

import yaml

from paceline_k8s.kubectl import Kubectl, NotThere
from paceline_k8s.wanted import STATE, Memory

SETTINGS = "demo-paceline-config"


def statefulset(component: str, replicas: int, **status: Any) -> dict[str, Any]:
    """A part of the run demo, of which Kubernetes has seen the newest template."""
    volumes = [{"name": "config", "configMap": {"name": SETTINGS}}]
    labels = {"app.kubernetes.io/component": component}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": f"demo-paceline-{component}", "labels": labels, "generation": 1},
        "spec": {"replicas": replicas, "template": {"spec": {"volumes": volumes, "containers": [{}]}}},
        "status": {"observedGeneration": 1, "updateRevision": "a", **status},
    }


def settings_map(text: str = "run: demo\ntask: digits\nservers: 2\nworkers: 2\nepochs: 20\n") -> dict[str, Any]:
    """The ConfigMap of its settings."""
    return {"kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": {"run.yaml": text}}


def state_map(kept: Memory | None = None) -> dict[str, Any]:
    """The ConfigMap of what its controller has noted."""
    data = {} if kept is None else {STATE: kept.text()}
    return {"kind": "ConfigMap", "metadata": {"name": "demo-paceline-state"}, "data": data}


class Cluster(Kubectl):
    """A namespace with these objects, by 'kind/name'. What is run is noted; it deletes objects and creates them."""

    def __init__(self, *objects: dict[str, Any], namespace: str = "here", run_name: str = "demo") -> None:
        self.namespace = namespace
        self.run_name = run_name
        self.there: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, ...]] = []
        self.stdin: list[str] = []
        self._add(*objects)

    @property
    def deleted(self) -> list[str]:
        return [call[1] for call in self.calls if call[0] == "delete"]

    def of_run(self, name: str) -> "Cluster":
        self.run_name = name
        return self

    def get(self, *what: str) -> dict[str, Any]:
        if (found := self.there.get(what[0])) is None:
            raise NotThere("(NotFound)")
        return found

    def items(self, kinds: str, selector: str | None = None) -> list[dict[str, Any]]:
        """Objects without a label count as having the value that is looked for."""
        wanted = [kind.removesuffix("s") for kind in kinds.split(",")]
        terms = [term.partition("=") for term in (self.selector if selector is None else selector).split(",") if term]

        def fits(one: dict[str, Any]) -> bool:
            labels = one.get("metadata", {}).get("labels", {})
            return all(labels.get(key, value) == value if is_equal else key in labels for key, is_equal, value in terms)

        return [one for name, one in self.there.items() if name.partition("/")[0] in wanted and fits(one)]

    def may(self, verb: str, kind: str) -> bool:
        return True

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
        self.calls.append(arguments)
        self.stdin.append(stdin or "")
        if arguments[0] == "delete":
            self.there.pop(arguments[1], None)
        elif arguments[0] == "create" and stdin:
            self._add(yaml.safe_load(stdin))
        return ""

    def _add(self, *objects: dict[str, Any]) -> None:
        self.there |= {f"{one['kind'].lower()}/{one['metadata']['name']}": one for one in objects}
