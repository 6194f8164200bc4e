"""The folder in which the blocks of a page are checked and run: the files that pages speak of, small ones."""

import random
from collections.abc import Iterable
from pathlib import Path

from tools.doc_blocks.blocks import Block
from tools.prose.pages import ROOT

_SCRIPT = '''"""A small training script, in place of the reader's."""

import torch

import paceline

features = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
data = torch.utils.data.TensorDataset(features, (features.sum(dim=1) > 0).long())
model = torch.nn.Linear(8, 2)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=0.01), model)
loader = paceline.loader(data, batch_size=32)
for _ in paceline.epochs(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
'''
_POLICY = '''"""A small policy, in place of the reader's."""

from typing import ClassVar

from pydantic import Field

from paceline.extend import Clocks, Policy


class Mine(Policy):
    """A worker may be `length` steps ahead of the slowest."""

    shorthand: ClassVar[str | None] = "length"
    length: int = Field(3, ge=0, description="Steps ahead of the slowest.")

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return clocks.lead(worker) <= self.length
'''
_RUN = "task: digits\nworkers: 2\nservers: 1\npolicy: ssp:3\n"
_LINKED = ("examples", "k8s", "docker", "tests", "benchmarks", "papers", "studies", "Makefile")


def fill(folder: Path, blocks: Iterable[Block]) -> None:
    """Puts them there: the page's own files (blocks with a title), and what a page takes for granted."""
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    texts = {
        "train.py": _SCRIPT,
        "mine.py": _POLICY,
        "my-run.yaml": _RUN,
        "run.yaml": _RUN,
        "runs/NAME/config.yaml": _RUN,
        "a9a": _libsvm(400, seed=1),
        "a9a.t": _libsvm(100, seed=2),
        "hosts.txt": "node1 workers=4\n",
    }
    texts |= {block.title: block.text for block in blocks if block.title and "/" not in block.title}
    (folder / "runs" / "NAME").mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _libsvm(lines: int, seed: int) -> str:
    """Two classes that ten features tell apart, as LIBSVM text."""
    draw = random.Random(seed)
    rows = ([draw.randrange(2) for _ in range(10)] for _ in range(lines))
    signs = ((row, "+1" if sum(row[:5]) > sum(row[5:]) else "-1") for row in rows)
    return "".join(f"{sign} {' '.join(f'{at}:1' for at, value in enumerate(row, 1) if value)}\n" for row, sign in signs)
