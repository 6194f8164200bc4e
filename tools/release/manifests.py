"""The manifests of a release: k8s/ as it is, but with images of the registry, named by digest."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tools.rendered_manifests import K8S

_IMAGE = re.compile(r'newName: localhost/paceline-(?P<name>[-a-z]+), newTag: "[^"]+"')
_FOLDERS = ("base", "components", "overlays")


def pinned(folder: Path, registry: str, digests: Mapping[str, str]) -> None:
    """Makes the folder. `digests`: by image, like server. SystemExit where an overlay names another image."""
    for name in _FOLDERS:
        shutil.copytree(K8S / name, folder / name)
    for file in sorted(folder.rglob("kustomization.yaml")):
        file.write_text(pin(file.read_text(), registry, digests))


def pin(text: str, registry: str, digests: Mapping[str, str]) -> str:
    """A kustomization with each of its images by digest."""

    def by_digest(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in digests:
            raise SystemExit(f"An overlay names the image paceline-{name}, which this release does not have.")
        return f"newName: {registry}/paceline-{name}, digest: {digests[name]}"

    return _IMAGE.sub(by_digest, text)
