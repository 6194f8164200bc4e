"""The strict schemas of Kubernetes' API, by kubernetes-validate: a key that no version knows is an error."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from kubernetes_validate import utils
from referencing import Registry, Resource

PAGE = Path(__file__).parents[2] / "docs/run/kubernetes.md"
OLDEST, NEWEST = re.findall(r"Kubernetes (1\.\d+) to (1\.\d+)", PAGE.read_text())[0]
"""The versions of Kubernetes that the guide promises."""
_SCHEMAS = "kubernetes-json-schema"


def newest_schema() -> str:
    """Returns the newest version, like '1.37', that kubernetes-validate has schemas of."""
    return str(utils.major_minor(utils.latest_version()))


@cache
def complaint(text: str, version: str) -> str | None:
    """Returns what the schema of this version has against an object, None: nothing. `text`: the object as JSON."""
    found = json.loads(text)
    name = f"{found['kind']} {found['metadata']['name']}"
    try:
        validator = _validator(found["kind"], found["apiVersion"], version)
    except FileNotFoundError:
        return f"{name}: Kubernetes {version} has no {found['kind']} of {found['apiVersion']}"
    error = best_match(validator.iter_errors(found))
    return error and f"{name}: {list(error.path)} {error.message}"


@cache
def _validator(kind: str, api_version: str, version: str) -> Draft202012Validator:
    """Of the objects of one kind, which `kubernetes_validate.validate` would make for each object."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = utils.schema_contents(f"{_SCHEMAS}/v{version}.0-local-strict/{kind.lower()}-{group}.json", version)
    registry = _definitions(version) @ (Resource.from_contents(schema) @ Registry())
    return Draft202012Validator(schema, registry=registry)


@cache
def _definitions(version: str) -> Any:
    """All types of this version of the API, made ready once."""
    return Resource.from_contents(
        utils.schema_contents(f"{_SCHEMAS}/v{version}.0-local-strict/_definitions.json", version)
    )
