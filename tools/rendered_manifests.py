"""`python -m tools.rendered_manifests [--check]`: writes k8s/rendered/demo.yaml, or tells whether it is stale."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).resolve().parent.parent / "k8s"
FILE = K8S / "rendered" / "demo.yaml"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, which takes a sixth of the time, where it is installed."""
HEAD = """# The overlay demo as one file. Made by `python -m tools.rendered_manifests`; don't edit it.
#   kubectl create namespace paceline
#   kubectl -n paceline create secret generic demo-paceline-token --from-literal=token="$(openssl rand -hex 32)"
#   kubectl -n paceline apply -f demo.yaml
"""


def render(folder: Path) -> str:
    """What `kubectl kustomize` makes of the folder. CalledProcessError, with kubectl's words, where it can't."""
    return subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout


def demo() -> str:
    """The overlay demo."""
    return render(K8S / "overlays" / "demo")


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a stream of YAML documents; how another kubectl lays them out makes no difference."""
    return [found for found in yaml.load_all(text, _LOADER) if found]  # noqa: TID251  # a safe loader


def is_fresh() -> bool:
    """Whether the file holds what the overlay renders to now."""
    return FILE.exists() and objects(FILE.read_text()) == objects(demo())


def main() -> None:
    """Writes the file; with --check exits with 1 where it is stale. Without kubectl --check has nothing to compare."""
    if "--check" not in sys.argv[1:]:
        FILE.write_text(HEAD + demo())
    elif shutil.which("kubectl") is None:
        print(f"{FILE.name} was not checked: there is no kubectl here.")
    elif not is_fresh():
        sys.exit(f"{FILE} is stale; run: python -m tools.rendered_manifests")


if __name__ == "__main__":
    main()
