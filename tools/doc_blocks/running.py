"""Runs the blocks of pages: Python of a page in one process, in order; then its shell blocks, each by bash."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.doc_blocks.blocks import Block, blocks
from tools.doc_blocks.checks import SHELL, console_input
from tools.doc_blocks.folder import fill
from tools.prose.pages import ROOT, Page

BEFORE = Path(__file__).with_name("before")
"""The file there with a page's name gives names to its Python blocks: the reader's own model and data."""
PATIENCE = 600.0
"""Seconds for all Python of a page, or one shell block."""
_EPOCHS = "2"


def run_pages(pages: Iterable[Page]) -> int:
    """Runs all that may run, says how long each took; 1 where something failed."""
    failures = sum([_run_page(page) for page in pages])
    print(f"{failures} failed." if failures else "All of them ran.")
    return int(bool(failures))


def _run_page(page: Page) -> int:
    found = list(blocks(page))
    with tempfile.TemporaryDirectory(prefix="blocks-") as name:
        folder = Path(name)
        fill(folder, found)
        (folder / ".venv").symlink_to(sys.prefix)
        failures = _run_python([block for block in found if block.language == "python" and not block.title], folder)
        for block in found:
            if block.language in SHELL and (text := runnable(block)):
                failures += _run(f"{block.place}: sh", ["bash", "-eu", "-o", "pipefail", "-c", text], folder)
        return failures


def runnable(block: Block) -> str:
    """The lines of a shell block that can be run."""
    lines = console_input(block.text).replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if line.strip() and not block.is_left_out(line))


def _run_python(found: Sequence[Block], folder: Path) -> int:
    runs = [block for block in found if not block.why_not]
    if not runs:
        return 0
    before = BEFORE / f"{Path(runs[0].page).stem}.py"
    parts = [(before.name, before.read_text(encoding="utf-8"))] if before.exists() else []
    parts += [(block.place, block.text) for block in runs]
    script = "".join(f"exec(compile({text!r}, {place!r}, 'exec'))\n" for place, text in parts)
    (folder / "blocks_of_the_page.py").write_text(script, encoding="utf-8")
    where = ", ".join(str(block.line) for block in runs)
    return _run(f"{runs[0].page}:{where}: python", [sys.executable, "blocks_of_the_page.py"], folder)


def _run(what: str, command: Sequence[str], folder: Path) -> int:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "PACELINE_EPOCHS": _EPOCHS,
        "OMP_NUM_THREADS": "1",
    }
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        code, said = 124, f"{(error.stdout or b'').decode()}{(error.stderr or b'').decode()}\nmore than {PATIENCE:g} s"
    print(f"{what}: {'ran' if code == 0 else f'FAILED with {code}'} in {time.monotonic() - begun:.1f} s", flush=True)
    if code:
        print("\n".join(f"    {line}" for line in said.splitlines()[-40:]), flush=True)
    return int(code != 0)
