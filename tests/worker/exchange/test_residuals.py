"""What a worker owes outlives it: whenever it is killed, nothing is sent twice and nothing is lost."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.codecs.error_feedback import Owed
from paceline.core.errors import Behind, TryAgain
from paceline.core.settings.config import PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import Vector
from paceline.worker.exchange import residuals as residuals_module
from paceline.worker.exchange.residuals import open_owed, recut_owed
from tests.core.codecs.test_dgc import topk
from tests.core.codecs.test_error_feedback import owing, through
from tests.support.processes import Cluster
from tests.worker.exchange import test_server_link
from tests.worker.exchange.test_server_link import answer, standing

LENGTH = 12
GRADIENTS = st.lists(st.floats(-8, 8, width=16), min_size=LENGTH, max_size=LENGTH)
FATES = st.sampled_from(["used", "dropped", "empty"])
DEATHS = st.sampled_from(["no", "no", "encoding", "sending", "counted", "taking back", "later"])


class Life:
    """One slice as its server and its worker know it, over all processes of the worker; `given` and `used` are of the pushes
    that the server has counted."""

    def __init__(self) -> None:
        self.owed = owing(LENGTH)
        self.clock = 0
        self.given = np.zeros(LENGTH)
        self.used = np.zeros(LENGTH)
        self.lost = np.zeros(LENGTH)
        """Sent by a push that was dropped, which the worker did not live to hear."""
        self.random = np.random.default_rng(0)
        self.owed.go_on_after(0)

    def push(self, gradient: Vector, fate: str, death: str) -> None:
        """One clock; a worker that dies on the way begins again."""
        self._push(gradient, fate, death)
        if death != "no":
            self.begin_anew(torn=death in ("encoding", "taking back"))

    def _push(self, gradient: Vector, fate: str, death: str) -> None:
        """As far as it comes."""
        out = np.zeros(LENGTH, np.float32)
        if fate != "empty":
            out, _ = through(self.owed.feedback(topk(0.2)), gradient)
        if death == "encoding":
            return
        if fate == "empty":
            self.owed.skip(self.clock + 1)
        else:
            self.owed.sent(self.clock + 1)
        if death == "sending":
            return
        self.clock += 1
        self.given += 0 if fate == "empty" else gradient
        if fate == "dropped" and death in ("counted", "taking back"):
            self.lost += out
        elif fate == "dropped":
            self.owed.take_back(gradient)
        else:
            self.used += out

    def begin_anew(self, torn: bool = False) -> None:
        """Another process finds what the last one has left; `torn`: which was writing."""
        states, stamps = self.owed._states, self.owed._stamps
        if torn:
            other = 1 - self.owed._now
            stamps[other, 1], states[other] = 0, self.random.standard_normal(states[other].shape)
        self.owed = Owed(states.copy(), stamps.copy())
        assert self.owed.go_on_after(self.clock)


@given(st.lists(st.tuples(GRADIENTS, FATES, DEATHS), max_size=25))
def test_all_that_was_given_is_sent_once_or_owed_wherever_a_worker_dies(
    clocks: list[tuple[list[float], str, str]],
) -> None:
    life = Life()
    for gradient, fate, death in clocks:
        life.push(np.array(gradient, np.float32), fate, death)
        np.testing.assert_allclose(life.used + life.lost + life.owed.residual, life.given, atol=1e-3)


def test_a_clock_that_nothing_is_known_of_begins_with_nothing_owed() -> None:
    owed = owing(3)
    owed.go_on_after(0)
    through(owed.feedback(topk(0.1)), np.array([3, 2, 1], np.float32))
    owed.sent(1)
    assert owed.go_on_after(0)
    assert not owed.go_on_after(7)
    assert (owed.clock, owed.residual.tolist()) == (7, [0, 0, 0])
    assert not owed.go_on_after(1)


class Killed(BaseException):
    """kill -9, as far as a thread can be."""


class Line(test_server_link.Line):
    """One that owes to a folder; one value is sent at a time."""

    def __init__(self, folder: Path | None, run: str = "one", push: Any = "topk", **codec: Any) -> None:
        super().__init__(push, run=run, residuals=folder, **codec)

    def attach(self, clock: int) -> "Line":
        """The server has counted this number of pushes."""
        self.server.standings.append(standing(clock=clock))
        self.link.attach(1)
        return self

    def push(self, clock: int, values: list[float], act: Any = None) -> Any:  # type: ignore[override]
        model = np.zeros(14, np.float32)
        model[[0, 1, 2, 8, 9]] = values
        self.server.pushes.append(act or answer())
        self.link.push_pull(clock, 0, model, 8, self.link.base, None)
        return self.server.sent[-1][0]

    def die(self, clock: int, values: list[float], into: Path) -> Path:
        """The process ends while its push is on its way; what it leaves behind."""

        def end() -> None:
            raise Killed

        with pytest.raises(Killed):
            self.push(clock, values, end)
        folder = next(Path(file).parent for file in into.parent.rglob("worker-0-server-0"))
        return Path(shutil.copytree(folder, into))


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a worker leaves that has pushed twice and dies in its third push."""
    line = Line(tmp_path / "first").attach(0)
    line.push(1, [5, 4, 3, 2, 1])
    line.push(2, [0, 0, 0, 0, 0])
    assert line.owed.residual.tolist() == [0, 0, 3, 2, 1]
    return line.die(3, [1, 1, 1, 1, 1], tmp_path / "left")


