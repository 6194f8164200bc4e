"""`make release`: everything that a release publishes, in one folder (docs/run/images.md#publish-a-release)."""

import argparse
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools.release.artifact import write_artifact
from tools.release.bill import write_bill, write_wheel_bill
from tools.release.images import NAMES, save
from tools.release.licences import write_licences
from tools.release.manifests import pinned
from tools.release.provenance import ROOT, commit, sha256, statement

_SEMANTIC = re.compile(r"\d+\.\d+\.\d+([-+][-.+0-9A-Za-z]+)?")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--engine", required=True, help="What has built the images: docker, podman or buildah.")
    parser.add_argument("--registry", required=True, help="Where they will be, as in REGISTRY/paceline-server.")
    parser.add_argument("--tag", required=True, help="The release, as 0.1.0.")
    parser.add_argument("--out", type=Path, default=Path("release"), help="The folder that is made.")
    told = parser.parse_args()
    if not _SEMANTIC.fullmatch(told.tag):
        sys.exit(f"TAG={told.tag}: expected a version like 0.1.0 or 0.2.0-rc.1.")
    if told.out.exists():
        sys.exit(f"{told.out} exists. Delete it, or choose another folder: make release RELEASE=...")
    revision, began = commit(), datetime.now(UTC)
    draft = told.out.with_name(f"{told.out.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    settings = {"REGISTRY": told.registry, "TAG": told.tag, "ENGINE": told.engine}
    subjects = make(draft, settings, revision)
    (draft / "provenance.json").write_text(json.dumps(statement(subjects, settings, revision, began), indent=2))
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    sums = "".join(f"{sha256(path)}  {path.relative_to(draft)}\n" for path in files)
    (draft / "SHA256SUMS").write_text(sums)
    draft.rename(told.out)
    print(f"The release is in {told.out}. How to publish it: docs/run/images.md#publish-a-release")


def make(folder: Path, settings: dict[str, str], revision: str) -> dict[str, str]:
    """Everything but the provenance; what was made, with its 'sha256:...'."""
    registry, tag = settings["REGISTRY"], settings["TAG"]
    for name in ("images", "bills"):
        (folder / name).mkdir()
    digests = {}
    for name in NAMES:
        print(f"image {name}", flush=True)
        digests[name] = save(settings["ENGINE"], f"{registry}/paceline-{name}:{tag}", folder / "images" / f"{name}.tar")
        lock = "object-store" if name == "server" else name  # server.lock is what the package itself needs
        write_bill(ROOT / "docker" / f"{lock}.lock", folder / "bills" / f"{name}.cdx.json")
    print("package and manifests", flush=True)
    uv, how = Path(sys.executable).with_name("uv"), ("--quiet", "--no-build-isolation", "--python", sys.executable)
    for source in (ROOT, *(ROOT / each for each in ("k8s", "papers", "studies"))):
        subprocess.run([uv, "build", *how, "--out-dir", folder / "packages", source], check=True)
    (folder / "packages" / ".gitignore").unlink(missing_ok=True)  # uv's
    (wheel,) = (folder / "packages").glob("paceline-*.whl")
    write_wheel_bill(wheel, ROOT / "docker" / "server.lock", folder / "bills" / "wheel.cdx.json")
    write_bill(ROOT / "requirements.lock", folder / "bills" / "development.cdx.json")
    write_licences(folder / "licences.csv")
    pinned(folder / "k8s", registry, digests)
    facts = {"org.opencontainers.image.version": tag, "org.opencontainers.image.revision": revision}
    subjects = {f"{registry}/paceline-{name}": digest for name, digest in digests.items()}
    subjects["manifests"] = write_artifact(folder / "k8s", folder / "manifests.oci", tag, facts)
    made = (folder / "packages").glob("paceline*")
    return subjects | {path.name: f"sha256:{sha256(path)}" for path in made}


if __name__ == "__main__":
    main()
