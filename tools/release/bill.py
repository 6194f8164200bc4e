"""What is in a package or an image: its bill of materials (CycloneDX), from the file that locks its libraries."""

import json
from pathlib import Path

from tools.release.provenance import ROOT, sha256
from tools.release.uv_tool import run_tool

TOOL = "cyclonedx-bom==7.5.0"
_CHECK = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text()) and 1)
"""


def write_bill(lock: Path, file: Path, kind: str = "application") -> None:
    """All libraries that the lock names, with versions and hashes. What a base image brings is not in it. `kind`: of Paceline
    itself. SystemExit where the tool can't be had."""
    more: list[str | Path] = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", kind, "--output-reproducible"]
    done = run_tool(TOOL, ["cyclonedx-py", "requirements", lock, *more, "--output-file", file])
    if done.returncode:
        raise SystemExit(f"No bill of materials of {lock.name}: {done.stderr.strip()}")


def write_wheel_bill(wheel: Path, lock: Path, file: Path) -> None:
    """The wheel by its hash, and the libraries that pip installs with it, in the versions that `lock` names. SystemExit as
    above, and where the result is no CycloneDX."""
    write_bill(lock, file, "library")
    bill = json.loads(file.read_text())
    about = bill["metadata"]["component"]
    about["purl"] = f"pkg:pypi/{about['name']}@{about['version']}?file_name={wheel.name}"
    about["hashes"] = [{"alg": "SHA-256", "content": sha256(wheel)}]
    file.write_text(json.dumps(bill, indent=2))
    check_bill(file)


def check_bill(file: Path) -> None:
    """SystemExit where the file does not keep to the schema of CycloneDX 1.6, or the tool can't be had."""
    done = run_tool(TOOL, ["python", "-c", _CHECK, file])
    if done.returncode and done.stderr:
        raise SystemExit(f"Can't check {file}: {done.stderr.strip()}")
    if done.returncode:
        raise SystemExit(f"{file} is no CycloneDX 1.6: the schema refuses it.")
