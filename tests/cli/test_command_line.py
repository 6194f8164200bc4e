"""The command line: options, exit codes, the run folder, status, what people get to see; and `--repeats`, several seeds."""

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from paceline.cli import repeats
from paceline.cli.__main__ import app
from paceline.cli.run import run, summary
from paceline.core.errors import ConfigError, DiskError, NotYet, ServersGone, UsageError
from paceline.core.settings.config import Config, Options
from paceline.launch.folder import run_folder
from paceline.launch.folder.run_folder import RunFolder, find_run, new_name, open_run
from paceline.launch.folder.series import series
from paceline.launch.settings.read_config import read_config
from paceline.launch.status import run_status as status
from paceline.launch.status.chief_status import Speed, plain
from paceline.launch.status.live_table import EVERY, PlainLines, headline, newest_score, picture
from paceline.launch.supervise.outcome import Outcome
from paceline.rpc.auth import Credentials
from paceline.settings.flags import Flags
from paceline.settings.load_settings import read_yaml
from paceline.v1.run_service_pb2 import Score, StatusReply, WorkerStatus
from tests.support.chief import Chief, begun, console, shown, watched
from tests.support.commands import paceline
from tests.support.own_time import own_time


def test_a_training_outlives_who_reads_what_it_shows() -> None:
    code = """
from paceline.base.lasting_console import LastingConsole
console = LastingConsole(highlight=False)
input()
console.print("a" * 100_000)
print("b", flush=True)
console.print("c")
raise SystemExit(7)
"""
    line = [sys.executable, "-P", "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as run:
        run.stdout.close()
        run.stdout = None
        _, errors = run.communicate("\n", timeout=60)

    assert (run.returncode, errors) == (7, "")


# options


def test_flags_become_settings() -> None:
    config = read_config("digits", Flags(workers=3, policy="ssp:5", slow=["2=10x"], epochs=2, data="a: b", run="mine"))

    assert (config.workers, config.epochs, config.run, config.data.path) == (3, 2, "mine", "a: b")
    assert (config.policy.name, config.policy.options) == ("ssp", {"bound": 5})
    assert config.slow == read_config("digits", Flags(workers=3, slow=["HE1"])).slow == {"2": "10x"}


def test_a_set_wins_over_a_flag_and_both_over_the_task() -> None:
    sets = ["epochs=3", "policy.bound=7", "optimizer.lr=0.01"]
    config = read_config("digits", Flags(epochs=2, policy="ssp", sets=sets))

    assert config.epochs == 3
    assert config.policy.options == {"bound": 7}
    assert config.optimizer.options["lr"] == 0.01
    assert config.batch_size == 64  # the task's own


def test_a_preset_alone_says_what_is_trained_and_flags_win_over_it() -> None:
    pytest.importorskip("torch")

    config = read_config(None, Flags(workers=8, sets=["batch_size=64"], preset="shat"))

    assert (config.task, config.model, config.workers, config.batch_size) == ("cifar10", "resnet50", 8, 64)
    assert config.policy.options == {"reading": "complement", "alpha_min": 0.0, "local_step": "optimizer"}


@pytest.mark.parametrize(
    ("slow", "told"),
    [
        (["he1", "0=2x"], r"--slow he1: expected .*or only one of these names: ho, he0"),
        (["2"], "2=10x"),
        (["2.5=10x"], "2=10x"),
    ],
)
def test_a_slow_option_that_can_not_be_read_shows_how_to_write_it(slow: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_config("digits", Flags(slow=slow))


def test_a_yaml_file_lies_between_the_task_and_the_flags(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("task: digits\nepochs: 4\nworkers: 3\n")

    config = read_config(str(file), Flags(workers=2))

    assert (config.task, config.epochs, config.workers, config.batch_size) == ("digits", 4, 2, 64)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "digits", "--set", "epoch=3"], 78, "Did you mean 'epochs'?"),
        (["run", "digts"], 78, "Did you mean 'digits'?"),
        (["run", "digits", "--policy", "spp"], 78, "Did you mean 'ssp'?"),
        (["run", "digits", "--run", "../up"], 78, "letters, digits and inner"),
        (["run", "digits", "--set", "workers"], 64, "key=value"),
        (["run", "digits", "--wokers", "3"], 64, "--wokers"),
        (["run"], 64, "Missing argument"),
        (["run", "digits", "-w", "1000"], 64, "Use fewer workers (-w), or start anyway with --yes."),
        (["run", "none.yaml"], 78, "none.yaml"),
        (["status"], 64, "no runs"),
        (["stop", "nothing"], 64, "no run 'nothing'"),
        (["plan", "digits", "--shapes", "none.json"], 64, "none.json"),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    done = paceline(*arguments, cwd=tmp_path)

    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


# run folder


def test_a_new_run_has_its_settings_and_a_secret_token(tmp_path: Path) -> None:
    folder, config = open_run(Config(run="one", epochs=3), runs=tmp_path)

    assert config.run == "one"
    assert "epochs: 3" in folder.config.read_text()
    assert stat.S_IMODE(folder.token.stat().st_mode) == 0o600
    assert len(secret := folder.read_secret()) > 30
    assert open_run(Config(run="one", epochs=3), runs=tmp_path)[0].read_secret() == secret, "resumed with its token"


def test_a_file_system_without_locks_is_not_taken_for_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = open_run(Config(run="one"), runs=tmp_path)

    def no_locks(file: Any, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)

    with pytest.raises(DiskError, match=r"can't be locked: Function not implemented\. Take a folder"), folder.locked():
        pass
    assert not folder.is_driven


def test_more_epochs_that_could_not_be_written_down_are_taken_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = open_run(Config(run="one", epochs=3), runs=tmp_path)
    folder.write_facts(finished=True, exit_code=0)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(run_folder, "write_yaml", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(DiskError, match="No space left"):
        open_run(Config(run="one", epochs=5), runs=tmp_path)

    monkeypatch.undo()
    open_run(Config(run="one", epochs=5), runs=tmp_path)

    assert (folder.settings().epochs, folder.facts()["finished"], folder.facts()["exit_code"]) == (5, False, None)


def test_more_epochs_reopen_a_finished_run_but_not_one_that_is_going_on(tmp_path: Path) -> None:
    folder, _ = open_run(Config(run="one", epochs=3), runs=tmp_path)
    folder.write_facts(finished=True)

    with folder.locked(), pytest.raises(ConfigError, match="Run 'one' is going on already"):
        open_run(Config(run="one", epochs=5), runs=tmp_path)
    assert folder.settings().epochs == 3
    open_run(Config(run="one", epochs=5), runs=tmp_path)

    assert (folder.settings().epochs, folder.facts()["finished"]) == (5, False)
    open_run(Config(run="one", epochs=5, score_timeout=7.0), runs=tmp_path)
    assert folder.settings().score_timeout == 7.0, "kept where it changes"
    with pytest.raises(ConfigError, match="epochs: 5 before, 3 now"):
        open_run(Config(run="one", epochs=3), runs=tmp_path)


def test_other_settings_are_refused_with_the_list_of_them(tmp_path: Path) -> None:
    open_run(Config(run="one", epochs=3), runs=tmp_path)

    with pytest.raises(ConfigError) as caught:
        open_run(Config(run="one", epochs=5, policy={"name": "ssp", "bound": 2}), runs=tmp_path)

    assert "epochs: 3 before, 5 now" in str(caught.value)
    assert "policy.bound: None before, 2 now" in str(caught.value)
    assert "--fresh" in str(caught.value)


def test_a_run_keeps_the_policy_of_its_beginning_where_no_other_is_asked_for(tmp_path: Path) -> None:
    begun = Config(run="one", policy=Options(name="ssp"))
    open_run(begun, runs=tmp_path)

    assert open_run(Config(run="one"), runs=tmp_path)[1].policy == begun.policy
    with pytest.raises(ConfigError, match=r"policy\.name: 'ssp' before, 'auto' now"):
        open_run(Config(run="one", policy=Options(name="auto")), runs=tmp_path)
    assert open_run(Config(run="one"), fresh=True, runs=tmp_path)[1].policy.name == "auto"


def test_a_scripts_run_keeps_it_too(tmp_path: Path) -> None:
    script = {"run": "one", "task": "train.py", "data": {"source": "script"}}
    given = {key: script[key] for key in ("task", "data")}
    folder, begun = open_run(Config.model_validate({**script, "policy": {"name": "ssp"}}), runs=tmp_path, given=given)

    again = open_run(Config.model_validate(script), runs=tmp_path, given=given)[1]

    assert again == begun
    assert read_yaml(folder.first_settings)["policy"] == {"name": "ssp"}, "where its processes read it"


def test_fresh_starts_a_run_over(tmp_path: Path) -> None:
    first, _ = open_run(Config(run="one", epochs=3), runs=tmp_path)
    first.write_facts(finished=True)

    second, _ = open_run(Config(run="one", epochs=5), fresh=True, runs=tmp_path)

    assert second.facts() == {}
    assert "epochs: 5" in second.config.read_text()


def test_fresh_keeps_what_a_script_was_launched_with_and_what_is_new(tmp_path: Path) -> None:
    begun = Config.model_validate({"run": "one", "task": "train.py", "data": {"source": "script"}})
    given = {"task": "train.py", "data": {"source": "script"}, "workers": 3}
    folder, _ = open_run(begun, runs=tmp_path, given=given)
    folder.rewrite(begun.model_copy(update={"epochs": 9}).model_dump(mode="json"))  # as the script described it

    open_run(folder.settings().model_copy(update={"seed": 7}), fresh=True, runs=tmp_path)

    assert read_yaml(folder.first_settings) == {**given, "run": "one", "seed": 7}


def test_a_script_that_nobody_launched_is_told_how_to_begin(tmp_path: Path) -> None:
    config = Config.model_validate({"run": "one", "task": "train.py", "data": {"source": "script"}})

    with pytest.raises(ConfigError, match=r"Start it with: paceline launch train\.py"):
        open_run(config, runs=tmp_path)

    assert not (tmp_path / "one").exists()


def test_fresh_is_refused_where_objects_of_python_were_trained(tmp_path: Path) -> None:
    config = Config.model_validate({"run": "one", "task": "Linear", "data": {"source": "script"}})
    folder, _ = open_run(config, runs=tmp_path, given={"task": "Linear"})

    with pytest.raises(ConfigError, match=r"Run 'one' trained objects of your Python.*Call paceline\.train again"):
        open_run(config, fresh=True, runs=tmp_path)

    assert folder.first_settings.exists()


def test_fresh_does_not_delete_the_only_copy_of_a_users_file(tmp_path: Path) -> None:
    own = [tmp_path / "task.py", tmp_path / "mine.py"]
    for file in own:
        file.write_text("def data(path):\n    pass\n")
    settings = {"run": "one", "task": str(own[0]), "policy": {"name": str(own[1])}}
    folder, config = open_run(Config.model_validate(settings), runs=tmp_path)
    folder.keep_task(config.task)
    folder.keep_own([own[1]])
    own[1].unlink()
    kept = config.model_copy(update={"task": str(folder.kept_task(config.task))})

    with pytest.raises(ConfigError, match=r"--fresh would delete .*task\.py and .*own/mine\.py, and no other copy"):
        open_run(kept, fresh=True, runs=tmp_path)

    assert folder.kept_task(config.task).exists()


def test_fresh_does_not_take_a_run_away_from_its_launcher(tmp_path: Path) -> None:
    folder, config = open_run(Config(run="one"), runs=tmp_path)

    with folder.locked(), pytest.raises(ConfigError, match="going on already"):
        open_run(config, fresh=True, runs=tmp_path)

    assert folder.config.exists()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/thesis.txt").write_text("precious")

    with pytest.raises(ConfigError, match="not the folder of a run"):
        open_run(Config(run="one"), fresh, runs=tmp_path)

    assert (tmp_path / "one/thesis.txt").read_text() == "precious"


def test_names_of_runs_are_safe_and_never_taken_twice(tmp_path: Path) -> None:
    config = Config(task="./My Task_1.py")

    first, second = (open_run(config, runs=tmp_path)[0].name for _ in range(2))

    assert first.startswith("my-task-1-auto-")
    assert first != second
    assert new_name(config, tmp_path) not in (first, second)


def test_two_runs_that_begin_in_one_second_get_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["one", "one", "one", "one", "two"])
    monkeypatch.setattr(run_folder, "new_name", lambda config, runs: next(names))

    assert [open_run(Config(), runs=tmp_path)[0].name for _ in range(2)] == ["one", "two"]


def test_a_disk_that_was_full_while_a_folder_was_made_does_not_block_its_name(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/given.yaml").write_text("{}")

    assert open_run(Config(run="one"), runs=tmp_path)[0].config.exists()


def test_objects_and_functions_that_were_trained_go_on_by_the_same_call(tmp_path: Path) -> None:
    given = {"task": "Net", "data": {"source": "script"}}
    folder, _ = open_run(Config.model_validate({"run": "one", **given}), runs=tmp_path, given=given)

    for said in (folder.how_to_go_on(1), str(folder.gone())):
        assert f"with: the same call of paceline.train or paceline.launch, and folder='{folder.path}' in it" in said


def test_a_finished_run_says_so_and_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, config = open_run(Config(run="one"))
    folder.write_facts(finished=True, exit_code=0, accuracy=0.9741, metrics={"test_accuracy": 0.9741}, seconds=3.0)

    code = run(config, fresh=False, as_json=False)

    printed = capsys.readouterr().out
    assert code == 0
    assert "finished already" in printed
    assert printed.splitlines()[-1] == "test accuracy 0.9741"


def test_the_newest_run_is_found_and_others_by_name_or_path(tmp_path: Path) -> None:
    one, _ = open_run(Config(run="one"), runs=tmp_path)
    open_run(Config(run="two"), runs=tmp_path)

    assert find_run("one", tmp_path).path == one.path
    assert find_run(str(one.path), tmp_path).path == one.path
    with pytest.raises(UsageError, match=r"Newest ones: .*one"):
        find_run("three", tmp_path)


# what people see


def training(version: int = 12) -> StatusReply:
    figures = {"loss": 0.25, "alpha": 0.5, "staleness": 3, "wait_seconds": 1.5, "examples_per_second": 250.0}
    figures |= {"step_seconds": 0.012}
    of_phase = {"phase": "WORKER_PHASE_EXCHANGE", "phase_seconds": 4.2, "silent": 7.0}
    workers = [
        WorkerStatus(worker="worker-0", clock=8, lead=2, member=True, figures=figures, **of_phase),
        WorkerStatus(worker="worker-1", clock=6, phase="WORKER_PHASE_COMPUTE", member=True, figures={"loss": 0.75}),
    ]
    scores = [Score(epoch=1, metrics={"validation_accuracy": 0.9, "test_accuracy": 0.8})]
    counts = {"version": version, "examples": 500, "budget": 1000, "epoch": 1.5, "seconds": 3.0}
    return StatusReply(phase="RUN_PHASE_TRAINING", workers=workers, scores=scores, **counts)


def test_the_headline_has_version_speed_loss_and_accuracy() -> None:
    line = headline(training(), 166.6)

    assert line == (
        "training 50%, elapsed 3.0 s, remaining 3.0 s, epoch 1.5, version 12, 167 examples/s, loss 0.5000, "
        "validation accuracy 0.9000"
    )


def test_before_the_start_it_says_what_is_waited_for() -> None:
    status = StatusReply(
        phase="RUN_PHASE_WAITING", missing=["1 of 4 workers (ready: worker-0)", "the evaluator's data"]
    )

    assert headline(status, 0.0) == "waiting for 1 of 4 workers (ready: worker-0), and the evaluator's data"


def test_the_table_shows_each_worker() -> None:
    screen, text = console()

    screen.print(picture(training(), 166.6, 120))

    row = next(line for line in text.getvalue().splitlines() if "worker-0" in line)
    assert " ".join(row.split()) == "worker-0 8 2 3 0.50 250 12 ms 1.5 s silent 7.0 s"
    assert "50%" in text.getvalue()


def test_plain_lines_come_at_changes_and_every_few_seconds() -> None:
    written: list[str] = []
    time = [0.0]
    lines = PlainLines(written.append, lambda: time[0])

    lines.show(training(1), 1.0)
    lines.show(training(2), 1.0)
    time[0] = EVERY
    lines.show(training(3), 1.0)
    lines.show(StatusReply(phase="RUN_PHASE_FINISHED"), 1.0)

    assert [line.split(",")[0] for line in written] == ["training 50%", "training 50%", "finished"]


def test_speed_is_examples_over_the_last_seconds() -> None:
    speed = Speed()

    rates = [speed.note(StatusReply(seconds=second, examples=100 * second)) for second in (0, 1, 2, 20)]

    assert rates == [0.0, 100.0, 100.0, 100.0]
    assert speed.note(StatusReply(seconds=1, examples=5)) == 0.0  # the chief has restarted


def test_a_status_as_json_has_numbers_not_texts() -> None:
    found = json.loads(json.dumps(plain(training())))

    assert found["version"] == 12
    assert found["reason"] == ""
    assert found["workers"][0]["figures"]["alpha"] == 0.5
    assert found["scores"][0]["metrics"]["test_accuracy"] == 0.8


def test_the_summary_ends_with_the_accuracy_and_says_how_to_load_the_model(tmp_path: Path) -> None:
    outcome = Outcome(0, 0.9741, 2.0, examples=100, version=7, metrics={"test_accuracy": 0.9741})

    folder, config = open_run(Config(), runs=tmp_path)

    lines = summary(config, folder, outcome)

    assert lines[-1] == "test accuracy 0.9741"
    assert f'    path = "{folder.models}/last.safetensors"' in lines
    assert any("load_state_dict(load_file(path))" in line for line in lines)
    assert "50 a second" in lines[0]


def test_the_summary_names_no_model_that_is_not_there(tmp_path: Path) -> None:
    folder, config = open_run(Config(), runs=tmp_path)

    lines = summary(config, folder, Outcome(0, None, 2.0, reason="unscored: no score came in time"))

    assert not any("last.safetensors" in line for line in lines)
    assert any(line.startswith("No model was kept, because the run was not scored.") for line in lines)


def test_the_summary_of_a_regression_ends_with_its_loss_and_says_how_many_examples_were_scored(tmp_path: Path) -> None:
    metrics = {"train_loss": 0.25, "train_mae": 0.5, "test_mae": 0.75, "test_loss": 0.0000321}
    outcome = Outcome(0, None, 2.0, metrics=metrics, measure="min loss", scored={"train": 2000, "test": 89})

    folder, config = open_run(Config(), runs=tmp_path)

    lines = summary(config, folder, outcome)

    assert lines[-1] == "test loss 3.21e-05, mae 0.7500"
    assert lines[-2] == (
        "Scores: train (2,000 examples): loss 0.2500, mae 0.5000; test (89 examples): loss 3.21e-05, mae 0.7500"
    )


def test_a_run_is_shown_by_what_its_task_goes_by() -> None:
    metrics = {"validation_f1": 0.25, "validation_loss": 0.5, "validation_accuracy": 0.9, "mean_validation_f1": 0.75}

    def shown(measure: str) -> str:
        return newest_score(StatusReply(scores=[Score(metrics=metrics, measure=measure)]))

    assert shown("max f1") == "validation f1 0.2500 (global; local models: mean 0.7500)"
    assert shown("min loss") == "validation loss 0.5000"
    assert shown("") == "validation accuracy 0.9000, f1 0.2500"


@pytest.mark.parametrize("options", ["", " --listen --here 1"], ids=["one machine", "several"])
def test_the_summary_of_a_stopped_run_says_how_to_go_on(tmp_path: Path, options: str) -> None:
    folder = RunFolder(tmp_path / "my runs")
    folder.path.mkdir()
    folder.write_facts(options=options.strip())

    lines = summary(Config(), folder, Outcome(130, reason="stopped on request"))

    assert "exit code 130: stopped on request" in lines[0]
    assert lines[1].endswith(f"paceline run '{folder.config}'{options}")


# status


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return begun(tmp_path)


def test_status_shows_the_run_or_one_object_of_json(folder: RunFolder) -> None:
    text = shown(folder, training())

    assert "version 12" in text
    assert "worker-1" in text
    assert json.loads(shown(folder, training(), as_json=True))["version"] == 12


def test_status_of_a_run_whose_chief_is_gone_is_an_error_that_says_how_to_resume(folder: RunFolder) -> None:
    with pytest.raises(ServersGone, match="resume the run with: paceline run"):
        shown(folder, None)


def test_status_says_that_the_run_waits_for_other_machines(folder: RunFolder) -> None:
    line = "no machine is left that lends workers to this run"
    folder.write_facts(waits=line)
    assert line in shown(folder, training())

    with folder.locked():  # by its launcher; its servers do not answer before a script has come
        assert f"is waiting: {line}" in shown(folder, None)

    with pytest.raises(ServersGone, match="resume the run with"):
        shown(folder, None)


def test_status_says_how_a_table_was_read_while_the_run_goes_on_and_afterwards_its_accuracy_too(
    folder: RunFolder,
) -> None:
    line = "a.csv: a feature for each text of 'towns [all]' (3)"
    folder.write_facts(as_read=[line])
    assert line in shown(folder, training())

    folder.write_facts(finished=True, exit_code=0, accuracy=0.97, metrics={"test_accuracy": 0.97}, seconds=3.0)
    text = shown(folder)
    assert line in text
    assert "finished: test accuracy 0.9700 after 3.0 s" in text


def test_watching_goes_on_while_the_chief_is_away_and_ends_with_the_run(folder: RunFolder) -> None:
    with folder.locked():  # by a launcher
        text = watched(folder, training(1), None, None, training(2), StatusReply(phase="RUN_PHASE_FINISHED", version=3))

    assert text.count("The chief does not answer; it is starting, or busy.") == 1
    assert "version 1," in text
    assert "finished, elapsed 0.0 s" in text
    assert "version 3," in text


def test_watching_a_run_elsewhere_goes_on_while_its_chief_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("the-run-secret-word\n")
    screen, text = console()
    chief = Chief(training(1), None, None, training(2), None)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 25.0

    own_time(monkeypatch, status, monotonic=lambda: now[0], sleep=sleep)

    elsewhere = status.Elsewhere(Path("chief:50051"), tmp_path / "token")
    with pytest.raises(ServersGone, match="No server answers at chief:50051"):
        status.watch(elsewhere, screen, as_json=False, connect=lambda *_: chief, every=0.0)

    assert text.getvalue().count("The chief does not answer; it is starting, or busy.") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stop", "one", "--chief", "a:1"], "Got both run 'one' and --chief a:1. Give one of them."),
        (["status", "one", "--token-file", "token"], "--token-file belongs to --chief HOST:PORT"),
        (["pull", "one", "--token-file", "token", "-o", "m"], "--token-file belong to --servers"),
    ],
)
def test_options_of_a_run_elsewhere_are_not_left_out_silently(words: list[str], said: str) -> None:
    found = CliRunner().invoke(app, words)

    assert found.exit_code == 64
    assert said in found.output.replace("\n", " ")


