"""What a task of a Slurm job finds out by its variables, without Slurm."""

import stat
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, ServersGone
from paceline.launch.other_machines.agent import make_offer
from paceline.launch.other_machines.slurm import SlurmTask, this_task, told_to_tasks, wait_for_run


def job(folder: Path, **more: str) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "4711",
        "SLURMD_NODENAME": "gnode7",
        "SLURM_PROCID": "3",
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_CPUS_PER_TASK": "8",
        **more,
    }


@pytest.fixture
def task(tmp_path: Path) -> SlurmTask:
    found = this_task(job(tmp_path))
    assert found is not None
    return found


def test_outside_of_a_job_there_is_no_task() -> None:
    assert this_task({"HOME": "/root"}) is None


def test_a_task_lends_one_worker_and_is_called_by_its_node_and_number(task: SlurmTask, tmp_path: Path) -> None:
    assert (task.name, task.workers, task.file) == ("gnode7-3", 1, tmp_path / "paceline-4711.join")
    offer, why = make_offer(None, 0, "auto", "", "", task)
    assert (offer.name, offer.workers, why) == ("gnode7-3", 1, "task of Slurm job 4711")
    assert offer.cpus == 8


@pytest.mark.parametrize(
    ("given", "workers"),
    [({"SLURM_GPUS_ON_NODE": "4"}, 4), ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "2,3"}, 2)],
)
def test_for_each_gpu_that_the_task_sees_there_is_a_worker(tmp_path: Path, given: dict[str, str], workers: int) -> None:
    task = this_task(job(tmp_path, **given))
    assert task.workers == workers


def test_what_the_command_line_says_wins(tmp_path: Path) -> None:
    assert make_offer(3, 0, "auto", "", "mine", this_task(job(tmp_path)))[0].workers == 3


def test_the_head_writes_address_and_key_for_the_jobs_tasks_alone_and_removes_them(
    task: SlurmTask, tmp_path: Path
) -> None:
    with told_to_tasks(job(tmp_path), "10.1.0.1:7077", "some-key"):
        assert stat.S_IMODE(task.file.stat().st_mode) == 0o600
        assert wait_for_run(task, print) == ("10.1.0.1:7077", "some-key")
    assert list(tmp_path.iterdir()) == []


def test_a_requeued_job_has_a_file_of_its_own_and_its_head_removes_that_of_a_killed_head(tmp_path: Path) -> None:
    before, task = this_task(job(tmp_path)), this_task(job(tmp_path, SLURM_RESTART_COUNT="1"))
    assert task is not None
    before.file.write_text("10.1.0.1:7077 old-key")
    other = tmp_path / "paceline-47110.join"
    other.touch()
    with pytest.raises(ServersGone):
        wait_for_run(task, print, lambda seconds: None)
    with told_to_tasks(job(tmp_path, SLURM_RESTART_COUNT="1"), "10.1.0.2:7077", "some-key") as written:
        assert written == task.file != before.file
        assert set(tmp_path.iterdir()) == {task.file, other}
        assert wait_for_run(task, print) == ("10.1.0.2:7077", "some-key")


def test_outside_of_a_job_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with told_to_tasks({}, "10.1.0.1:7077", "some-key") as written:
        assert written is None
        assert list(tmp_path.iterdir()) == []


def test_tasks_wait_for_a_head_that_begins_later(task: SlurmTask) -> None:
    said: list[str] = []

    def sleep(seconds: float) -> None:
        task.file.write_text("10.1.0.1:7077 some-key\n")

    assert wait_for_run(task, said.append, sleep) == ("10.1.0.1:7077", "some-key")
    assert said == [f"waiting for {task.file}, which the run of this job writes when it listens"]


def test_a_head_that_never_comes_is_told(task: SlurmTask) -> None:
    with pytest.raises(ServersGone, match=r"There was no .*paceline-4711.join within 300 s. Start the run first"):
        wait_for_run(task, print, lambda seconds: None)


def test_a_file_that_says_something_else_is_refused(task: SlurmTask) -> None:
    task.file.write_text("one two three")
    with pytest.raises(ConfigError, match="holds 3 words; expected an address and a key"):
        wait_for_run(task, print)
