"""`python -m tools.site.pictures FOLDER [--chromium PROGRAM]`: pictures of the built site, wide and narrow, light and dark."""

import argparse
import http.server
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

from tools.site.pages import ROOT

SITE = ROOT / "build" / "docs" / "site"
PAGES = (
    "index",
    "start/first-run",
    "choose/policies",
    "watch/grafana",
    "failures/promises-and-failures",
    "understand/architecture",
    "reference/command-line",
    "start/own-model",
    "reference/errors",
    "reference/metrics",
    "reference/python",
    "glossary",
)
SIZES = {"desktop": "1440,1600", "phone": "390,1600"}
SCHEMES = {"light": 1, "dark": 0}
"""What Chromium calls them."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None: ...


def main() -> int:
    """1 where a picture was not made; 69 where there is no Chromium, or no site."""
    parser = argparse.ArgumentParser(prog="python -m tools.site.pictures", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    asked = parser.parse_args()
    versions = sorted(SITE.glob("*/index.html"))
    if asked.chromium is None or not versions:
        print(
            "It takes Chromium and a built site. Install Chromium (apt install chromium); run: make docs",
            file=sys.stderr,
        )
        return 69
    asked.folder.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/{versions[-1].parent.name}"
    shots = [
        (page, size, scheme, asked.folder / f"{page.replace('/', '-')}-{size}-{scheme}.png")
        for page in PAGES
        if (versions[-1].parent / f"{page}.html").exists()
        for size in SIZES
        for scheme in SCHEMES
    ]
    for page, size, scheme, file in shots:
        _shoot(asked.chromium, f"{base}/{page}.html", size, scheme, file)
    missing = [str(file) for *_, file in shots if not file.exists()]
    print(
        "\n".join(
            [f"{len(shots) - len(missing)} pictures in {asked.folder}", *(f"not made: {name}" for name in missing)]
        )
    )
    return int(bool(missing))


def _shoot(chromium: str, url: str, size: str, scheme: str, file: Path) -> None:
    file.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000")
        look = (f"--window-size={SIZES[size]}", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}")
        command = [chromium, *flags, *look, f"--user-data-dir={profile}", f"--screenshot={file}", url]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)


if __name__ == "__main__":
    sys.exit(main())
