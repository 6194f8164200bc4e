"""Whole runs of real processes: of every policy, also when some of them are killed, frozen, told to stop or poisoned in the
middle; and the lines of the docs that inflict faults."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from paceline.core import registry
from paceline.core.errors import TryAgain
from paceline.core.policies.policy import PACKAGE
from paceline.core.settings.config import Config
from paceline.core.slice.plan import server_memory
from paceline.rpc.enums import phase_of
from paceline.rpc.setting_values import policy_message
from paceline.tasks.task import load_config, load_task
from paceline.v1 import run_service_pb2 as pb
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.training import training_of
from paceline_studies.simulator.workers import Trained
from tests.support.nights import some
from tests.support.processes import Cluster, Process, eventually
from tests.support.tree import ROOT
from tools.doc_blocks.blocks import blocks
from tools.doc_blocks.running import runnable
from tools.prose.pages import read_page

COUNTING = {"name": "sgd", "lr": 1.0, "momentum": 0, "weight_decay": 0}
"""With the ledger's gradients: an element is the number of pushes of its worker that are in the weights, exactly."""
ENDLESS = 100_000
"""Epochs of a run that the test itself stops."""
BRISK = {"heartbeat": 0.3, "lease": 4}


@pytest.mark.parametrize("policy", some(["bsp", "shat"], ["bsp"]))  # the test of every policy has them all
def test_a_run_trains_to_its_end_and_reports_its_accuracy(policy: str, tmp_path: Path) -> None:
    own = {"policy": {"name": policy}, "epochs": 7, "schedule": {}, "batch": "global"}
    with Cluster(tmp_path, **(load_task("digits").settings | own)) as cluster:
        sharder, servers = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        codes = [process.wait() for process in everybody(cluster)]
        status = cluster.until(lambda status: True)
        cluster.end_servers(0)

        assert codes == [0, 0, 0]
        assert phase_of(status) == "finished"
        assert status.scores[-1].final
        assert status.scores[-1].metrics["test_accuracy"] > 0.9
        assert servers[0].events("score", final=True)[0]["metrics"] == dict(status.scores[-1].metrics)
        assert status.examples >= status.budget > 0
        trained = load_file(tmp_path / "models" / "last.safetensors")
        assert trained["0.weight"].shape == (64, 64)
        if policy == "bsp":
            found = simulated(load_config(tmp_path / "config.yaml"), tmp_path / "shards")
            assert (found.examples, found.pushes) == (status.examples, 2 * status.version)
            assert np.array_equal(found.model, np.concatenate([trained[name].ravel() for name in NAMES]))


NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")
"""Tensors of the digits' model."""


def simulated(config: Config, shards: Path) -> Trained:
    """The same run in virtual time; in lock-step it has the same bits."""
    return training_of(config, problem_of(config, shards, exact=True), scene=Scene()).run()


def test_a_finished_run_goes_on_with_more_epochs_in_whichever_order_its_processes_start(tmp_path: Path) -> None:
    own = {"policy": {"name": "bsp"}, "epochs": 2, "schedule": {}, "batch": "global"}
    with Cluster(tmp_path, **(load_task("digits").settings | own)) as cluster:
        sharder, servers = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        assert [process.wait() for process in everybody(cluster)] == [0, 0, 0]
        for server in servers:
            server.wait_for("finished; the weights are on disk, idling")
        before = cluster.until(lambda status: True)

        cluster.config.write_text(cluster.config.read_text().replace("epochs: 2", "epochs: 4"))
        others = everybody(cluster)  # as new pods, which come before the servers are rolled
        servers[1].send(signal.SIGTERM)
        assert servers[1].wait() == 0
        servers[1] = restarted(cluster, 1)
        servers[1].wait_for("finished; the weights are on disk, idling")
        servers[0].send(signal.SIGTERM)
        assert servers[0].wait() == 0
        servers[0] = restarted(cluster, 0)
        assert servers[1].wait() == TryAgain.exit_code
        servers[1] = restarted(cluster, 1)

        assert [process.wait() for process in others] == [0, 0, 0]
        status = cluster.until(lambda status: True)
        cluster.end_servers(0)
        assert (phase_of(before), phase_of(status)) == ("finished", "finished")
        assert [score.final for score in status.scores].count(True) == 2
        assert status.examples >= status.budget == 2 * before.budget
        trained = load_file(tmp_path / "models" / "last.safetensors")
        found = simulated(load_config(tmp_path / "config.yaml"), tmp_path / "shards")
        assert found.examples == status.examples
        assert np.array_equal(found.model, np.concatenate([trained[name].ravel() for name in NAMES]))