def test_a_worker_that_comes_back_before_its_push_was_counted_owes_what_it_did_before(left: Path) -> None:
    line = Line(left).attach(2)
    assert line.owed.residual.tolist() == [0, 0, 3, 2, 1]
    line.push(3, [1, 1, 1, 1, 1])
    assert line.owed.residual.tolist() == [1, 1, 0, 3, 2]
    assert line.said == [("took up what earlier pushes left out", {"server": 0, "clock": 2})]


def test_a_worker_whose_last_push_was_counted_owes_what_that_left_out(left: Path) -> None:
    line = Line(left).attach(3)
    assert line.owed.residual.tolist() == [1, 1, 0, 3, 2]


def test_a_push_that_only_some_servers_have_counted_is_not_encoded_again_for_them(left: Path) -> None:
    line = Line(left).attach(3)
    head = line.push(3, [9, 9, 9, 9, 9])
    assert (head.clock, line.asks) == (3, [True])
    assert line.owed.residual.tolist() == [1, 1, 0, 3, 2]
    assert line.push(4, [0, 0, 0, 0, 0]).elements == 5
    assert line.owed.residual.tolist() == [1, 1, 0, 0, 2]


def test_a_push_that_an_earlier_process_sent_and_the_server_has_lost_again_sends_its_worker_back(left: Path) -> None:
    line = Line(left).attach(3)
    line.server.standings.append(standing(clock=2))

    with pytest.raises(Behind):
        line.push(3, [9, 9, 9, 9, 9], TryAgain("reset by peer"))

    assert line.asks == [True]
    line.attach(2)
    assert line.push(3, [1, 1, 1, 1, 1]).elements == 5


def test_momentum_comes_back_too(tmp_path: Path) -> None:
    dgc: dict[str, Any] = {"momentum": 0.5, "warmup_epochs": 0}
    line = Line(tmp_path / "first", **dgc).attach(0)
    line.push(1, [5, 4, 3, 2, 1])
    left = line.die(2, [0, 0, 0, 0, 0], tmp_path / "left")
    again = Line(left, **dgc).attach(2)
    assert again.owed.residual.tolist() == [0, 0, 4.5, 3, 1.5]
    assert again.owed.velocity.tolist() == [0, 0, 1.5, 1, 0.5]


@pytest.mark.parametrize(
    ("clock", "more", "why"),
    [
        (5, {}, "it is that of clock 3"),
        (2, {"run": "two"}, "is of another run, plan or codec"),
        (2, {"push": "sign"}, "is of another run, plan or codec"),
        (2, {"momentum": 0.9, "warmup_epochs": 0}, "is of another run, plan or codec"),
    ],
)
def test_what_does_not_fit_is_left_and_said(clock: int, more: dict[str, Any], why: str, left: Path) -> None:
    line = Line(left, **more).attach(clock)
    assert line.owed.residual.tolist() == [0] * 5
    ((event, facts),) = line.said
    assert event == "what earlier pushes left out is lost"
    assert facts["clock"] == clock
    assert why in facts["why"]


