"""Images as archives, and the digests by which manifests name them."""

import json
import subprocess
import tarfile
from pathlib import Path

NAMES = ("server", "worker-slim", "sharder", "worker")
_SAVE = {
    "buildah": ("push", "{image}", "oci-archive:{file}"),
    "podman": ("save", "--format=oci-archive", "--output={file}", "{image}"),
    "docker": ("save", "--output={file}", "{image}"),
}
"""The arguments with which each program writes an archive that has an OCI index."""


def save(engine: str, image: str, file: Path) -> str:
    """Writes the image as an archive; its digest. SystemExit: this program is not known, or does not do it."""
    if engine not in _SAVE:
        raise SystemExit(f"ENGINE={engine}: expected one of {', '.join(_SAVE)}, whose archives have an index.")
    file.unlink(missing_ok=True)
    told = [engine, *(part.format(image=image, file=file) for part in _SAVE[engine])]
    done = subprocess.run(told, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(told)}: {done.stderr.strip() or done.returncode}. Is the image built (make images)?"
        )
    return digest_of(file)


def digest_of(file: Path) -> str:
    """'sha256:...' of the only image in an archive: what a registry calls it when it gets these very bytes."""
    with tarfile.open(file) as archive:
        found = archive.extractfile("index.json") if "index.json" in archive.getnames() else None
        if found is None:
            raise SystemExit(f"{file} has no index.json, so no digest. Docker writes one from release 25 on.")
        images = json.load(found)["manifests"]
    if len(images) != 1:
        raise SystemExit(f"{file} has {len(images)} images; expected one.")
    return str(images[0]["digest"])