def everybody(cluster: Cluster) -> list[Process]:
    """The evaluator and two workers."""
    return [cluster.evaluator(), cluster.worker(0, torch=True), cluster.worker(1, torch=True)]


def started(cluster: Cluster, mode: str = "ledger") -> tuple[list[Process], list[Process]]:
    """Servers and workers of a run that trains."""
    sharder, servers = cluster.sharder(), cluster.servers()
    assert sharder.wait() == 0
    workers = [cluster.worker(rank, mode=mode) for rank in range(cluster.settings.get("start_when", 2))]
    cluster.ready()
    cluster.until(lambda status: status.version > 20)
    return servers, workers


def goes_on(cluster: Cluster, pushes: int = 30) -> None:
    """Waits until the chief's slice has folded more."""
    before = cluster.until(lambda status: phase_of(status) == "training").version
    cluster.until(lambda status: status.version > before + pushes)


def restarted(cluster: Cluster, index: int) -> Process:
    return cluster.listening(index, cluster.server(index))


def incarnations(cluster: Cluster) -> set[int]:
    """Those of all workers on all slices."""
    return {clock["incarnation"] for _, state in cluster.states() for clock in state.table["clocks"].values()}


def assert_every_acknowledged_push_counts_once(cluster: Cluster, workers: list[Process]) -> None:
    """The weights are the pushes that were acknowledged and not dropped."""
    for server, (_, state) in enumerate(cluster.states()):
        counts = state.weights.reshape(-1, 4)
        assert (counts == counts[0]).all()
        for rank, worker in enumerate(workers):
            (reply,) = worker.events("last reply")
            kept = set(range(1, reply["clock"] + 1)) - set(reply["dropped"][server])
            assert counts[0, rank] == len(kept), (server, rank, worker.text())


@pytest.mark.parametrize(
    ("overlap", "transport"), some([(False, "lane"), (True, "lane"), (True, "grpc")], [(True, "lane")])
)
def test_killed_servers_come_back_under_a_new_term_and_lose_nothing(
    overlap: bool, transport: str, tmp_path: Path
) -> None:
    settings = {"policy": {"name": "asp"}, "optimizer": COUNTING, "epochs": ENDLESS, "checkpoint": {"every": 1}}
    with Cluster(tmp_path, overlap=overlap, transport=transport, **settings) as cluster:
        servers, workers = started(cluster)

        servers[1].kill()
        servers[1] = restarted(cluster, 1)
        for worker in workers:
            worker.wait_for("server is back under a new term", server=1, term=2)
        goes_on(cluster)
        before = cluster.until(lambda status: True)
        servers[0].kill()
        servers[0] = restarted(cluster, 0)
        goes_on(cluster)
        after = cluster.until(lambda status: len(status.servers) == 2)
        for server in servers:
            server.kill()
        servers = [restarted(cluster, 0), restarted(cluster, 1)]
        goes_on(cluster)
        cluster.stop()
        codes = [worker.wait() for worker in workers]
        cluster.finish()

        assert codes == [0, 0]
        for server in servers:
            assert server.events("back from a snapshot; workers send again, or compute again, what it lacks", term=3)
        assert [worker.member for worker in after.workers] == [True, True]
        assert [server.view for server in after.servers] == [server.view for server in before.servers]
        assert all(worker.events("sends pushes again") for worker in workers)
        assert_every_acknowledged_push_counts_once(cluster, workers)
        assert incarnations(cluster) == {1}


def test_a_server_whose_folder_is_gone_ends_and_says_what_is_lost(tmp_path: Path) -> None:
    one = {"workers": 1, "start_when": 1, "policy": {"name": "asp"}, "optimizer": COUNTING}
    with Cluster(tmp_path, epochs=ENDLESS, **one) as cluster:
        servers, (worker,) = started(cluster)
        servers[1].kill()
        shutil.rmtree(tmp_path / "s1")

        tried = [cluster.server(1)]
        while tried[-1].wait() == 65 and worker.is_running:  # which may not have asked in time
            tried.append(cluster.server(1))

        assert (tried[-1].wait(), worker.wait()) == (65, 65)
        for ended in (*tried, worker):
            assert "Server 1 has no snapshot, though the run has trained: its part of the model is lost" in ended.text()
        assert servers[0].is_running


