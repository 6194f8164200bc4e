"""`python -m tools.protos [--check]`: generates the gRPC stubs, or tells whether the committed ones are stale."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
STUBS = Path("paceline/v1")


def generate(folder: Path) -> None:
    """Writes the stubs of every .proto below `folder`/paceline/v1."""
    sources = sorted(str(path) for path in (ROOT / "protos").glob("paceline/v1/*.proto"))
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python", "mypy")]
    if protoc.main(["protoc", f"-I{ROOT / 'protos'}", *outputs, *sources]):
        sys.exit("protoc failed; its message stands above.")


def stale() -> list[str]:
    """Stubs that differ from what the protos give."""
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name))
        fresh = {path.name: path.read_text() for path in (Path(name) / STUBS).iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / STUBS).iterdir() if "_pb2" in path.name}
    return sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        generate(ROOT)
    elif names := stale():
        sys.exit(f"Stale stubs: {', '.join(names)}. Run: make protos")
