"""A training script that is started as a task."""

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.tasks.task import load_task

BODY = "open({there!r}, 'w').close()\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import paceline\nfor epoch in paceline.epochs(3):\n    pass\n", "line 2 calls paceline.epochs"),
        ("import paceline as p\np.wrap(1, 2)\n", "line 2 calls paceline.wrap"),
        ("from paceline import steps as go\ndef main():\n    go(3)\nmain()\n", "line 3 calls paceline.steps"),
    ],
)
def test_a_script_is_refused_before_it_runs_and_told_its_command(tmp_path: Path, text: str, said: str) -> None:
    script, there = tmp_path / "train.py", tmp_path / "ran"
    script.write_text(text + BODY.format(there=str(there)))

    with pytest.raises(ConfigError) as refused:
        load_task(str(script))

    expected = f"{script} is a training script, not a task: {said}. Start it with: paceline launch {script}"
    assert str(refused.value) == expected
    assert not there.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import paceline\npaceline.epochs(3)\ndef data(path):\n    pass\n", "lacks model"),
        ("import nowhere_to_be_found\nnowhere_to_be_found.epochs(3)\n", "No module named 'nowhere_to_be_found'"),
        ("def (:\n", "line 1"),
    ],
)
def test_other_files_are_loaded_and_their_own_mistake_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "task.py").write_text(text)

    with pytest.raises(ConfigError, match=said):
        load_task(str(tmp_path / "task.py"))
