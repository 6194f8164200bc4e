"""`python -m tools.recording`: records a run in a terminal of 80 columns and 24 lines as an animated picture, for README.md
(a minute; needs asciinema 2 and npx)."""

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "run.svg"
COLUMNS, LINES = 80, 24
RUN = "run digits -w 4 -s 2 --policy ssp:3 --slow 2=3x"
"""The command that is recorded, behind `paceline`."""
END = 4
"""Seconds for which the end is shown before the picture begins again. The last thing printed is shown for none."""
NEEDED = {"asciinema": "pip install 'asciinema<3'", "npx": "install Node.js with npm"}
"""Each program, and where it comes from."""


def record(picture: Path) -> None:
    """Does the run in a folder that is deleted, and writes the picture. SystemExit: a program is missing."""
    for program, remedy in NEEDED.items():
        if shutil.which(program) is None:
            sys.exit(f"tools.recording: {program} is not on the path: {remedy}.")
    with tempfile.TemporaryDirectory() as folder:
        cast = Path(folder) / "run.cast"
        typed, done = f"printf '$ %s\\n' {shlex.quote(f'paceline {RUN}')}", f"sleep {END}; printf ' '"
        shown = f"{typed}; {shlex.quote(sys.executable)} -m paceline.cli {RUN}; {done}"
        size = ["--cols", str(COLUMNS), "--rows", str(LINES)]
        subprocess.run(["asciinema", "rec", "--quiet", *size, "--command", shown, str(cast)], cwd=folder, check=True)
        drawn = ["npx", "--yes", "svg-term-cli@2", "--in", str(cast), "--out", str(picture), "--window", "--no-cursor"]
        subprocess.run(drawn, check=True)


if __name__ == "__main__":
    record(PICTURE)
