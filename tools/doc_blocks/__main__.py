"""`python -m tools.doc_blocks [PAGE...] [--run] [--left-out]`: whether the commands and code of README and docs are right."""

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from tools.doc_blocks.blocks import Block, blocks
from tools.doc_blocks.checks import problems
from tools.doc_blocks.folder import fill
from tools.prose.pages import Page, pages, read_page


def main() -> int:
    """0 where all of them are."""
    parser = argparse.ArgumentParser(prog="python -m tools.doc_blocks", description=__doc__)
    parser.add_argument("page", nargs="*", type=Path, help="these pages only")
    parser.add_argument("--run", action="store_true", help="run them, too: minutes")
    parser.add_argument("--left-out", action="store_true", help="list what can't be run, and why")
    asked = parser.parse_args()
    chosen = [read_page(path) for path in asked.page] or pages()
    if asked.left_out:
        return _left_out([block for page in chosen for block in blocks(page)])
    found = [line for page in chosen for line in check_page(page)]
    print("\n".join(found) if found else f"{sum(len(list(blocks(page))) for page in chosen)} blocks are right.")
    if asked.run and not found:
        from tools.doc_blocks.running import run_pages

        return run_pages(chosen)
    return int(bool(found))


def check_page(page: Page) -> list[str]:
    """What is wrong with the blocks of a page, each with its place."""
    found = list(blocks(page))
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        fill(Path(name), found)
        return [f"{block.location}: {said}" for block in found for said in problems(block, Path(name))]


def _left_out(found: list[Block]) -> int:
    for block in found:
        for mark in block.marks:
            print(f"{block.location}: {f'lines with {mark.part!r}' if mark.part else block.language}: {mark.why}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
