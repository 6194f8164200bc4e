"""Brings the images of the end-to-end tests to a cluster's node. One that it has from the same content stays.

Usage: python -m e2e.images --cluster ../shared/cluster --base localhost/python-base:1 server worker-slim:0.1.0-again"""

import argparse
import hashlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from e2e.cluster import REPOSITORY, TAG, full_name, outputs
from paceline.core.errors import ConfigError
from paceline.processes.exits import exits
from tools.dockerfile import Dockerfile

INSPECTIONS = (
    ("buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}"),
    ("docker", "image", "inspect", "--format", "{{.Id}}"),
    ("podman", "image", "inspect", "--format", "{{.Id}}"),
)
"""How each engine prints an image's id."""
CONTENT = "IMAGE_CONTENT"
"""The variable of such an image that holds the checksum of what it was made from."""
Read = Callable[[Sequence[str], str], Mapping[str, str | None]]


class Image(NamedTuple):
    """One that the tests start."""

    target: str
    tag: str = TAG

    @property
    def name(self) -> str:
        return full_name(f"paceline-{self.target}", self.tag)


class Builder:
    """A cluster's program `image`, and the base image of all that it builds."""

    def __init__(self, cluster: Path, base: str) -> None:
        """ConfigError where no engine has the base image."""
        self._program = cluster / "image"
        self._arguments = {"BASE_IMAGE": base}
        self._beside = [*base_ids(base), hashlib.sha256(self._program.read_bytes()).hexdigest()]

    def content(self, target: str) -> str:
        """The checksum of all that decides what such an image holds."""
        return Dockerfile(REPOSITORY).checksum(target, self._arguments, self._beside)

    def build(self, image: Image) -> None:
        """Makes the image, which holds its checksum, and brings it to the node. ConfigError where that fails, or where somebody
        edits the tree meanwhile."""
        content = self.content(image.target)
        with TemporaryDirectory() as folder:
            # in the text: where a build argument changes, buildah 1.28 takes an older ENV from its cache
            file = Path(folder) / "Dockerfile"
            file.write_text(Dockerfile(REPOSITORY).extended(image.target, f"ENV {CONTENT}={content}"))
            self._run(image, file)
        if self.content(image.target) != content:
            raise ConfigError(f"Files of {image.name} were edited while it was built. Build it again.")

    def _run(self, image: Image, file: Path) -> None:
        command = [str(self._program), "build", image.name, ".", "-f", str(file), "--target", image.target]
        arguments = [word for key, value in self._arguments.items() for word in ("--build-arg", f"{key}={value}")]
        code = subprocess.run([*command, *arguments], cwd=REPOSITORY).returncode
        if code != 0:
            raise ConfigError(f"{' '.join(command)} ended with exit code {code}; its lines are above.")


def base_ids(base: str) -> list[str]:
    """The ids of the base image, by each engine that has it. ConfigError where none has."""
    found = [_printed(*inspection, base) for inspection in INSPECTIONS]
    if not any(found):
        engines = ", ".join(inspection[0] for inspection in INSPECTIONS)
        raise ConfigError(f"None of {engines} has the base image {base}. Bring it there: CLUSTER/image base {base}")
    return found


def _printed(*command: str) -> str:
    """What a command prints; nothing where it fails, or is not installed."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def bring(builder: Builder, images: Sequence[Image], read: Read = outputs) -> None:
    """Builds those that the node lacks or has from other content; prints what it does and how many seconds that takes."""
    began = time.monotonic()
    there = read([image.name for image in images], f'printf %s "${CONTENT}"')
    print(f"== images of the node read: {time.monotonic() - began:.0f} s", flush=True)
    for image in images:
        began, how = time.monotonic(), "is on the node"
        if there[image.name] != builder.content(image.target):
            builder.build(image)
            how = "built"
        print(f"== image {image.name} {how}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", type=Path, required=True, help="folder with the program `image` (.ci/e2e)")
    parser.add_argument("--base", required=True, help="name of the base image")
    parser.add_argument("images", nargs="+", metavar="TARGET[:TAG]", help="targets of docker/Dockerfile")
    given = parser.parse_args()
    with exits("e2e.images"):
        bring(Builder(given.cluster, given.base), [Image(*each.split(":", 1)) for each in given.images])


if __name__ == "__main__":
    main()
