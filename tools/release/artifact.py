"""A folder as an OCI artifact, which registries keep next to images and Flux reads as a source."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

CONFIG = "application/vnd.cncf.flux.config.v1+json"
CONTENT = "application/vnd.cncf.flux.content.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def write_artifact(folder: Path, layout: Path, tag: str, facts: dict[str, str]) -> str:
    """Writes an OCI image layout with the folder as its only layer; its digest. The same files make the same bytes. `facts`:
    annotations."""
    (layout / "blobs" / "sha256").mkdir(parents=True)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _blob(layout, b"{}", CONFIG),
        "layers": [_blob(layout, packed(folder), CONTENT)],
        "annotations": facts,
    }
    found = _blob(layout, json.dumps(manifest, sort_keys=True).encode(), MANIFEST)
    index = {"schemaVersion": 2, "manifests": [found | {"annotations": {"org.opencontainers.image.ref.name": tag}}]}
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return str(found["digest"])


def packed(folder: Path) -> bytes:
    """A tar.gz of its files, without times and owners."""
    found = io.BytesIO()
    with gzip.GzipFile(fileobj=found, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            member = archive.gettarinfo(path, str(path.relative_to(folder)))
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if path.is_dir() else 0o644
            if path.is_file():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    return found.getvalue()


def _blob(layout: Path, content: bytes, kind: str) -> dict[str, Any]:
    """Writes it by its digest; its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}
