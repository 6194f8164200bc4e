"""Processes within a budget of cores, and what a Ctrl-C leaves of them."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from paceline.core.settings.config import Config
from paceline.launch.this_machine.processors import own_cores
from paceline_studies.search.folder import SearchFolder
from paceline_studies.search.scheduler import Job, Point, Scheduler


class Scripts(Scheduler):
    """Runs a script in place of a run: the text of its point."""

    started: list[Job]

    def _job(self, point: Point, config: Config) -> Job:
        job = Scheduler._job(self, point, config)
        script = self.folder.path / f"{config.run}.py"
        script.write_text(point.values["script"])
        job.child.arguments, job.child.log = [str(script)], script.with_suffix(".log")
        return job


def scripts(folder: Path, cores: int, texts: Mapping[str, tuple[str, int]]) -> tuple[Scripts, list[Point]]:
    """Each with the cores that it takes, by its name."""
    points = [
        Point(number, {"script": text}, [Config(run=name, workers=size - 1, servers=1)])
        for number, (name, (text, size)) in enumerate(texts.items(), 1)
    ]
    return Scripts(SearchFolder(folder), len(points), Console(), cores, "cpu"), points


def test_no_more_runs_at_a_time_than_cores_allow_but_a_large_one_runs_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"a": 2, "b": 2, "c": 2, "large": 9, "d": 4}
    going, points = scripts(
        tmp_path, 4, {name: (f"raise SystemExit({name == 'c'} + 64)", size) for name, size in sizes.items()}
    )
    ended: list[tuple[str, str | None]] = []
    code = going.run(iter(points), lambda point, error: ended.append((str(point.configs[0].run), error)))

    assert code in (64, 65)
    assert sorted(name for name, _ in ended) == sorted(sizes)
    assert "it ended with exit code 65" in str(dict(ended)["c"])
    told = [line.split(" ")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("point")]
    numbers = [int(number) for number in told]
    running: list[int] = []
    for number in numbers:
        running.remove(number) if number in running else running.append(number)
        assert len(running) <= 2
        assert 4 not in running or running == [4]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes can't be kept to cores here")
def test_a_run_is_kept_to_its_cores(tmp_path: Path) -> None:
    before = own_cores()
    going, points = scripts(tmp_path, 1, {"one": ("import os; print(sorted(os.sched_getaffinity(0)))", 2)})
    going.run(iter(points))

    assert (tmp_path / "one.log").read_text() == f"[{min(before)}]\n"
    assert own_cores() == before


def test_ctrl_c_ends_what_runs_and_starts_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going, points = scripts(tmp_path, 2, {"long": ("import time; time.sleep(100)", 2), "next": ("pass", 2)})
    start = Scheduler._start

    def pressed(self: Scheduler, job: Job, *forker: object) -> None:
        start(self, job, *forker)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Scripts, "_start", pressed)

    assert going.run(iter(points)) == 130
    assert going.is_stopped
    assert not (tmp_path / "next.log").exists()


@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [
        ("0,1,2", "auto", ["0,1,2", "2,0,1", "1,2,0"]),
        ("7", "auto", [None] * 3),
        ("", "auto", [None] * 3),
        ("0,1,2", "cuda:1", [None] * 3),
    ],
)
def test_points_side_by_side_begin_at_another_gpu_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, device: str, seen: list[str | None]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    going = Scheduler(SearchFolder(tmp_path), 3, Console(), 8, device)

    assert [going._gpus(workers=2).get("CUDA_VISIBLE_DEVICES") for _ in range(3)] == seen


def test_runs_with_other_data_have_other_shards(tmp_path: Path) -> None:
    folder, base = SearchFolder(tmp_path / "new"), Config()
    same = Config(run="other", batch_size=7, servers=1)
    others = [Config(seed=1), Config(workers=2), Config(task="xor"), Config(data={"fold": [0, 2]})]

    assert folder.shards(base) == folder.shards(same)
    assert len({folder.shards(config) for config in (base, *others)}) == 5
