"""The launcher, with small scripts in place of servers and workers: exit codes, restarts, signals, nothing left."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.run import summary
from paceline.core.errors import ConfigError, Incomplete, NotYet, PacelineError
from paceline.core.settings.config import Config, DataConfig
from paceline.launch.folder import own_records
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.forks import begin_early
from paceline.launch.forks.forker import Forker
from paceline.launch.forks.run_forkers import forking
from paceline.launch.settings.launch_settings import LaunchSettings
from paceline.launch.status.recoveries import Recovery
from paceline.launch.supervise import children, launcher, processes
from paceline.launch.supervise.children import Child
from paceline.launch.supervise.launcher import STILL, Progress, Stall, run_local
from paceline.launch.supervise.outcome import Outcome
from paceline.launch.this_machine.processors import cores
from paceline.sharder.sharding import make_shards
from paceline.v1.run_service_pb2 import Score, ServerStart, ServerStatus, StatusReply, WorkerStatus
from tests.support.gone import is_gone
from tests.support.nights import some
from tests.support.processes import eventually
from tests.support.tree import ROOT

FAKE = '''
import json, os, signal, sys, time
from pathlib import Path

def option(name):
    return sys.argv[sys.argv.index(name) + 1]

def play(name):
    """Ends as the test says: a code, a negative signal, or "hang"."""
    folder = Path(os.environ["FAKE_STAGE"])
    with (folder / f"{name}.starts").open("a") as starts:
        starts.write(json.dumps({"argv": sys.argv[1:], "pid": os.getpid(), "env": dict(os.environ)}) + "\\n")
    number = len((folder / f"{name}.starts").read_text().splitlines())
    roles = json.loads((folder / "plot.json").read_text())
    serves = name.startswith("server") or "serve" in sys.argv
    acts = roles.get(name, ["hang"] if serves else [0])
    act = acts[min(number, len(acts)) - 1]
    print(f"{name}: start {number}, now {act}", flush=True)
    if serves and act == "hang":
        port = 7000 + int(name.partition("-")[2] or 100)
        Path(option("--report")).parent.mkdir(exist_ok=True)
        Path(option("--report")).write_text(json.dumps({"port": port, "pid": os.getpid()}))
    if act == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if act in ("hang", "deaf"):
        (folder / f"{name}.hangs").touch()
        while True:
            time.sleep(60)
    if str(act).startswith("await "):
        other, end = folder / f"{act.split()[1]}.starts", time.monotonic() + 20
        while not other.exists() and time.monotonic() < end:
            time.sleep(0.02)
        act = 0 if other.exists() else 1
    if act == "crash":
        raise NameError("name 'optimiser' is not defined")
    if act < 0:
        os.kill(os.getpid(), -act)
    sys.exit(act)
'''
SCRIPTS = {
    "fakes.py": FAKE,
    "paceline/__init__.py": f"__path__.append({str(ROOT / 'paceline')!r})\n",
    "paceline/server.py": "import fakes\nfakes.play('server-' + fakes.option('--index'))\n",
    "paceline/sharder.py": "import fakes\nfakes.play('sharder')\n",
    "paceline/worker/__init__.py": "",
    "paceline/worker/__main__.py": "import fakes\nfakes.play('worker-' + fakes.option('--rank'))\n",
    "paceline/worker/check.py": "import fakes\nfakes.play('check')\n",
    "paceline/worker/evaluator.py": "import fakes\nfakes.play('evaluator')\n",
}


class FakeChief:
    """Says `training` until the test's condition holds, then `finished` with a score."""

    def __init__(self, done: Callable[[], bool], version: int = 3, servers: Sequence[ServerStatus] = ()) -> None:
        self.done = done
        self.version = version
        self.servers = servers

    def status(self) -> StatusReply:
        figures = {"loss": 0.5, "wait_seconds": 2.0}
        workers = [WorkerStatus(worker="worker-0", clock=3, phase="WORKER_PHASE_COMPUTE", figures=figures)]
        seen: dict[str, Any] = {"workers": workers, "servers": self.servers}
        if not self.done():
            return StatusReply(phase="RUN_PHASE_TRAINING", version=self.version, **seen)
        score = Score(epoch=1, seconds=4.0, versions=[3], metrics={"test_accuracy": 0.97}, final=True)
        return StatusReply(phase="RUN_PHASE_FINISHED", version=3, examples=300, seconds=5.0, scores=[score], **seen)

    def stop(self, reason: str) -> bool:
        return True

    def close(self) -> None:
        pass


