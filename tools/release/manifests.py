"""The manifests of a release: k8s/ as it is, but with images of the registry, named by digest."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

K8S = Path(__file__).parents[2] / "k8s"
_IMAGE = re.compile(r'newName: localhost/paceline-(?P<name>[-a-z]+), newTag: "[^"]+"')
_IMAGE_OF_PROFILE = re.compile(r": localhost/paceline-(?P<name>[-a-z]+):\S+")
_FOLDERS = ("base", "components", "overlays", "profiles")


def pinned(folder: Path, registry: str, digests: Mapping[str, str]) -> None:
    """Makes the folder. `digests`: by image, like server. SystemExit where one names another image."""
    for name in _FOLDERS:
        shutil.copytree(K8S / name, folder / name)
    for file in (*folder.rglob("kustomization.yaml"), *(folder / "profiles").iterdir()):
        file.write_text(pin(file.read_text(), registry, digests))


def pin(text: str, registry: str, digests: Mapping[str, str]) -> str:
    """A kustomization or a profile with each of its images by digest."""

    def by_digest(found: re.Match[str], form: str) -> str:
        name = found["name"]
        if name not in digests:
            raise SystemExit(f"A manifest names the image paceline-{name}, which this release does not have.")
        return form.format(image=f"{registry}/paceline-{name}", digest=digests[name])

    text = _IMAGE.sub(lambda found: by_digest(found, "newName: {image}, digest: {digest}"), text)
    return _IMAGE_OF_PROFILE.sub(lambda found: by_digest(found, ": {image}@{digest}"), text)
