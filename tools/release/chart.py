"""The overlays as a thin Helm chart: values choose one, its settings and the images. The objects are those of kustomize."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from paceline_k8s.overlay import containers
from paceline_k8s.run_name import LONGEST, rename
from tools.rendered_manifests import objects, render

Object = dict[str, Any]
OWN = Path(__file__).with_name("helm")
"""Templates of the chart that are not made from overlays, and the lines above those that are."""
_RUN, _SUM, _SETTINGS, _IMAGE = (f"helm-puts-{number}" for number in range(4))
"""What stands where the chart has an expression."""
_EXPRESSIONS = {
    f"run.yaml: {_SETTINGS}": "run.yaml: |\n{{ $text | indent 4 }}",
    _SUM: "{{ $sum }}",
    _RUN: "{{ .Release.Name }}",
}
_CHECKSUM = re.compile(r"-[bcdfghkmt2456789]{10}$")
"""kustomize's, behind the name of a ConfigMap: another content is another object. It has no other letters."""


def write_chart(k8s: Path, chart: Path, version: str, images: Mapping[str, str]) -> None:
    """Makes the chart's folder. `k8s`: the manifests; `images`: by name, like server, as `name@sha256:...`."""
    overlays = sorted(path.parent for path in (k8s / "overlays").glob("*/run.yaml"))
    (chart / "templates").mkdir(parents=True)
    (chart / "runs").mkdir()
    for overlay in overlays:
        (chart / "runs" / f"{overlay.name}.yaml").write_text((overlay / "run.yaml").read_text())
        (chart / "templates" / f"{overlay.name}.yaml").write_text(template(overlay))
    for name in ("token.yaml", "NOTES.txt"):
        shutil.copy(OWN / name, chart / "templates")
    about = {"apiVersion": "v2", "name": "paceline", "version": version, "appVersion": version, "type": "application"}
    about["description"] = "Training on a parameter server that users can loosen or tighten"
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about, sort_keys=False))
    values = {"overlay": "demo", "run": "", "images": {name: images[name] for name in sorted(images)}}
    (chart / "values.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    names = [overlay.name for overlay in overlays]
    (chart / "values.schema.json").write_text(json.dumps(schema(names, sorted(images)), indent=2))


def schema(overlays: list[str], images: list[str]) -> Object:
    """By which Helm refuses values that the chart does not have."""
    each = {name: {"type": "string", "pattern": "[:@]"} for name in images}
    return {
        "$schema": "https://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "overlay": {"enum": overlays, "description": "Which of the overlays."},
            "run": {"type": "string", "description": "The text of another run.yaml (--set-file run=run.yaml)."},
            "images": {"type": "object", "additionalProperties": False, "properties": each},
            "global": {"type": "object"},
        },
    }


def template(overlay: Path) -> str:
    """The overlay's objects, with the release's name, settings and images from values."""
    before = yaml.safe_load((overlay / "run.yaml").read_text())["run"]
    found = [_object(one) for one in rename(objects(render(overlay)), before, _RUN)]
    text = yaml.safe_dump_all(found, sort_keys=False, width=10_000).replace("{{", "{{ `{{` }}")
    for name in (one["metadata"]["name"] for one in found if one["kind"] == "ConfigMap"):
        text = text.replace(name, _CHECKSUM.sub(f"-{_SUM}", name))
    for mark, expression in _EXPRESSIONS.items():
        text = text.replace(mark, expression)
    text = re.sub(rf"{_IMAGE}([-a-z]+)", r'{{ index .Values.images "\1" }}', text)
    head = (OWN / "head.yaml").read_text()
    for mark, value in {"@NAME@": overlay.name, "@LONGEST@": str(LONGEST), "@INNER@": str(LONGEST - 2)}.items():
        head = head.replace(mark, value)
    return head + text + "{{- end }}\n"


def _object(one: Object) -> Object:
    """With marks where values go."""
    kind, meta = one["kind"], one["metadata"]
    if kind == "ConfigMap" and "run.yaml" in one.get("data", {}):
        one["data"]["run.yaml"] = _SETTINGS
    if kind == "PersistentVolumeClaim":
        meta["annotations"] = {**meta.get("annotations", {}), "helm.sh/resource-policy": "keep"}
    for container in containers(one):
        name = re.search(r"paceline-([-a-z]+)[:@]", container["image"])
        if name:
            container["image"] = _IMAGE + name[1]
    return one
