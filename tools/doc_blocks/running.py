"""Runs the blocks of pages: Python of a page in one process, in order; then its shell blocks, each by bash.

A text block behind one of them is compared with what it printed.
"""

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
from tools.doc_blocks.printed import differs, text_behind
from tools.prose.pages import ROOT, Page

BEFORE = Path(__file__).with_name("before")
"""The file there with a page's name gives names to its Python blocks: the reader's own model and data."""
PATIENCE = 600.0
"""Seconds for all Python of a page, or one shell block."""
_EPOCHS = "2"
_SHOWN = 40
"""Lines of what was printed, after a failure."""
_NEXT = "\x1e"
"""Stands before what each Python block of a page printed."""


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
        failures = _run_python(found, folder)
        for block in found:
            if block.language in SHELL and (text := runnable(block)):
                code, said = _run(f"{block.location}: sh", ["bash", "-eu", "-o", "pipefail", "-c", text], folder)
                failures += int(code != 0) or _compare(found, block, said)
        return failures


def _compare(found: Sequence[Block], block: Block, printed: str) -> int:
    """1 where the text block behind this one says something else."""
    text = text_behind(found, block)
    wrong = text and differs(text.text, printed)
    if not text or wrong is None:
        return 0
    print(f"{text.location}: this was not printed: {wrong}\n  Printed was:", flush=True)
    print("\n".join(f"    {line}" for line in printed.splitlines()[-_SHOWN:]), flush=True)
    return 1


def runnable(block: Block) -> str:
    """The lines of a shell block that can be run."""
    lines = console_input(block.text).replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if line.strip() and not block.is_left_out(line))


def _run_python(found: Sequence[Block], folder: Path) -> int:
    runs = [block for block in found if block.language == "python" and not block.title and not block.why_not]
    if not runs:
        return 0
    before = BEFORE / f"{Path(runs[0].page).stem}.py"
    parts = [(before.name, before.read_text(encoding="utf-8"))] if before.exists() else []
    for block in runs:
        parts += [("next", f"print({_NEXT!r}, flush=True)"), (block.location, block.text)]
    script = "".join(f"exec(compile({text!r}, {place!r}, 'exec'))\n" for place, text in parts)
    (folder / "blocks_of_the_page.py").write_text(script, encoding="utf-8")
    where = ", ".join(str(block.line) for block in runs)
    code, said = _run(f"{runs[0].page}:{where}: python", [sys.executable, "blocks_of_the_page.py"], folder)
    if code:
        return 1
    return sum(_compare(found, block, printed) for block, printed in zip(runs, said.split(_NEXT)[1:], strict=True))


def _run(what: str, command: Sequence[str], folder: Path) -> tuple[int, str]:
    """Its exit code, and what it printed."""
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
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        code, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, said = 124, f"{(error.stdout or b'').decode()}\nmore than {PATIENCE:g} s"
    print(f"{what}: {'ran' if code == 0 else f'FAILED with {code}'} in {time.monotonic() - begun:.1f} s", flush=True)
    if code:
        print("\n".join(f"    {line}" for line in said.splitlines()[-_SHOWN:]), flush=True)
    return code, said
