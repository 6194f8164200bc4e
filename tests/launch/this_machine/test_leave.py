"""What a process says and writes before it leaves its memory to the kernel."""

import subprocess
import sys
from pathlib import Path

import pytest

LEAVES = """
import atexit, sys, threading, time
from paceline.launch.this_machine.leave import leave
file = open('file', 'w')
file.write('never closed')
atexit.register(print, 'at exit')
threading.Thread(target=lambda: (time.sleep(0.1), print('last thread'))).start()
print('said')
leave({code})
"""


@pytest.mark.parametrize(("code", "ends_with"), [("None", 0), ("78", 78), ("-1", 255), ("'why'", 1)])
def test_nothing_is_lost_of_a_process_that_leaves(tmp_path: Path, code: str, ends_with: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LEAVES.format(code=code)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert found.returncode == ends_with
    assert found.stdout.splitlines() == ["said", "last thread", "at exit"]
    assert found.stderr == ("why\n" if ends_with == 1 else "")
    assert (tmp_path / "file").read_text() == "never closed"
