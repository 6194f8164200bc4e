"""A new policy, codec, topology, optimizer, strategy or task is one file and no list elsewhere: each of these passes the
contract tests of what is built in, and so does each file that a page tells people to write."""

import re
from pathlib import Path

import pytest

from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Options
from paceline.settings.load_settings import load
from paceline.settings.own_extensions import OWN, OwnExtensions
from tests.support.commands import python
from tools.doc_blocks.blocks import blocks
from tools.prose.pages import read_page

ROOT = Path(__file__).parents[2]
PAGES = {
    "leash.py": "docs/extend/first-policy.md",
    "fixed16.py": "docs/extend/first-codec.md",
    "progress.py": "docs/extend/first-task.md",
    "few_classes.py": "docs/extend/first-strategy.md",
}


def code_of(name: str) -> str:
    """What its page tells people to write to the file."""
    (code,) = (block.text for block in blocks(read_page(ROOT / PAGES[name])) if block.title == name)
    return code


FILES = {Path(name).stem: code_of(name) for name in PAGES} | {
    "loose": """
from paceline.extend import Policy

class Loose(Policy):
    '''At most seven steps ahead.'''

    def may_proceed(self, worker, clocks):
        return clocks.lead(worker) <= 7
""",
    "swap": """
from paceline.core.peers.peer_policies.dpsgd import Dpsgd

class Swap(Dpsgd):
    '''As D-PSGD [Lian et al. 2017].'''
""",
    "word": """
from typing import ClassVar
import numpy as np
from paceline.extend import Codec

class Word(Codec):
    keeps_all: ClassVar[bool] = True
    biased: ClassVar[bool] = False

    def most_bytes(self, elements):
        return 4 * elements

    def elements_in(self, data):
        return self._whole(data, 4)

    def _encode(self, values, out):
        out[: 4 * len(values)] = values.view(np.uint8)
        return 4 * len(values)

    def _decode(self, data, out):
        out[:] = np.frombuffer(data, np.float32)
""",
    "circle": """
from paceline.core.peers.topologies.ring import Ring

class Circle(Ring):
    '''As the ring.'''
""",
    "signs": """
import numpy as np
from paceline.extend import Optimizer

class Signs(Optimizer):
    @property
    def slots(self):
        return 0

    def step(self, weights, out, gradient, scale, lr, slots, steps):
        np.subtract(weights, np.float32(lr) * np.sign(gradient), out=out)
""",
    "turns": """
from paceline.sharder.strategies.round_robin import RoundRobin

class Turns(RoundRobin):
    '''As round robin.'''
""",
    "blobs": """
import numpy as np
from paceline.extend import Dataset, Labelled

SETTINGS = {"epochs": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}}

def data(path):
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    return Dataset(Labelled((rng.normal(size=(300, 4)) + 3 * labels[:, None]).astype(np.float32), labels))

def model():
    from torch import nn
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
""",
}
TESTS = {
    "leash": "tests/core/policies/test_policies.py",
    "fixed16": "tests/core/codecs",
    "progress": "tests/tasks/test_builtin_tasks.py",
    "few_classes": "tests/sharder/test_strategies.py",
    "loose": "tests/core/policies/test_policies.py",
    "swap": "tests/core/peers/test_peer_policies.py",
    "word": "tests/core/codecs",
    "circle": "tests/core/peers/test_topologies.py",
    "signs": "tests/core/optimizers/test_optimizer.py",
    "turns": "tests/sharder/test_strategies.py",
    "blobs": "tests/tasks/test_builtin_tasks.py",
}


pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def passed(tmp_path_factory):
    """What pytest said of all of them."""
    folder = tmp_path_factory.mktemp("own")
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    files = [word for name in FILES for word in ("--own", str(folder / f"{name}.py"))]
    words = ["-m", "pytest", "-vv", "-p", "no:cacheprovider", *dict.fromkeys(TESTS.values()), *files]
    done = python(*words, cwd=ROOT, patience=500)
    return f"{done.stdout}\nexit code {done.returncode}"


def test_all_contract_tests_pass(passed):
    assert passed.endswith("exit code 0"), passed[-3000:]
    assert int(re.search(r"(\d+) passed", passed)[1]) > 100
    assert not re.findall(r"^(?:FAILED|ERROR).*", passed, re.MULTILINE), passed[-3000:]


@pytest.mark.parametrize("name", FILES)
def test_the_contract_was_run_on_each(passed, name):
    assert re.search(rf"^{TESTS[name]}.*\[.*{name}.*\] PASSED", passed, re.MULTILINE | re.IGNORECASE), passed[-3000:]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A folder with the files that the pages tell people to write."""
    monkeypatch.chdir(tmp_path)
    for name, value in vars(OwnExtensions()).items():
        monkeypatch.setattr(OWN, name, value)
    for name in PAGES:
        (tmp_path / name).write_text(code_of(name))
    return tmp_path


def test_the_files_are_a_policy_and_a_codec(written):
    config = load(None, {"policy": "leash.py:5", "codec": {"push": "fixed16.py", "pull": "fixed16.py"}})

    policy = build_policy(config.policy)

    assert config.policy == Options(name="leash.py", length=5)
    assert policy.rate(0.2, staleness=3, members=4) == 0.1
    assert config.codec.push_codec.most_bytes(10) == 24
