"""What `paceline status` says of a run that has ended is what `paceline run` has said at its end."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from paceline.cli.run import summary
from paceline.core.errors import ServersGone
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.status.run_status import show_status
from paceline.launch.supervise.outcome import Outcome


def said_of(folder: RunFolder) -> str:
    text = StringIO()
    show_status(folder, Console(file=text, width=400), as_json=False)
    return text.getvalue()


@pytest.mark.parametrize(
    ("servers", "has_snapshot", "said"),
    [
        (2, True, "It goes on from its last snapshot with: paceline run "),
        (2, False, "It has no snapshot yet, and starts from the beginning, with: paceline run "),
        (0, False, "Without servers nobody keeps the models: start it over with --fresh."),
    ],
)
def test_both_say_the_same_of_how_to_go_on(tmp_path: Path, servers: int, has_snapshot: bool, said: str) -> None:
    folder, config = open_run(Config.model_validate({"run": "one", "servers": servers}), runs=tmp_path)
    if has_snapshot:
        folder.server(0).mkdir()
        (folder.server(0) / "snapshot-3.json").write_text("{}")
    folder.write_facts(exit_code=130, reason="stopped on request", finished=False)

    at_the_end = summary(config, folder, Outcome(130, reason="stopped on request"))[-1]

    assert said in at_the_end
    assert at_the_end.partition("/logs. ")[2] in said_of(folder)


def test_a_run_that_is_driven_and_does_not_answer_is_not_called_ended(tmp_path: Path) -> None:
    folder, _ = open_run(Config.model_validate({"run": "one"}), runs=tmp_path)
    folder.write_facts(exit_code=None, launcher=4711)

    with pytest.raises(ServersGone, match=r"does not answer\. If `paceline run` has ended, resume the run with"):
        said_of(folder)
    with (
        folder.locked(),
        pytest.raises(ServersGone, match=r"\(not started yet\) .* since process 4711 drives the run; ask"),
    ):
        said_of(folder)