def saved(folder: Path) -> int:
    """The version in a server's newest snapshot; 0 before there is one."""
    files = sorted(folder.glob("snapshot-*.json"))
    return json.loads(files[-1].read_text().rstrip().rpartition("\n")[0])["table"]["version"] if files else 0


def test_rounds_go_on_after_each_server_and_then_everything_was_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path, epochs=ENDLESS, checkpoint={"every": 1}) as cluster:
        servers, workers = started(cluster, "softmax")

        for index in (1, 0):
            servers[index].kill()
            servers[index] = restarted(cluster, index)
            goes_on(cluster)
        eventually(lambda: all(saved(tmp_path / f"s{index}") for index in (0, 1)), "a snapshot of a trained slice")
        for process in workers:
            process.kill()
        reached = cluster.until(lambda status: True).version
        for process in servers:
            process.kill()
        furthest = max(saved(tmp_path / f"s{index}") for index in (0, 1))
        for index in (0, 1):
            restarted(cluster, index)
        workers = [cluster.worker(rank) for rank in (0, 1)]
        clocks = [worker.wait_for("training")["clock"] for worker in workers]
        # a slice folds nothing until the workers are past the rounds that it has
        cluster.until(lambda status: status.version > furthest + 30)
        cluster.stop()
        codes = [worker.wait() for worker in workers]
        cluster.finish()

        assert codes == [0, 0]
        assert 0 < min(clocks) <= reached
        assert len({state.table["version"] for _, state in cluster.states()}) == 1
        assert incarnations(cluster) == {2}


def test_servers_that_are_told_to_stop_lose_nothing(tmp_path: Path) -> None:
    settings = {"policy": {"name": "asp"}, "optimizer": COUNTING, "epochs": ENDLESS, "checkpoint": {"every": 60}}
    with Cluster(tmp_path, **settings) as cluster:
        servers, workers = started(cluster)

        codes = []
        for index in (1, 0):
            servers[index].send(signal.SIGTERM)
            codes.append(servers[index].wait())
            servers[index] = restarted(cluster, index)
            goes_on(cluster)
        cluster.stop()
        worker_codes = [worker.wait() for worker in workers]
        cluster.finish()

        assert codes == [143, 143]
        assert worker_codes == [0, 0]
        assert not any(worker.events("sends pushes again") for worker in workers)
        assert_every_acknowledged_push_counts_once(cluster, workers)


def test_workers_join_are_killed_leave_and_join_again_in_mid_run(tmp_path: Path) -> None:
    with Cluster(tmp_path, epochs=ENDLESS, start_when=1, **BRISK) as cluster:
        servers, workers = started(cluster, "softmax")

        killed = cluster.worker(1)
        assert killed.wait_for("training")["clock"] == 0
        goes_on(cluster)
        killed.kill()
        servers[0].wait_for("lease lapsed", worker="worker-1")
        goes_on(cluster)
        told = cluster.worker(1)
        assert told.wait_for("training")["clock"] > 0
        goes_on(cluster)
        told.send(signal.SIGTERM)
        told_code = told.wait()
        goes_on(cluster)
        interrupted = cluster.worker(1)
        interrupted.wait_for("training")
        goes_on(cluster)
        interrupted.send(signal.SIGINT)
        interrupted_code = interrupted.wait()
        goes_on(cluster)
        cluster.stop()
        code = workers[0].wait()
        cluster.finish()

        assert (told_code, interrupted_code, code) == (143, 130, 0)
        assert len(servers[0].events("lease lapsed", worker="worker-1")) == 1
        clocks = [state.table["clocks"]["worker-1"] for _, state in cluster.states()]
        assert clocks[0]["incarnation"] == clocks[1]["incarnation"] == 3
        assert clocks[0]["clock"] == clocks[1]["clock"]