def test_stop_asks_the_chief_until_it_is_ready_for_it_and_says_why_it_refuses(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for refusals in (0, 1):
        chief = Chief(training(), refusals=refusals)
        assert "run one stops" in status.stop_run(folder, connect=lambda *_, chief=chief: chief)
        assert chief.reasons == ["paceline stop"] * (1 + refusals)

    monkeypatch.setattr(status, "STOP_PATIENCE", 0.0)
    with pytest.raises(NotYet, match="The policy is just changing"):
        status.stop_run(folder, connect=lambda *_: Chief(training(), refusals=9))


def test_a_run_elsewhere_is_asked_at_its_chiefs_address(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("the-run-secret-word\n")
    asked = []

    def connect(address: str, credentials: Credentials) -> Any:
        asked.append((address, credentials))
        return Chief(None)

    with pytest.raises(ServersGone, match="No server answers at chief:50051"):
        status.show_status(status.Elsewhere(Path("chief:50051"), tmp_path / "token"), Console(), False, connect)
    assert asked == [("chief:50051", Credentials("the-run-secret-word\n", file=tmp_path / "token"))]


REPEAT = ("run", "digits", "-w", "1", "-s", "1", "--epochs", "1", "--run", "both", "--repeats", "2")


def test_two_runs_with_two_seeds_end_in_one_table_and_are_not_run_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = paceline(*REPEAT, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs" in done.stdout

    again = paceline(*REPEAT, "--json", cwd=tmp_path)
    found = json.loads(again.stdout)
    assert again.stderr.count("finished already") == 2
    assert [run["run"] for run in found["runs"]] == ["both-1", "both-2"]
    first, second = (run["test_accuracy"] for run in found["runs"])
    test = found["summary"]["test_accuracy"]
    assert test["mean"] == pytest.approx((first + second) / 2)
    assert test["variance"] == pytest.approx((first - second) ** 2 / 2)
    assert f"{test['mean']:.4f}" in done.stdout
    assert first != second


def test_a_series_that_fails_ends_with_the_exit_code_of_the_first_failure(tmp_path: Path) -> None:
    task = tmp_path / "broken.py"
    task.write_text("def data(path):\n    raise OSError('no disk')\n\n\ndef model():\n    pass\n")
    done = paceline("run", "./broken.py", "--run", "bad", "--repeats", "3", "--json", cwd=tmp_path)
    assert done.returncode == 65
    assert json.loads(done.stdout) == {"exit_code": 65, "runs": [], "summary": {}}
    assert "no disk" in done.stderr
    assert not (tmp_path / "runs/bad-2").exists()


def test_each_run_has_a_name_and_a_seed_of_its_own() -> None:
    found = series(Config(run="five", seed=7), 5)
    assert [(one.run, one.seed) for one in found] == [(f"five-{n + 1}", 7 + n) for n in range(5)]
    with pytest.raises(ConfigError, match="longer than 63 letters"):
        series(Config(run="x" * 62), 5)


def test_mean_and_variance_are_those_of_the_sample() -> None:
    runs = [{"test_loss": value, "test_accuracy": 0.5} for value in (1.0, 2.0, 3.0, 6.0)]
    # mean 3; squares of the differences 4 + 1 + 0 + 9 = 14, over n - 1 = 3
    assert repeats.summary(runs)["test_loss"] == {"mean": 3.0, "variance": pytest.approx(14 / 3), "runs": 4}
    assert repeats.summary(runs)["test_accuracy"]["variance"] == 0
    assert list(repeats.summary(runs)) == ["test_loss", "test_accuracy"]
    assert repeats.summary([{"train_loss": 0.25}]) == {"train_loss": {"mean": 0.25, "variance": None, "runs": 1}}


def test_every_metric_of_the_task_is_summed_up_the_loss_first() -> None:
    runs = [{"test_mae": 1.0, "test_loss": 2.0, "train_loss": 1.0, "mean_test_loss": 5.0}, {"test_mae": 3.0}]
    found = repeats.summary(runs)
    assert list(found) == ["train_loss", "test_loss", "test_mae"]
    assert found["test_mae"] == {"mean": 2.0, "variance": 2.0, "runs": 2}