def test_what_is_from_before_the_machines_last_start_is_left(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of memory that was being written to the disk by and by, any part may be missing."""
    monkeypatch.setattr(residuals_module, "_boot", lambda: "another")
    ((_, facts),) = Line(left).attach(2).said
    assert "from before the machine's last start" in facts["why"]


def test_a_first_start_says_nothing(tmp_path: Path) -> None:
    assert Line(tmp_path).attach(0).said == []
    assert Line(None).attach(0).said == []


def test_without_a_folder_a_new_process_says_what_is_lost() -> None:
    ((_, facts),) = Line(None).attach(9).said
    assert "--residuals FOLDER" in facts["why"]


def test_two_processes_never_share_a_file(tmp_path: Path) -> None:
    first = Line(tmp_path).attach(0)
    second = Line(tmp_path).attach(4)
    first.push(1, [5, 4, 3, 2, 1])
    assert second.owed.residual.tolist() == [0] * 5
    assert "can't be kept in" in second.said[0][1]["why"]


def test_a_full_disk_leaves_what_is_owed_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(residuals_module, "_reserve", full)
    owed, why = open_owed(tmp_path, "worker-0-server-0", {}, 5, 0.0)
    assert why.endswith("No space left on device")
    through(owed.feedback(topk(0.1)), np.ones(5, np.float32))
    owed.sent(1)
    assert owed.residual.sum() == 4


@pytest.mark.parametrize("length", [1, 0])
def test_a_file_holds_slices_of_any_length(length: int, tmp_path: Path) -> None:
    owed, _ = open_owed(tmp_path, "one", {"run": "x"}, length, 0.9)
    owed.skip(4)
    del owed
    owed, why = open_owed(tmp_path, "one", {"run": "x"}, length, 0.9)
    assert (owed.clock, why) == (4, "")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"push": {"name": "topk", "share": 0.01}}
    with Cluster(tmp_path, run="kept", codec=settings, epochs=100_000, heartbeat=0.3, lease=4) as found:
        yield found


def test_a_killed_worker_takes_up_what_it_owes(cluster: Cluster, tmp_path: Path) -> None:
    sharder = cluster.sharder()
    cluster.servers()
    assert sharder.wait() == 0
    keep = ["--residuals", tmp_path / "residuals"]
    killed, _ = (cluster.worker(rank, *keep, torch=True) for rank in range(2))
    cluster.ready()
    cluster.until(lambda status: status.version > 20)

    killed.kill()
    back = cluster.worker(0, *keep, torch=True)
    begun = back.wait_for("training")["clock"]
    cluster.until(lambda status: status.version > begun + 20)
    cluster.stop()
    cluster.score()

    taken = {entry["server"]: entry["clock"] for entry in back.events("took up what earlier pushes left out")}
    assert set(taken) == {0, 1}
    assert begun == min(taken.values()) > 0
    assert back.events("what earlier pushes left out is lost") == []


def fill(owed: Owed, clock: int, *rows: Vector) -> None:
    """The next push of this clock leaves these."""
    for own, row in zip((owed._other()), rows, strict=True):
        own[:] = row
    owed.sent(clock)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("counted", [7, 8])
def test_what_is_owed_goes_along_to_other_servers_whichever_push_they_have_counted(
    momentum: float, counted: int, tmp_path: Path
) -> None:
    before, after = (make_plan([("w", (LENGTH,)), ("v", (3,))], servers, PlanConfig(alignment=1)) for servers in (2, 4))
    facts, count = {"run": "one", "codec": "topk"}, 1 + (momentum > 0)
    whole = np.arange(15, dtype=np.float32)
    for server, part in enumerate(before.parts(whole)):
        name, length = f"worker-0-server-{server}", len(part)
        owed, _ = open_owed(tmp_path / "old", name, {**facts, "plan": before.hash}, length, momentum)
        fill(owed, 7, *[part, -part][:count])
        fill(owed, 8, *[part + 100, -part][:count])
    (tmp_path / "old" / "worker-0.schedulers0.json").write_text("{}")

    recut_owed(tmp_path / "old", tmp_path / "new", before, after)

    for server, part in enumerate(after.parts(whole)):
        name = f"worker-0-server-{server}"
        owed, why = open_owed(tmp_path / "new", name, {**facts, "plan": after.hash}, len(part), momentum)
        assert (why, owed.clock, owed.go_on_after(counted)) == ("", 8, True)
        assert owed.residual.tolist() == (part + 100 * (counted == 8)).tolist()
        assert not momentum or owed.velocity.tolist() == (-part).tolist()
    assert (tmp_path / "new" / "worker-0.schedulers0.json").exists()


def test_a_worker_whose_files_are_of_several_clocks_owes_nothing_to_new_servers(tmp_path: Path) -> None:
    before, after = (make_plan([("w", (LENGTH,))], servers, PlanConfig(alignment=1)) for servers in (2, 1))
    for server, clock in enumerate((7, 9)):
        owed, _ = open_owed(tmp_path / "old", f"worker-0-server-{server}", {"plan": before.hash}, LENGTH // 2, 0.0)
        fill(owed, clock, np.ones(LENGTH // 2, np.float32))

    recut_owed(tmp_path / "old", tmp_path / "new", before, after)

    assert list((tmp_path / "new").iterdir()) == []
    recut_owed(tmp_path / "none", tmp_path / "other", before, after)
    assert not (tmp_path / "other").exists()