def test_a_frozen_worker_rejoins_a_vacant_seat_and_leaves_a_taken_one(tmp_path: Path) -> None:
    by_worker = {"policy": {"name": "asp"}, "optimizer": COUNTING, "epochs": ENDLESS, "data": {"leases": False}}
    with Cluster(tmp_path, **by_worker, **BRISK) as cluster:
        servers, workers = started(cluster)
        surplus = cluster.worker(2, mode="ledger")
        surplus.wait_for("waiting for a seat")
        surplus.kill()

        frozen = workers[1]
        frozen.send(signal.SIGSTOP)
        servers[0].wait_for("lease lapsed", worker="worker-1")
        goes_on(cluster)
        frozen.send(signal.SIGCONT)
        frozen.wait_for("joining anew")
        eventually(lambda: len(frozen.events("training")) == 2, frozen.text)
        goes_on(cluster)
        frozen.send(signal.SIGSTOP)
        eventually(lambda: len(servers[0].events("lease lapsed", worker="worker-1")) == 2, servers[0].text)
        successor = cluster.worker(1, mode="ledger")
        clock = successor.wait_for("training")["clock"]
        frozen.send(signal.SIGCONT)
        frozen_code = frozen.wait()
        surplus = cluster.worker(2, mode="ledger")
        surplus.wait_for("waiting for a seat")
        goes_on(cluster)
        cluster.stop()
        codes = [process.wait() for process in (workers[0], successor, surplus)]
        cluster.finish()

        first, second = frozen.events("training")
        assert first["clock"] < second["clock"] < clock
        assert frozen_code == 0
        assert "Fenced" in frozen.text()
        assert codes == [0, 0, 0]
        for _, state in cluster.states():
            assert state.weights[1] == state.table["clocks"]["worker-1"]["clock"]


@pytest.mark.nightly  # 24 million weights; by day the formula itself is tested
@pytest.mark.parametrize("policy", ["bsp", "asp"])
def test_a_server_with_three_workers_keeps_within_the_memory_formula(policy: str, tmp_path: Path) -> None:
    # stacks, arenas and gRPC's buffers differ by machine and load, by less than one more array takes
    length, process_base = 24 << 20, 110 << 20
    settings = {"workers": 3, "servers": 1, "policy": {"name": policy}, "epochs": ENDLESS, "checkpoint": {"every": 0.5}}
    with Cluster(tmp_path, **settings) as cluster:
        sharder, (server,) = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        before = peak(server.pid)
        workers = [cluster.worker(rank, mode=str(length)) for rank in range(3)]
        cluster.ready()
        cluster.until(lambda status: status.version > 8)
        eventually(lambda: len(list((tmp_path / "s0").glob("snapshot-*.json"))) >= 3, "a third snapshot")

        grown = peak(server.pid) - before

        for worker in workers:
            worker.kill()
        formula = sum(server_memory(length, 1, int(policy == "bsp"), 3, 1 << 20, 512 << 20).values())
        assert grown <= formula + process_base, f"{grown >> 20} MiB, the formula says {formula >> 20} MiB"


