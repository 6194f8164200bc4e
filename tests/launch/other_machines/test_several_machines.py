"""The commands of the page "Several machines", typed on four machines: network namespaces that see nothing but one another."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline_papers.reproduce.network import UNLIMITED, Network, Node
from tests.support.tree import ROOT

pytest.importorskip("torch")
pytest.importorskip("cryptography")
PAGE = (ROOT / "docs/run/several-machines.md").read_text()
LAUNCH, PRINTED, JOIN = re.findall(r"^((?:PACELINE_KEY=\S+ )?paceline (?:launch|join)[^\n]*)\n```", PAGE, re.MULTILINE)[
    :3
]
SCRIPT = """
import os, time, torch, paceline
from torch.nn import functional
from sklearn.datasets import load_digits
from neighbour import scaled

features, labels = load_digits(return_X_y=True)
features, labels = torch.tensor(scaled(features), dtype=torch.float32), torch.tensor(labels)
model = torch.nn.Linear(64, 10)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.3), model)
for step in paceline.steps(400):
    if not os.path.exists({all_are_there!r}):
        time.sleep((.06, .5)[step >= 200])  # the run's end waits for the spare machine, which may take its time
    rows = torch.randint(len(labels), (32,))
    optimizer.zero_grad()
    functional.cross_entropy(model(features[rows]), labels[rows]).backward()
    optimizer.step()
print("accuracy", float((model(features).argmax(1) == labels).float().mean()))
"""


@pytest.fixture
def machines() -> Iterator[dict[str, Node]]:
    """By name, the head first."""
    try:
        with Network(dict.fromkeys(("head", "b", "c", "d"), UNLIMITED)) as network:
            yield network.nodes
    except UsageError as error:
        pytest.skip(str(error))


class Machine:
    """One of them, with its own folder, and what is typed there."""

    def __init__(self, name: str, node: Node, folder: Path, held: ExitStack) -> None:
        self._name = name
        self._node = node
        self._held = held
        self.folder = folder / name
        self.folder.mkdir()
        self.words = self.folder / "terminal.txt"

    def types(self, command: str) -> "subprocess.Popen[bytes]":
        """In its own process group, which ends with the test."""
        variables = dict(word.split("=") for word in command.split() if word.startswith("PACELINE_KEY="))
        program, *words = command.split()[len(variables) :]
        assert program == "paceline"
        line = ["nsenter", f"--net={self._node.namespace}", sys.executable, "-P", "-m", "paceline.cli", *words]
        environment = (
            os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder)} | variables
        )
        terminal = self._held.enter_context(self.words.open("ab"))
        typed = subprocess.Popen(
            line, cwd=self.folder, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
        )
        self._held.callback(end, typed)
        return typed

    def wait_for(self, found: Callable[[str], object], seconds: float = 200) -> str:
        """What its terminal shows, once that has been found in it."""
        until = time.monotonic() + seconds
        while not found(text := self.words.read_text()):
            assert time.monotonic() < until, f"{self._name}: {text}"
            time.sleep(0.1)
        return text


def _form(join: str) -> str:
    """The command without its address and key."""
    return re.sub(r"=[\w-]+ paceline join \S+:\d+", "=KEY paceline join HOST:PORT", join)


def end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.nightly  # a dozen processes load torch, in a minute of CPU time; by day the rest of its folder joins runs
def test_a_script_trains_on_four_machines_and_one_is_killed(machines: dict[str, Node], tmp_path: Path) -> None:
    with ExitStack() as held:
        head, b, c, d = (Machine(name, node, tmp_path, held) for name, node in machines.items())
        all_are_there = tmp_path / "all"
        (head.folder / "train.py").write_text(SCRIPT.format(all_are_there=str(all_are_there)))
        (head.folder / "neighbour.py").write_text("def scaled(values):\n    return (values - 5) / 8\n")
        settings = "--run mine --set lease=4 --set heartbeat=1"
        launched = head.types(LAUNCH.replace("train.py", f"{settings} train.py"))

        printed = head.wait_for(lambda text: re.search(r"PACELINE_KEY=\S+ paceline join \S+", text))
        (join,) = re.findall(r"(PACELINE_KEY=\S+ paceline join \S+)", printed)[:1]
        assert machines["head"].address in join
        assert _form(join) == _form(PRINTED)
        assert _form(JOIN) == f"{_form(PRINTED)} -w 2"
        typed = f"{join} -w %s"
        joined = b.types(typed % 2)
        killed = c.types(typed % 1)
        status = head.folder / "runs/mine/metrics.jsonl"
        head.wait_for(lambda text: status.exists() and '"phase": "training"' in status.read_text())
        time.sleep(1.0)
        os.killpg(killed.pid, signal.SIGKILL)
        head.wait_for(lambda text: f"({machines['c'].address}) has not answered" in text)
        spare = d.types(typed % 1)
        head.wait_for(lambda text: '"incarnation": 2' in status.read_text())  # it trains
        all_are_there.touch()

        assert launched.wait(200) == 0, head.words.read_text()
        assert joined.wait(30) == 0, b.words.read_text()
        assert spare.wait(30) == 0, d.words.read_text()

    words = head.words.read_text()
    facts = json.loads((head.folder / "runs/mine/run.json").read_text())
    assert facts["finished"]
    assert f"({machines['d'].address}) has joined; it lends 1 worker" in words
    assert re.search(r"worker-[1-3] is started", d.words.read_text())
    assert "accuracy 0.9" in words
    assert (head.folder / "runs/mine/models/last.safetensors").stat().st_size > 1000
    assert {path.name for path in (head.folder / "runs/mine/logs").glob("worker-*.log")} >= {
        f"worker-{rank}.log" for rank in range(4)
    }
    for machine in (b, d):  # nothing stays there, but for a cache that torch makes itself
        assert {path.name for path in machine.folder.iterdir()} - {"torchinductor_root"} == {"terminal.txt"}
    print(words, *(f"--- {machine.folder.name}\n{machine.words.read_text()}" for machine in (b, c, d)))
