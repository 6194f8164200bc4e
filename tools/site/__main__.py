"""`python -m tools.site [--serve]`: builds the guide strictly as build/docs/site/VERSION, or serves it while docs/ changes."""

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.site.pages import ROOT, Missing, write_pages

FOLDER = ROOT / "build" / "docs"
REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url={version}/index.html"><title>Paceline</title>\n'
ZENSICAL = Path(sys.executable).with_name("zensical")
_STRICT = "The site was not built. Correct what Zensical names above; build/docs/pages has docs/ with its lines."


def main() -> int:
    """Zensical's exit code; 78 where a link leads nowhere, 69 where Zensical is not installed."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="serve it at http://localhost:8000 until Ctrl-C")
    asked = parser.parse_args()
    if not ZENSICAL.exists():
        print("Zensical is not installed here. Run: make docs", file=sys.stderr)
        return 69
    try:
        count = write_pages(FOLDER / "pages")
    except Missing as error:
        print(error, file=sys.stderr)
        return 78
    if asked.serve:
        return subprocess.run([ZENSICAL, "serve"], cwd=ROOT).returncode
    done = subprocess.run([ZENSICAL, "build", "--clean", "--strict"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(warnings_of(done.stderr), file=sys.stderr)
        return done.returncode
    version = _version()
    publish(FOLDER / "new", FOLDER / "site", version)
    print(f"{count} pages: {(FOLDER / 'site' / version / 'index.html').relative_to(ROOT)}")
    return 0


def warnings_of(errors: str) -> str:
    """What Zensical says is wrong, without the traceback with which its strict build ends."""
    warnings, _, rest = errors.partition("Traceback (most recent call last)")
    return f"{warnings}{_STRICT}" if "--strict" in rest else errors


def publish(new: Path, site: Path, version: str) -> None:
    """Puts a site that was built next to those of other versions, whose list the pages show; index.html leads to it."""
    site.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(site / version, ignore_errors=True)
    new.rename(site / version)
    known = sorted((found.parent.name for found in site.glob("*/index.html")), key=_order, reverse=True)
    rows = [{"version": name, "title": name, "aliases": ["latest"] if name == known[0] else []} for name in known]
    (site / "versions.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(version=known[0]), encoding="utf-8")


def _order(version: str) -> tuple[int, ...]:
    """1.10 is newer than 1.9."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


if __name__ == "__main__":
    sys.exit(main())