def peak(pid: int) -> int:
    """The process's largest resident memory so far (bytes)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) << 10


def test_changes_of_policy_while_workers_overlap_lose_no_push(tmp_path: Path) -> None:
    settings = {"policy": {"name": "asp"}, "optimizer": COUNTING, "epochs": ENDLESS, "overlap": True}
    with Cluster(tmp_path, **settings) as cluster:
        _, workers = started(cluster)

        for policy in ({"name": "ssp", "bound": 1}, {"name": "asp"}, {"name": "delay_threshold"}):
            cluster.chief.SetPolicy(pb.SetPolicyRequest(policy=policy_message(policy)), timeout=10)
            wanted = policy["name"]
            cluster.until(lambda now, wanted=wanted: now.policy.name == wanted and not now.switching)
            goes_on(cluster)
        cluster.stop()
        codes = [worker.wait() for worker in workers]
        cluster.finish()

        assert codes == [0, 0]
        assert_every_acknowledged_push_counts_once(cluster, workers)


SHORT = {"workers": 3, "epochs": 2, "batch_size": 16, "slow": {"2": "3x"}, "nominal_step": 0.002}
SGD = {"name": "sgd", "lr": 0.2, "momentum": 0.0, "weight_decay": 0.0}
UNTRAINED = 2.3026
"""ln 10: the loss of first weights of zero."""


@pytest.mark.parametrize("policy", some(registry.names(PACKAGE), ["easgd", "kbuffered"]))
def test_every_policy_trains_to_the_end_of_a_run(policy: str, tmp_path: Path) -> None:
    with Cluster(tmp_path, policy={"name": policy}, optimizer=SGD, **SHORT) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        workers = [cluster.worker(rank) for rank in range(3)]
        cluster.ready()
        status = cluster.score()
        codes = [worker.wait() for worker in workers]
        cluster.end_servers(0)

        assert codes == [0, 0, 0]
        assert status.examples >= status.budget > 0
        losses = {worker.worker: worker.figures["loss"] for worker in status.workers}
        assert max(losses.values()) < UNTRAINED - 0.2, losses
        assert all(state.table["version"] > 0 for _, state in cluster.states())


LINES = [
    runnable(block)
    for block in blocks(read_page(ROOT / "docs/failures/promises-and-failures.md"))
    if block.language == "sh" and "--fault" in block.text
]


def test_the_page_has_a_line_for_what_it_promises() -> None:
    assert len(LINES) == 4


@pytest.mark.nightly
@pytest.mark.parametrize("lines", LINES)
def test_each_promise_holds_on_the_line_that_shows_it(lines: str, tmp_path: Path) -> None:
    faults = [fault for text in re.findall(r'--fault "(.*?)"', lines) for fault in text.split("; ")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", lines],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert not done.returncode, done.stdout
    for fault in faults:
        assert re.search(rf"{re.escape(fault)}: at .* s, the process ran again", done.stdout), done.stdout
    assert "\nLost: nothing; " in done.stdout
    assert "bsp" not in lines or done.stdout.endswith("the same bits\n")


POISONED_SGD = {"name": "sgd", "lr": 0.4, "momentum": 0.0, "weight_decay": 0.0}
MEMBERS = 4
POISONED = MEMBERS - 1
CAP = 0.6
"""Above the norm of nearly all gradients, of which 32 examples make even ones."""


def accuracy(model: np.ndarray) -> float:
    """Of softmax regression (`NUMPY_WORKER=softmax`) on all digits (ratio)."""
    inputs, labels = load_digits(return_X_y=True)
    scores = inputs / 16 @ model[:640].reshape(64, 10) + model[640:]
    return float((scores.argmax(axis=1) == labels).mean())


def model_of(cluster: Cluster) -> np.ndarray:
    """The model that the servers, which have ended, have kept."""
    states = cluster.states()
    model = np.empty(states[0][0].total, np.float32)
    for (_, state), (view,) in zip(states, states[0][0].split(model), strict=True):
        view[:] = state.weights
    return model


@pytest.mark.parametrize(
    ("policy", "transport", "cap"),
    some([(*run, cap) for run in (("asp", "lane"), ("bsp", "grpc")) for cap in (CAP, None)], [("bsp", "grpc", CAP)]),
)
def test_the_cap_bounds_what_a_poisoned_worker_does(
    tmp_path: Path, policy: str, transport: str, cap: float | None
) -> None:
    settings = {"transport": transport, "push_norm_cap": cap, "divergence": {"rollbacks": 0}}
    with Cluster(
        tmp_path, policy={"name": policy}, optimizer=POISONED_SGD, workers=MEMBERS, epochs=12, batch_size=32, **settings
    ) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        modes = ["poison" if rank == POISONED else "softmax" for rank in range(MEMBERS)]
        workers = [cluster.worker(rank, mode=mode) for rank, mode in enumerate(modes)]
        cluster.ready()
        status = cluster.score()
        assert [worker.wait() for worker in workers] == [0] * MEMBERS
        cluster.end_servers(0)
        found = accuracy(model_of(cluster))

    workers_of = {worker.worker: worker for worker in status.workers}
    poisoned = workers_of.pop(f"worker-{POISONED}")
    if cap is None:
        assert found < 0.2
        assert "capped" not in poisoned.figures
        return
    assert found > 0.8
    assert poisoned.figures["capped"] == poisoned.clock
    assert all(worker.figures["capped"] < worker.clock for worker in workers_of.values())
    (warned,) = [warning for warning in status.warnings if warning.kind == "capped"]
    assert f"worker-{POISONED}" in warned.problem