class Stage:
    """A run folder, and what each of the scripts was started with."""

    def __init__(self, folder: Path, forkers: Mapping[str, Forker], **settings: Any) -> None:
        self.folder = folder
        self._forkers = forkers
        self.run, self.config = open_run(Config(run="play", workers=2, servers=2, **settings), runs=folder / "runs")
        self.said: list[str] = []
        self.servers: Sequence[ServerStatus] = ()

    def plot(self, **acts: list[Any]) -> None:
        """For each process the exit codes of its starts; processes left out do as they should."""
        roles = {name.replace("_", "-"): each for name, each in acts.items()}
        (self.folder / "plot.json").write_text(json.dumps(roles))

    def starts(self, name: str) -> list[dict[str, Any]]:
        file = self.folder / f"{name}.starts"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be on its way

    def play(self, done: Callable[[], bool] | None = None, version: int = 3, keep: bool = True) -> Outcome:
        workers = (self.folder / "worker-0.starts", self.folder / "worker-1.starts")
        all_started = lambda: all(file.exists() for file in workers)  # noqa: E731
        return run_local(
            self.config,
            self.run.path,
            say=self.said.append,
            connect=lambda address, credentials: FakeChief(done or all_started, version, self.servers),
            forkers=self._forkers,
            keep=keep,
        )

    def pids(self) -> list[int]:
        return [start["pid"] for file in self.folder.glob("*.starts") for start in self.starts(file.stem)]

    def comes_back(self, name: str, starts: int = 2) -> Callable[[], bool]:
        """A condition: kills this process once worker-0 hangs, and holds, with worker-0 ended, after that many starts of it."""
        killed: list[int] = []

        def is_back() -> bool:
            if not killed and (self.folder / "worker-0.hangs").exists():
                killed.append(self.starts(name)[0]["pid"])
                os.kill(killed[0], signal.SIGKILL)
            if len(self.starts(name)) < starts:
                return False
            for worker in self.starts("worker-0"):
                os.kill(worker["pid"], signal.SIGTERM)
            return True

        return is_back


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that is first on the path of all that is started."""
    folder = tmp_path_factory.mktemp("scripts")
    for name, text in SCRIPTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def forkers(scripts: Path) -> Iterator[Mapping[str, Forker]]:
    """What the processes of all runs are forked from; it has loaded the scripts' module, and nothing heavy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(scripts))
        for modules in ("SHARDER", "SERVERS", "WORKERS"):
            patch.setattr(begin_early, modules, ("fakes",))
        with forking(Config()) as found:
            yield found


