"""The code in the pages "Your first policy", "... codec", "... task" and "... strategy" does what these pages say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.settings.config import Options
from paceline.core.sync.policy import build_policy
from paceline.load_settings import load
from paceline.own_extensions import OWN, OwnExtensions
from tools.doc_blocks.blocks import blocks
from tools.prose.pages import read_page

ROOT = Path(__file__).parents[2]
PAGES = {
    "leash.py": "docs/extend/first-policy.md",
    "fixed16.py": "docs/extend/first-codec.md",
    "progress.py": "docs/extend/first-task.md",
    "few_classes.py": "docs/extend/first-strategy.md",
}
TESTS = {
    "leash.py": "tests/core/sync/test_policies.py",
    "fixed16.py": "tests/core/coding/test_codecs.py",
    "progress.py": "tests/tasks/test_builtin_tasks.py",
    "few_classes.py": "tests/sharder/test_strategies.py",
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A folder with the files that the pages tell people to write."""
    monkeypatch.chdir(tmp_path)
    for name, value in vars(OwnExtensions()).items():
        monkeypatch.setattr(OWN, name, value)
    for name, page in PAGES.items():
        (code,) = (block.text for block in blocks(read_page(ROOT / page)) if block.title == name)
        (tmp_path / name).write_text(code)
    return tmp_path


def test_the_files_are_a_policy_and_a_codec(written):
    config = load(None, {"policy": "leash.py:5", "codec": {"push": "fixed16.py", "pull": "fixed16.py"}})

    policy = build_policy(config.policy)

    assert config.policy == Options(name="leash.py", length=5)
    assert policy.rate(0.2, staleness=3, members=4) == 0.1
    assert config.codec.push_codec.most_bytes(10) == 24


def test_the_contract_tests_run_on_the_files_and_pass(written):
    files = [word for name in PAGES for word in ("--own", str(written / name))]
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", *TESTS.values(), *files]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 35
    for name, file in TESTS.items():
        ran = rf"^{file}.*\[.*{Path(name).stem}.*\] PASSED"
        assert re.search(ran, done.stdout, re.MULTILINE | re.IGNORECASE), name
