"""The code in the pages "Your first policy", "... codec", "... task" and "... strategy" does what these pages say; its contract
tests are in test_one_file_each.py."""

from pathlib import Path

import pytest

from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Options
from paceline.settings.load_settings import load
from paceline.settings.own_extensions import OWN, OwnExtensions
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