@pytest.fixture
def stage(tmp_path: Path, scripts: Path, forkers: Mapping[str, Forker], monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("PYTHONPATH", str(scripts))
    monkeypatch.setenv("FAKE_STAGE", str(tmp_path))
    monkeypatch.setattr(launcher, "POLL", 0.02)
    made = Stage(tmp_path, forkers, restarts=2)
    made.plot()
    return made


def test_how_a_table_was_read_is_said_and_kept(stage: Stage) -> None:
    task = stage.folder / "own.py"
    task.write_text(
        "from paceline.extend import read_table\n\n\ndef data(path):\n    return read_table(path, 'y')\n\n\n"
        "def model(): ...\n"
    )
    rows = "".join(f"{number};1,5;{'ab'[number % 2]}\n" for number in range(40))
    (stage.folder / "a.csv").write_text(f"x;z;y\n;1,5;a\n{rows}")
    data = DataConfig(path=str(stage.folder / "a.csv"))
    make_shards(stage.config.model_copy(update={"task": str(task), "data": data}), stage.run.shards)

    stage.play()

    lines = [
        "a.csv: cells separated by semicolons, fractions with commas, UTF-8; 2 columns besides the label 'y' (2 classes) make 2"
        " features",
        "a.csv: empty cells become the mean of their column: 1 of 'x'",
    ]
    assert [text for text in stage.said if text in lines] == lines
    assert stage.run.facts()["as_read"] == lines


def test_each_stage_is_a_line_with_the_time_since_the_launch(stage: Stage) -> None:
    stage.play()

    found = [text.split(" s  ") for text in stage.said if " s  " in text]
    stages = ["writing shards", "starting 2 servers", "checking the task", "starting 2 workers"]
    assert [what for _, what in found] == stages
    assert [float(seconds) for seconds, _ in found] == sorted(float(seconds) for seconds, _ in found)


def gone(pids: list[int]) -> bool:
    """Whether none of them runs; waits for those that are just ending."""
    return eventually(lambda: all(is_gone(pid) for pid in pids), "the end of all processes")


def test_a_run_that_finishes_gives_its_accuracy_and_figures(stage: Stage) -> None:
    outcome = stage.play()

    assert (outcome.exit_code, outcome.accuracy, outcome.seconds) == (0, 0.97, 5.0)
    assert outcome.figures["worker-0"]["wait_seconds"] == 2.0
    facts = stage.run.facts()
    assert facts["finished"]
    assert facts["accuracy"] == 0.97
    assert gone(stage.pids())


def test_what_servers_came_back_from_is_said_and_kept(stage: Stage) -> None:
    back = ServerStatus(server=1, term=2, start=ServerStart(is_back=True, version=7, damaged=1, term=2))
    stage.servers = [ServerStatus(server=0, term=1, start=ServerStart()), back]

    outcome = stage.play()

    line = "server-1 went on from its snapshot of version 7 (term 2); 1 damaged snapshot was passed over"
    assert stage.said.count(line) == 1
    assert (outcome.recovery.servers, outcome.recovery.damaged) == (1, 1)
    assert stage.run.facts()["recovery"] == asdict(Recovery(servers=1, damaged=1))
    recovered = "Recovered: 1 start of a server from its snapshot, 1 damaged snapshot passed over"
    assert recovered in summary(stage.config, stage.run, outcome)


def test_children_get_the_options_and_the_environment_they_need(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_EPOCHS", "3")

    stage.play()

    second, worker, evaluator = (stage.starts(name)[0] for name in ("server-1", "worker-1", "evaluator"))
    assert second["argv"][second["argv"].index("--chief") + 1] == "127.0.0.1:7000"
    assert worker["argv"][worker["argv"].index("--servers") + 1] == "127.0.0.1:7000,127.0.0.1:7001"
    assert "--models" in evaluator["argv"]
    assert worker["env"]["MALLOC_ARENA_MAX"] == "1"
    assert "PACELINE_EPOCHS" not in worker["env"]  # it is in the config file already, and must not win over a flag


def test_a_dead_worker_is_named_with_its_last_lines_and_started_again(stage: Stage) -> None:
    stage.plot(worker_1=[3, 0])

    outcome = stage.play(lambda: len(stage.starts("worker-1")) == 2)

    assert outcome.exit_code == 0
    assert any("worker-1 ended with exit code 3" in text and "start 1, now 3" in text for text in stage.said)


def test_a_restarted_server_keeps_its_port(stage: Stage) -> None:
    stage.plot(worker_0=["hang"])

    outcome = stage.play(stage.comes_back("server-1"))

    first, second = stage.starts("server-1")
    assert first["argv"][first["argv"].index("--port") + 1] == "0"
    assert second["argv"][second["argv"].index("--port") + 1] == "7001"
    assert outcome.exit_code == 0
    assert any("server-1 was killed (SIGKILL)" in text and "MiB" in text and "limit" in text for text in stage.said)


def test_a_server_that_the_disk_ends_is_started_again_until_the_disk_takes_what_it_writes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "DISK_PAUSE", 0.05)
    stage.plot(worker_0=["hang"], server_1=["hang", 73, 73, 73, 73, "hang"])

    outcome = stage.play(stage.comes_back("server-1", starts=6))

    assert outcome.exit_code == 0
    told = [text for text in stage.said if "server-1 ended with exit code 73" in text]
    assert len(told) == 1
    assert "until the disk takes what it writes" in told[0]


def test_a_run_goes_on_where_its_own_records_can_not_be_written(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(own_records, "append", full)
    facts, written = RunFolder.write_facts, []

    def once(self: RunFolder, **more: Any) -> None:
        written.append(more)
        if len(written) > 1:
            full(self.path, b"")
        facts(self, **more)

    monkeypatch.setattr(RunFolder, "write_facts", once)

    outcome = stage.play()

    assert (outcome.exit_code, outcome.accuracy) == (0, 0.97)
    assert sum("can't write" in text for text in stage.said) == 1
    assert stage.run.facts()["exit_code"] is None
    assert gone(stage.pids())


@pytest.mark.parametrize(
    ("codes", "error", "reason"),
    [
        ({"worker_1": [3]}, Incomplete, "worker-1 could not go on"),
        (
            {"worker_0": ["hang"], "worker_1": [1]},
            ConfigError,
            "worker-1 ended with exit code 1, and has no restarts left",
        ),
    ],
    ids=["the others go on", "the user's code ends the run"],
)
def test_a_worker_that_keeps_dying_is_given_up(
    stage: Stage, codes: dict[str, list[Any]], error: type[PacelineError], reason: str
) -> None:
    stage.plot(**codes)

    outcome = stage.play(lambda: error is Incomplete and any("no restarts left" in text for text in stage.said))

    assert (outcome.exit_code, outcome.is_finished) == (error.exit_code, error is Incomplete)
    assert reason in outcome.reason
    kinds = [each["kind"] for each in stage.run.facts()["warnings"]]
    assert kinds == (["gave_up worker-1"] if error is Incomplete else [])
    assert len(stage.starts("worker-1")) == 3


def test_a_final_score_is_not_waited_for_where_nobody_is_left_to_take_it(stage: Stage) -> None:
    class Scoring(FakeChief):
        def status(self) -> StatusReply:
            return StatusReply(phase="RUN_PHASE_SCORING", version=3)

    stage.plot(worker_0=[0], worker_1=[0], evaluator=[0])

    outcome = run_local(stage.config, stage.run.path, say=stage.said.append, connect=lambda *_: Scoring(lambda: False))

    assert outcome.exit_code == PacelineError.exit_code
    assert outcome.reason == "nobody is left to take the final model: the evaluator has ended"


def test_the_chief_hears_at_once_of_a_worker_that_is_not_started_again(stage: Stage) -> None:
    dismissed = list[tuple[str, int]]()

    class Waits(FakeChief):
        def status(self) -> StatusReply:
            found = super().status()
            found.workers.add(worker="worker-1", incarnation=3, member=not dismissed, silent=60.0)
            return found

        def dismiss(self, worker: str, incarnation: int) -> None:
            dismissed.append((worker, incarnation))

    stage.plot(worker_1=[3])

    run_local(stage.config, stage.run.path, say=stage.said.append, connect=lambda *_: Waits(lambda: bool(dismissed)))

    assert dismissed == [("worker-1", 3)]


@pytest.mark.parametrize(
    ("first", "second", "codes"),
    [([3], [4, -11], (3, 70)), ([74], [74], (PacelineError.exit_code,))],
    ids=["crashes", "a script can't choose an exit code that means a finished run"],
)
def test_without_any_worker_left_the_run_ends_with_an_error(
    stage: Stage, first: list[int], second: list[int], codes: tuple[int, ...]
) -> None:
    stage.plot(worker_0=first, worker_1=second)

    outcome = stage.play(lambda: False)

    assert outcome.exit_code in codes
    assert not outcome.is_finished
    assert (
        "no restarts left: it was started again 2 times (`restarts`), and training got hardly further" in outcome.reason
    )
    assert "the last worker" in outcome.reason
    assert gone(stage.pids())


def test_a_run_that_waits_for_lost_workers_ends_where_one_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Stage
) -> None:
    stage.run, stage.config = open_run(
        Config(run="waits", workers=2, servers=2, restarts=1, on_lost_worker="wait"), runs=tmp_path
    )
    stage.plot(worker_0=["hang"], worker_1=[3])

    outcome = stage.play(lambda: False)

    assert outcome.exit_code == 3
    assert "worker-1" in outcome.reason
    assert "no restarts left" in outcome.reason
    assert "the others would wait for it (on_lost_worker=wait)" in outcome.reason
    assert gone(stage.pids())


def test_a_worker_that_ends_with_0_before_the_start_ends_the_run(stage: Stage) -> None:
    class Waiting(FakeChief):
        def status(self) -> StatusReply:
            return StatusReply(phase="RUN_PHASE_WAITING", missing=["1 of 2 workers"])

    stage.plot(worker_0=["hang"], worker_1=[0])

    outcome = run_local(stage.config, stage.run.path, say=stage.said.append, connect=lambda *_: Waiting(lambda: False))

    assert outcome.exit_code == ConfigError.exit_code
    assert outcome.reason.startswith("worker-1 ended with exit code 0 before it had trained, and the others would wait")
    assert "worker-1: start 1, now 0" in outcome.reason
    assert gone(stage.pids())


def test_a_worker_that_ends_with_0_in_mid_training_is_started_again(stage: Stage) -> None:
    class Silent(FakeChief):
        def status(self) -> StatusReply:
            member = WorkerStatus(worker="worker-1", member=True, silent=60.0)
            now = StatusReply(phase="RUN_PHASE_TRAINING", version=3, workers=[member])
            return super().status() if self.done() else now

    stage.plot(worker_0=[0], worker_1=[0, 0])
    chief = Silent(lambda: len(stage.starts("worker-1")) == 2)

    run_local(stage.config, stage.run.path, say=stage.said.append, connect=lambda *_: chief)

    assert any(text.startswith("worker-1 ended with exit code 0; starting it again") for text in stage.said)


@pytest.mark.parametrize(("code", "starts"), [(3, 3), (0, 1)], ids=["without restarts", "by its own exit"])
def test_nobody_waits_at_the_end_for_a_worker_that_is_gone(stage: Stage, code: int, starts: int) -> None:
    class Deserted(FakeChief):
        """Every worker but one has finished."""

        def __init__(self) -> None:
            self.reasons: list[str] = []
            super().__init__(lambda: len(self.reasons) == 2)

        def status(self) -> StatusReply:
            waits = StatusReply(phase="RUN_PHASE_TRAINING", version=3, unfinished=["worker-1"])
            return super().status() if self.done() else waits

        def stop(self, reason: str) -> bool:
            self.reasons.append(reason)
            if len(self.reasons) == 1:
                raise NotYet("The policy is just changing.")
            return True

    stage.plot(worker_0=[0], worker_1=[code])
    chief = Deserted()

    outcome = run_local(stage.config, stage.run.path, say=stage.said.append, connect=lambda *_: chief)

    assert outcome.exit_code == Incomplete.exit_code
    assert "worker-1 could not go on" in outcome.reason
    assert chief.reasons == ["every worker but worker-1 has finished its epochs"] * 2
    assert len(stage.starts("worker-1")) == starts


@pytest.mark.parametrize("code", [64, 65, 78])
def test_a_mistake_in_the_settings_or_data_is_not_tried_again(stage: Stage, code: int) -> None:
    stage.plot(worker_0=[code], worker_1=["hang"])

    outcome = stage.play(lambda: False)

    assert outcome.exit_code == code
    assert len(stage.starts("worker-0")) == 1
    assert f"start 1, now {code}" in outcome.reason
    assert gone(stage.pids())


@pytest.mark.parametrize("code", [78, 71])
@pytest.mark.parametrize("role", ["sharder", "check"])
def test_a_mistake_that_is_found_while_servers_start_leaves_no_folder_no_process_and_no_worker(
    stage: Stage, role: str, code: int
) -> None:
    stage.plot(**{role: [code]})

    outcome = stage.play(keep=False)

    assert (outcome.exit_code, outcome.refused, outcome.error().exit_code) == (code, True, code)
    assert not stage.run.path.exists()
    assert stage.starts("worker-0") == stage.starts("evaluator") == []
    assert gone(stage.pids())


def test_servers_start_while_shards_are_written(stage: Stage) -> None:
    stage.plot(sharder=["await server-1"])

    outcome = stage.play()

    assert outcome.exit_code == 0


def test_a_folder_of_an_earlier_start_is_kept(stage: Stage) -> None:
    stage.run.write_facts(exit_code=143)
    stage.plot(check=[78])

    outcome = stage.play(keep=False)

    assert (outcome.exit_code, outcome.refused) == (78, True)
    assert stage.run.path.exists()


def test_a_folder_with_snapshots_is_kept_although_its_facts_are_lost(stage: Stage) -> None:
    stage.run.server(0).mkdir()
    (stage.run.server(0) / "snapshot-3.json").write_text("{}")
    (stage.run.path / "run.json").write_text("")
    stage.plot(check=[78])

    outcome = stage.play(keep=False)

    assert outcome.refused
    assert stage.run.path.exists()


def test_what_the_launcher_itself_can_not_do_ends_the_run_as_other_mistakes_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise ConfigError("ports 7100-7104: all are taken")

    monkeypatch.setattr(launcher.Starting, "servers", none)

    outcome = stage.play(keep=False)

    assert (outcome.exit_code, outcome.refused, outcome.reason) == (78, True, "ports 7100-7104: all are taken")
    assert not stage.run.path.exists()


def test_workers_of_this_machine_share_its_cores_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    made = [LaunchSettings(Config(workers=64), folder, "cpu", tmp_path, workers_here=here) for here in (1, None, 0)]

    assert [each.threads for each in made] == [cores(), max(1, cores() // 64), cores()]


def test_workers_that_had_left_come_back_where_the_run_waits_for_them_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.plot(worker_0=[0, "hang"])
    monkeypatch.setattr(launcher, "FAREWELL", 0.1)

    class Extended(FakeChief):
        """Stops, then has more epochs."""

        def status(self) -> StatusReply:
            is_back = len(stage.starts("worker-0")) == 2
            return super().status() if is_back else StatusReply(phase="RUN_PHASE_WAITING", version=3)

    outcome = run_local(
        stage.config,
        stage.run.path,
        say=stage.said.append,
        connect=lambda *_: Extended(lambda: len(stage.starts("worker-0")) == 2),
    )

    assert outcome.exit_code == 0
    assert len(stage.starts("worker-0")) == 2
    assert len(stage.starts("worker-1")) >= 1


def test_the_command_that_goes_on_with_a_run_has_its_device_and_keys(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_TLS", str(stage.folder / "my keys"))
    monkeypatch.setattr(launcher, "check_keys", lambda keys, config: None)
    monkeypatch.setattr(launcher.Starting, "servers", lambda *_: (_ for _ in ()).throw(launcher.Ended(130, "stopped")))
    run_local(stage.config, stage.run.path, say=stage.said.append, device="cpu")

    assert stage.run.again == f"paceline run {stage.run.config} --device cpu --tls '{stage.folder}/my keys'"


def test_the_same_crash_of_two_workers_before_the_first_push_ends_the_run(stage: Stage) -> None:
    stage.plot(worker_0=["crash"], worker_1=["crash"])

    outcome = stage.play(lambda: False, version=0, keep=False)

    assert (outcome.exit_code, outcome.refused) == (78, True)
    assert "before its first push" in outcome.reason
    assert "NameError: name 'optimiser' is not defined" in outcome.reason
    assert sum(text.count("Traceback") for text in stage.said) == 1
    assert gone(stage.pids())


def test_the_same_crash_of_one_worker_twice_ends_the_run(stage: Stage) -> None:
    stage.plot(worker_0=["hang"], worker_1=["crash"])

    outcome = stage.play(lambda: False, version=0)

    assert outcome.exit_code == 78
    assert "worker-1 ended before its first push, again" in outcome.reason
    assert len(stage.starts("worker-1")) == 2


def test_a_crash_after_the_first_push_is_tried_again(stage: Stage) -> None:
    stage.plot(worker_0=["crash", 0], worker_1=["crash", 0])

    outcome = stage.play(lambda: len(stage.starts("worker-0")) == len(stage.starts("worker-1")) == 2)

    assert outcome.exit_code == 0


def test_memory_that_ran_out_is_called_that(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    child = children.Child("worker-0", "worker", ["-c", "pass"], stage.folder / "log", os.environ)
    kills = iter([4, 5])
    monkeypatch.setattr(children, "kernel_kills", lambda: next(kills))
    child.start()
    (stage.folder / "log").write_text("terminate called after throwing an instance of 'std::bad_alloc'\n")

    said = []
    for child.code in (71, -signal.SIGABRT, -signal.SIGKILL):
        said.append(child.how_it_ended())

    assert all("MiB" in text for text in said)
    assert said[0].startswith("ran out of memory (exit code 71)")
    assert said[1].startswith("ran out of memory (SIGABRT)")
    assert said[2].startswith("was killed by the kernel (SIGKILL), because memory ran out")


def test_the_sentence_of_a_child_is_what_it_printed_last(stage: Stage) -> None:
    log = stage.folder / "log"
    child = children.Child("check", "check", ["-c", "pass"], log, {})
    log.write_text("an event\ncheck: ConfigError: labels go from 1 to 4.\n  Two lines.\n")

    assert child.sentence() == "labels go from 1 to 4.\n  Two lines."
    log.write_text("worker-0: 3 steps\n")
    assert child.sentence() is None


@pytest.mark.parametrize(("name", "code", "starts"), [("server-1", 69, 3), ("sharder", 73, 1)])
def test_a_server_that_keeps_dying_or_a_sharder_that_fails_ends_the_run_before_workers_start(
    stage: Stage, name: str, code: int, starts: int
) -> None:
    stage.plot(**{name: [code]})

    outcome = stage.play()

    assert (outcome.exit_code, len(stage.starts(name))) == (code, starts)
    assert f"{name} ended with exit code {code}" in outcome.reason
    assert stage.starts("worker-0") == []
    assert gone(stage.pids())


def test_shards_from_a_server_go_to_a_folder_of_each_process(stage: Stage) -> None:
    stage.config = stage.config.model_copy(update={"data": DataConfig(source="server")})

    outcome = stage.play()

    worker, evaluator = stage.starts("worker-1")[0]["argv"], stage.starts("evaluator")[0]["argv"]
    sharder = stage.starts("sharder")[0]["argv"]
    assert outcome.exit_code == 0
    assert (sharder[0], sharder[sharder.index("--out") + 1]) == ("serve", str(stage.run.shards))
    assert sharder[sharder.index("--token-file") + 1] == str(stage.run.token_of("sharder"))
    assert worker[worker.index("--token-file") + 1] == str(stage.run.token_of("worker-1"))
    for argv, name in ((worker, "worker-1"), (evaluator, "evaluator")):
        assert argv[argv.index("--shard-server") + 1] == "127.0.0.1:7100"
        assert argv[argv.index("--shards") + 1] == str(stage.run.copies(name))
    assert not stage.run.copies().exists()
    assert gone(stage.pids())


def test_a_shard_server_that_dies_comes_back_on_its_port(stage: Stage) -> None:
    stage.config = stage.config.model_copy(update={"data": DataConfig(source="server")})
    stage.plot(worker_0=["hang"])

    outcome = stage.play(stage.comes_back("sharder"))

    ports = [start["argv"][start["argv"].index("--port") + 1] for start in stage.starts("sharder")]
    assert (outcome.exit_code, ports) == (0, ["0", "7100"])


def test_a_server_that_never_listens_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.plot(server_0=["deaf"])
    stage.config = stage.config.model_copy(update={"start_timeout": 0.3})
    monkeypatch.setattr(children, "ALL_GONE", 0.2)
    monkeypatch.setattr(children, "SERVERS_GONE", 0.4)

    outcome = stage.play()

    assert outcome.exit_code == 69
    assert "server-0 did not listen" in outcome.reason
    assert gone(stage.pids())


def test_when_all_ended_but_the_run_never_finishes_it_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.config = stage.config.model_copy(update={"score_timeout": 0.0})
    monkeypatch.setattr(launcher, "FAREWELL", 0.1)

    outcome = stage.play(lambda: False)

    assert outcome.exit_code == 70
    assert "never finished" in outcome.reason


def test_a_second_launcher_is_refused(stage: Stage) -> None:
    with stage.run.locked(), pytest.raises(ConfigError, match="going on already"):
        stage.play()


LAUNCH = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.launch.supervise.test_launcher import FakeChief
from paceline.launch.forks import begin_early
from paceline.launch.supervise import children
from paceline.launch.supervise import launcher
from paceline.launch.folder.run_folder import RunFolder
from paceline.settings.load_settings import load
children.ALL_GONE = {patience}
launcher.POLL = 0.02
begin_early.SHARDER = begin_early.SERVERS = begin_early.WORKERS = ("fakes",)
stage = Path({stage!r})
folder = RunFolder(stage / "runs/play")
class Waiting(FakeChief):
    def status(self):
        if all((stage / (name + ".hangs")).exists() for name in ("worker-0", "worker-1", "evaluator")):
            print("going", flush=True)
        return super().status()
outcome = launcher.run_local(load(folder.config), folder.path, lambda text: None, connect=lambda *_: Waiting(lambda: False))
sys.exit(outcome.exit_code)
"""


def going(stage: Stage, patience: float = 10.0) -> subprocess.Popen[str]:
    """A launcher in a separate process, whose children all run."""
    script = LAUNCH.format(tests=str(ROOT), stage=str(stage.folder), patience=patience)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "going\n"
    return process


SIGNALS: list[tuple[str, int, int, dict[str, float]]] = [
    ("hang", signal.SIGINT, 130, {}),
    ("hang", signal.SIGTERM, 143, {}),
    ("deaf", signal.SIGINT, 130, {"patience": 0.3}),
    ("deaf", signal.SIGKILL, -signal.SIGKILL, {}),
]


@pytest.mark.parametrize(("child", "number", "code", "patience"), some(SIGNALS, SIGNALS[1:]))
def test_a_signal_ends_the_run_and_leaves_no_process(
    stage: Stage, child: str, number: int, code: int, patience: dict[str, float]
) -> None:
    stage.plot(worker_0=[child], worker_1=["hang"], evaluator=["hang"])
    process = going(stage, **patience)

    process.send_signal(number)
    process.communicate(timeout=30)

    assert process.returncode == code
    assert gone(stage.pids())
    if child == "hang":
        assert RunFolder(stage.run.path).facts()["exit_code"] == code


def test_each_change_is_one_line_of_json_with_numbers(stage: Stage) -> None:
    stage.play()

    lines = [json.loads(line) for line in stage.run.metrics.read_text().splitlines()]
    assert lines[-1]["phase"] == "finished"
    assert lines[-1]["version"] == 3
    assert lines[-1]["scores"][0]["metrics"] == {"test_accuracy": 0.97}
    assert lines[-1]["workers"][0]["figures"]["loss"] == 0.5


def test_tensorboard_can_read_the_curves(stage: Stage) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    stage.play()

    events = accumulator.EventAccumulator(str(stage.run.path)).Reload()
    assert events.Scalars("test/accuracy")[0].value == pytest.approx(0.97)
    assert events.Scalars("run/loss")[0].step == 3


def test_a_stalled_run_says_where_each_worker_is() -> None:
    stall = Stall(now=0.0)
    worker = WorkerStatus(worker="worker-1", clock=7, phase="WORKER_PHASE_EXCHANGE", phase_seconds=61, silent=3)
    status = StatusReply(phase="RUN_PHASE_TRAINING", version=5, workers=[worker])

    said = [stall.check(status, now) for now in (0.0, STILL - 1, STILL, STILL + 1, 2 * STILL)]

    assert [text is not None for text in said] == [False, False, True, False, True]
    assert "worker-1 in exchange for 61 s at clock 7, silent for 3 s" in str(said[2])


def test_a_run_that_moves_or_waits_has_not_stalled() -> None:
    stall = Stall(now=0.0)

    moving = [stall.check(StatusReply(phase="RUN_PHASE_TRAINING", version=i), i * STILL) for i in range(5)]
    waiting = [stall.check(StatusReply(phase="RUN_PHASE_WAITING"), i * STILL) for i in range(5, 9)]

    assert not any(moving + waiting)


def test_a_chief_that_does_not_answer_is_told() -> None:
    stall = Stall(now=0.0)

    assert stall.check(None, 1.0) is None
    assert "server-0 has not answered for 60 s" in str(stall.check(None, STILL))


def child(name: str, restarts: int = 3) -> Child:
    return Child(name, name.split("-")[0], [], Path("log"), {}, restarts)


def deaths(one: Child, progress: Progress, reached: list[StatusReply]) -> int:
    """How often it is started again where each of its processes dies after this status."""
    for starts, status in enumerate(reached):
        progress.note(status)
        one.gets_on(progress.of(one))
        if not one.restarts_left:
            return starts
        one.restarts_left -= 1
        one.got_to = progress.of(one)
    return len(reached)


def at(examples: int, clock: int = 0) -> StatusReply:
    return StatusReply(examples=examples, workers=[WorkerStatus(worker="worker-1", clock=clock)])


@pytest.mark.parametrize(
    ("name", "reached", "starts"),
    [
        ("server-0", [at(100 * n) for n in range(1, 20)], 19),
        ("server-0", [at(100)] * 9, 3),
        ("server-0", [at(100), *[at(40), at(90)] * 5], 3),
        ("worker-1", [at(100 * n, clock=5) for n in range(1, 20)], 3),
        ("worker-1", [at(100, clock=n) for n in range(1, 20)], 19),
    ],
    ids=["training goes on", "no progress", "counted before the chief's death", "others go on", "its own clock"],
)
def test_what_dies_without_any_progress_is_started_three_times_and_otherwise_always(
    name: str, reached: list[StatusReply], starts: int
) -> None:
    assert deaths(child(name), Progress(), reached) == starts


def test_a_script_that_raises_at_each_step_does_not_get_on_by_that_step() -> None:
    one = child("worker-1")
    one.got_to, one.restarts_left = 5, 1

    one.gets_on(6, fewest=10)
    assert one.restarts_left == 1
    one.gets_on(15, fewest=10)
    assert one.restarts_left == 3


@pytest.mark.parametrize("name", ["server-1", "worker-1"])
def test_what_is_gone_for_good_or_must_not_be_started_again_stays_so(name: str) -> None:
    lost, never = child(name), child(name, restarts=0)
    lost.never_again()

    assert deaths(lost, Progress(), [at(100, clock=4)]) == 0
    assert deaths(never, Progress(), [at(100, clock=4)]) == 0
