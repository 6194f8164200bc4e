"""How a run of a recipe has ended."""

from pathlib import Path

import pytest

from paceline.core.errors import PacelineError, Stopped
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.supervise.outcome import Outcome
from paceline.launch.this_machine.signals import CTRL_C
from paceline_papers.reproduce.real_runs import check_finished


@pytest.mark.parametrize(("code", "error"), [(CTRL_C, KeyboardInterrupt), (Stopped.exit_code, Stopped)])
def test_a_run_that_was_ended_is_no_failure(code: int, error: type[BaseException], tmp_path: Path) -> None:
    with pytest.raises(error):
        check_finished(RunFolder(tmp_path), Outcome(exit_code=code))


def test_a_failed_run_says_why_and_where_its_logs_are(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"Run 'mine' ended: No memory is left\. See .*mine/logs"):
        check_finished(RunFolder(tmp_path / "mine"), Outcome(exit_code=70, reason="No memory is left."))


def test_a_finished_run_passes(tmp_path: Path) -> None:
    check_finished(RunFolder(tmp_path), Outcome(exit_code=0))
