"""What a release was made from, as an in-toto statement (https://slsa.dev/spec/v1.0/provenance)."""

import hashlib
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def statement(
    subjects: Mapping[str, str], settings: Mapping[str, str], built_from: str, began: datetime
) -> dict[str, Any]:
    """`subjects`: what was made, with its 'sha256:...'; `settings`: of `make release`; `built_from`: the commit."""
    sources = [ROOT / "requirements.lock", *sorted((ROOT / "docker").glob("*.lock"))]
    materials = [{"uri": "git+paceline", "digest": {"gitCommit": built_from}}]
    materials += [{"uri": str(path.relative_to(ROOT)), "digest": {"sha256": sha256(path)}} for path in sources]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}} for name, digest in subjects.items()
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": dict(settings),
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {"id": "make release"},
                "metadata": {
                    "startedOn": began.isoformat(timespec="seconds"),
                    "finishedOn": datetime.now(UTC).isoformat(timespec="seconds"),
                },
            },
        },
    }


def commit() -> str:
    """The commit that is checked out. SystemExit where files differ from it."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    if changed:
        raise SystemExit(f"These files are not committed, so nothing says what the release is made from: {changed}")
    return _git("rev-parse", "HEAD")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
