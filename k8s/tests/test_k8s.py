"""What is said of a run on Kubernetes, from what the cluster says; the cluster itself is in e2e/."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from paceline.base.variables import TLS
from paceline.core.errors import ConfigError, DiskError, ServersGone, TryAgain, UsageError
from paceline.core.settings.config import Config
from paceline.rpc.roles import ANY_PROCESS
from paceline.rpc.setting_values import policy_message
from paceline.rpc.tls import is_named, read_keys
from paceline.settings.load_settings import load
from paceline.v1.run_service_pb2 import Score, StatusReply
from paceline.v1.switch_pb2 import Switch
from paceline_k8s import cluster_status, live_changes, volumes
from paceline_k8s import deploy as deploying
from paceline_k8s import follow as following
from paceline_k8s import kubectl as kubectl_module
from paceline_k8s.autostop import scale
from paceline_k8s.cluster_status import State, end_of, kept_result, look, result_of
from paceline_k8s.deploy import Patience, Trouble
from paceline_k8s.findings import Finding, Seen, finding_lines, findings
from paceline_k8s.follow import _why
from paceline_k8s.kubectl import Forbidden, Kubectl, NotThere
from paceline_k8s.overlay import Overlay, _mistakes, config_of
from paceline_k8s.pod_api import PodApi
from paceline_k8s.run_secrets import delete_secrets, make_secrets
from tests.settings.test_own_extensions import POLICY
from tests.support.kubectl import Cluster
from tests.support.own_time import own_time
from tests.support.tree import ROOT

LIMITED = {"name": "worker", "resources": {"limits": {"memory": "1Gi"}}}
POD: dict[str, Any] = {"restartPolicy": "Never", "containers": [LIMITED]}


def pod(name: str = "paceline-worker-0-x", **status: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "worker"}
    return {"kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": POD, "status": status}


def claim(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, **more}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "worker", "image": "localhost/paceline-worker:9", "restartCount": 0, **state}


def event(reason: str, message: str, kind: str, name: str) -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"kind": kind, "name": name}}


class Api(ThreadingHTTPServer):
    """Kubernetes' API, as far as a StatefulSet of two replicas can be scaled."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Scale)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.replicas = 2
        self.answer = 200
        self.asked: list[tuple[str, str, str]] = []


class _Scale(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        if body := self.rfile.read(int(self.headers.get("Content-Length", 0))):
            self.server.replicas = json.loads(body)["spec"]["replicas"]
        self.send_response(self.server.answer)
        self.end_headers()
        spec = {"replicas": self.server.replicas} if self.server.replicas else {}  # as Kubernetes does: no zero
        self.wfile.write(json.dumps({"kind": "Scale", "spec": spec}).encode())

    do_PATCH = do_GET

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def only(seen: Seen, log: str = "") -> Finding:
    (found,) = findings(seen, lambda name, previous: log)
    return found


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"])
def test_an_image_that_can_not_be_had_is_named_without_the_control_characters_of_its_message(reason: str):
    state = {"waiting": {"reason": reason, "message": "no such\x1b[31m\nimage"}}

    found = only(Seen([pod(phase="Pending", containerStatuses=[container(state=state)])]))

    assert "localhost/paceline-worker:9" in found.what
    assert "no such[31m image" in found.what
    assert "make images" in found.todo
    assert found.fatal


def unscheduled(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(phase="Pending", conditions=[condition])


ONE = "0/2 nodes are available: 1 node(s)"


@pytest.mark.parametrize(
    ("message", "todo"),
    [
        ("0/1 nodes are available: 1 Insufficient memory.", "No node has room"),
        ("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", "No node has a GPU left"),
        (f"{ONE} had untolerated taint {{nvidia.com/gpu: present}}. preemption: 0/1 nodes", "gpu-nodes (all others)"),
        (f"{ONE} had untolerated taint {{team: a}}, 1 Insufficient cpu.", "the taint team take only"),
        (f"{ONE} had untolerated taint {{team: a}}, 1 Insufficient cpu.", "No node has room"),
        (f"{ONE} were unschedulable.", "kubectl uncordon"),
        (f"{ONE} didn't match Pod's node affinity/selector.", "labels that nodeSelector"),
        ("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims (persistentvolumeclaim)", "claim"),
        ('persistentvolumeclaim "paceline-data" not found', "make put-data"),
        ("0/2 nodes are available: 1 node(s) were unschedulable, 1 node(s) had volume node affinity conflict.", "away"),
        ("0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.", "away"),
    ],
)
def test_a_pod_without_room_says_what_is_lacking(message: str, todo: str):
    found = only(Seen([unscheduled(message)]))

    assert message.rstrip(".") in found.what
    assert todo in found.todo
    if "Insufficient" not in message and "affinity" not in message:
        assert "No node has" not in found.todo, "a taint or a cordon is no lack of room"


def test_a_claim_without_a_volume_is_the_first_trouble():
    pending = claim("paceline-shards", status={"phase": "Pending"})
    lacks = 'storageclass.storage.k8s.io "fast" not found'
    why = event("ProvisioningFailed", lacks, "PersistentVolumeClaim", "paceline-shards")

    found = findings(Seen([unscheduled("unbound persistentvolumeclaims")], [pending], events=[why]))

    assert [one.part for one in found] == ["claim/paceline-shards", "pod/paceline-worker-0-x"]
    assert '"fast" not found' in found[0].what
    assert "storage class" in found[0].todo


AGAIN = container(state={"running": {}}, lastState={"terminated": {"exitCode": 137, "reason": "Error"}}, ready=True)
NOT_READY = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]


WORKER, JOB = "paceline-worker-0-x", "paceline-worker"
FORBIDDEN = 'pods "x" is forbidden: violates PodSecurity: runAsNonRoot'


def mount(message: str) -> dict[str, Any]:
    return event("FailedMount", message, "Pod", WORKER)


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    status = container(state={"terminated": {"exitCode": code, "reason": reason}})
    return pod(phase="Failed", containerStatuses=[status])


@pytest.mark.parametrize(
    ("why", "part", "what", "todo"),
    [
        (mount('SetUp failed : secret "paceline-token" not found'), f"pod/{WORKER}", "paceline-token", "make deploy"),
        (mount('secret "paceline-tls" not found'), f"pod/{WORKER}", "paceline-tls", "docs/run/kubernetes-security.md"),
        (event("FailedCreate", FORBIDDEN, "Job", JOB), f"job/{JOB}", "runAsNonRoot", ""),
    ],
    ids=["no token", "no certificate", "pod security"],
)
def test_an_event_that_stops_a_pod_is_named_with_what_to_do(why: dict[str, Any], part: str, what: str, todo: str):
    found = only(Seen([pod(phase="Pending")] if part.startswith("pod/") else [], events=[why]))

    assert (found.part, what in found.what, todo in found.todo, found.fatal) == (part, True, True, True)


PENDING = claim("paceline-shards", status={"phase": "Pending"})
FIRST = event("WaitForFirstConsumer", "waiting", "PersistentVolumeClaim", "paceline-shards")


@pytest.mark.parametrize(
    "seen",
    [
        Seen(claims=[PENDING], events=[FIRST]),
        Seen([pod(phase="Running")], events=[mount('secret "paceline-token" not found')]),
        *(Seen([ended(code)]) for code in (0, 75, 143)),
        Seen([pod(phase="Running", containerStatuses=[AGAIN])]),
        Seen([pod(phase="Running", conditions=NOT_READY)]),
    ],
    ids=["waits for its first pod", "mounted later", "0", "75", "143", "runs again", "not ready, but its node answers"],
)
def test_what_is_no_trouble_is_not_named(seen: Seen):
    assert findings(seen) == []


def test_a_script_that_ended_gives_its_traceback():
    trace = 'Traceback (most recent call last):\n  File "/script/train.py", line 9, in <module>\n    step()'
    log = f'step 1\n{trace}\n{{"event": "x"}}\nValueError: my own \x1bmistake\n'

    found = only(Seen([ended(1)]), log)

    lines = [*trace.splitlines(), "ValueError: my own ?mistake"]
    assert found.what == "\n    ".join(["ended with exit code 1: ValueError: my own ?mistake", *lines])


def test_a_process_that_ended_gives_its_own_words_and_exit_code():
    log = '{"event": "x"}\nworker-0: ConfigError: policy.naem: there is no such setting.\n'

    found = only(Seen([ended(78)]), log)

    assert "exit code 78: ConfigError: policy.naem" in found.what
    assert found.fatal
    assert found.exit_code == 78


def test_a_pod_killed_for_memory_says_its_limit():
    found = only(Seen([ended(137, "OOMKilled")]))

    assert "limit is 1Gi" in found.what
    assert found.exit_code == 69


def failed_job(message: str = "exit code 78") -> dict[str, Any]:
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}
    return job_of("worker", "paceline-worker", "", conditions=[failed])


def test_a_job_that_failed_ends_a_wait_at_once():
    state = State(None, {}, [], [], findings(Seen(jobs=[failed_job()])))

    with pytest.raises(Trouble, match="PodFailurePolicy"):
        Patience().check(state, 0.0)


def test_a_wait_that_a_job_ends_has_the_exit_code_of_its_pod():
    message = "Container worker for pod a/paceline-worker-0 failed with exit code 65 matching FailJob rule at index 2"

    assert only(Seen(jobs=[failed_job(message)])).exit_code == 65


def test_a_pod_whose_node_is_silent_is_named_with_what_to_do():
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    found = pod("paceline-server-1", phase="Running", conditions=conditions)
    found["spec"] = POD | {"nodeName": "node-7"}

    trouble = only(Seen([found]))

    assert "its node node-7 does not answer" in trouble.what
    assert "kubectl delete node node-7" in trouble.todo
    assert not trouble.fatal
    assert trouble.exit_code == 69


def test_what_ended_the_pod_of_a_failed_job_is_told_with_it():
    seen = findings(Seen([ended(78)], jobs=[failed_job()]), lambda name, previous: "worker-0: This task needs torch.")
    of_the_job = lambda one: one.part.startswith("job/")  # noqa: E731

    for patience in (Patience(), Patience(of_the_job)):
        with pytest.raises(Trouble, match=r"needs torch[\s\S]*job/paceline-worker: the Job failed") as raised:
            patience.check(State(None, {}, [], [], seen), 0.0)
        assert raised.value.exit_code == 78


LOST = {"type": "Failed", "status": "True", "reason": "FailedIndexes", "message": "Job has failed indexes"}


@pytest.mark.parametrize(
    ("reason", "succeeded", "is_lost"),
    [("FailedIndexes", 3, False), ("FailedIndexes", 0, True), ("MaxFailedIndexesExceeded", 2, True)],
)
def test_a_job_that_lost_some_workers_for_good_while_the_others_ended_well_is_no_failure(
    reason: str, succeeded: int, is_lost: bool
):
    job = job_of("worker", "w", NEW, conditions=[LOST | {"reason": reason}], succeeded=succeeded)
    job["spec"] = {"completions": 4}

    found = only(Seen(jobs=[job]))

    assert found.fatal is is_lost
    assert State(None, {"worker": job}, [], [], []).finished("worker") is not is_lost
    if not is_lost:
        assert finding_lines([found]) == ["job/w: 3 of 4 have ended well; the others failed for good."]


def test_a_worker_that_is_not_started_again_is_told_while_the_others_train():
    job = job_of("worker", "w", NEW, failedIndexes="1", active=3)

    found = only(Seen(jobs=[job]))

    assert not found.fatal
    assert finding_lines([found])[0].startswith("job/w: index 1 failed too often in a row and is not started again")
    job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    assert findings(Seen(jobs=[job])) == []


def test_other_trouble_may_last_half_a_minute():
    trouble, patience = Finding("pod/x", "no node takes it.", "Add one."), Patience()
    there, well = State(None, {}, [], [], [trouble]), State(None, {}, [], [], [])

    for now, state in ((0, there), (29, there), (30, well), (31, there), (60, there)):
        patience.check(state, now)
    with pytest.raises(Trouble) as raised:
        patience.check(there, 61)

    assert raised.value.exit_code == 78


def test_autostop_reads_and_sets_the_number_of_servers_as_its_pod(tmp_path: Path, api: Api):
    (tmp_path / "namespace").write_text("mine\n")
    (tmp_path / "token").write_text("of the pod\n")

    assert scale("paceline-server", None, PodApi(tmp_path, api.url)) == 2
    assert scale("paceline-server", 0, PodApi(tmp_path, api.url)) == 0
    assert scale("paceline-server", None, PodApi(tmp_path, api.url)) == 0

    path = "/apis/apps/v1/namespaces/mine/statefulsets/paceline-server/scale"
    assert api.asked == [(method, path, "Bearer of the pod") for method in ("GET", "PATCH", "GET")]


def test_autostop_says_what_it_lacks(tmp_path: Path, api: Api):
    with pytest.raises(ConfigError, match="no service account"):
        scale("paceline-server", 0, PodApi(tmp_path, api.url))
    for name in ("namespace", "token"):
        (tmp_path / name).write_text("mine")
    api.answer = 403
    with pytest.raises(
        ConfigError, match=r"refuses to patch statefulsets/paceline-server/scale \(403 Forbidden\).*their Role"
    ):
        scale("paceline-server", 0, PodApi(tmp_path, api.url))
    with pytest.raises(TryAgain, match="does not answer"):
        scale("paceline-server", 0, PodApi(tmp_path, "http://127.0.0.1:9"))
    for api.answer in (429, 500, 503):
        with pytest.raises(TryAgain, match=f"answers {api.answer} .*may be busy"):
            scale("paceline-server", 0, PodApi(tmp_path, api.url))


def test_the_same_trouble_of_several_parts_is_one_line():
    found = [Finding(f"pod/{name}", "no room.", "Add a node.") for name in "ab"]

    assert finding_lines(found) == ["pod/a, pod/b: no room. Add a node."]


def overlay(
    replicas: int = 2, parallelism: int = 2, completions: int = 2, image: str = "x/y:1", **settings: Any
) -> Overlay:
    containers = {"template": {"spec": {"containers": [{"image": image}]}}}
    labels = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": "server"}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, **containers}
    metadata = {"name": "demo-paceline-server", "labels": labels}
    servers = {"kind": "StatefulSet", "metadata": metadata, "spec": spec}
    job = {"parallelism": parallelism, "completions": completions, **containers}
    labels = labels | {"app.kubernetes.io/component": "worker"}
    workers = {"kind": "Job", "metadata": {"name": "demo-paceline-worker", "labels": labels}, "spec": job}
    return Overlay([servers, workers], load(None, {"run": "demo", "workers": 2, "servers": 2, **settings}))


def unnamed() -> Overlay:
    """As a folder that was copied before parts had their run's name."""
    found = overlay()
    found.documents[0]["metadata"]["name"] = "paceline-server"
    return found


def sharded(*kinds: str, **data: Any) -> Overlay:
    """With these objects of the sharder."""
    found = overlay(data=data)
    labels = {"app.kubernetes.io/component": "sharder"}
    found.documents.extend({"kind": kind, "metadata": {"labels": labels}} for kind in kinds)
    return found


@pytest.mark.parametrize(
    "found",
    [overlay(), sharded("Job", "PersistentVolumeClaim"), sharded("Job", shards_at="s3://mine/shards")],
    ids=["plain", "volume", "bucket"],
)
def test_an_overlay_that_fits_its_settings_has_no_mistakes(found: Overlay):
    assert _mistakes(found) == []


def opened(*, has_tls: bool = True, **settings: Any) -> Overlay:
    """With the component outside."""
    found = overlay(**{"data": {"source": "server"}, **settings})
    is_streamed = found.config.data.source == "server"
    servers = found.documents[0]
    servers["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": TLS}] if has_tls else []
    service = {"kind": "Service", "metadata": {"name": "demo-paceline-outside-server-0"}, "spec": {}}
    labels = {"app.kubernetes.io/component": "sharder"}
    shards = {"kind": "Deployment", "metadata": {"name": "demo-paceline-shards", "labels": labels}, "spec": {}}
    return Overlay([*found.documents, service, *([shards] if is_streamed else [])], found.config)


def test_workers_from_outside_the_cluster_may_take_the_seats_that_pods_leave():
    assert _mistakes(opened(workers=3)) == []
    assert _mistakes(opened(workers=3, data={"shards_at": "s3://mine/shards"})) == []
    assert any("workers: 3" in mistake for mistake in _mistakes(overlay(workers=3)))


@pytest.mark.parametrize(
    ("found", "told_of"),
    [
        (overlay(replicas=3), "servers: 2, kustomization.yaml has 3"),
        (overlay(parallelism=3), "parallelism and completions 3 and 2"),
        (overlay(completions=4), "parallelism and completions 2 and 4"),
        (overlay(image="x/y:latest"), "x/y:latest has no fixed tag"),
        (overlay(image="host:5000/y"), "host:5000/y has no fixed tag"),
        (overlay(run=None), "'run: NAME'"),
        (unnamed(), "calls the servers paceline-server and labels them demo: give it namePrefix: NAME-"),
        (overlay(data={"source": "server"}), "the component data-server"),
        (sharded("Job"), "{shards_at: null}; with the component shards-in-bucket"),
        (sharded("Job", "PersistentVolumeClaim", shards_at="s3://a/b"), "{shards_at: s3://a/b}; with the component"),
        (opened(parallelism=3, completions=3), "parallelism and completions 3 and 3"),
        (opened(has_tls=False), "The component outside needs the component tls"),
        (opened(policy="ensemble"), "The component outside does not go with this run. Under the policy ensemble"),
        (opened(policy="ensemble", task="a.py", data={"source": "script"}), "leave out the component tls"),
    ],
)
def test_an_overlay_that_does_not_fit_its_settings_is_refused(found: Overlay, told_of: str):
    assert any(told_of in mistake for mistake in _mistakes(found))


@pytest.mark.parametrize("name", ["mine.py", "/etc/paceline/mine.py"])
def test_a_policy_of_the_users_own_lies_in_the_config_map(name: str, tmp_path: Path):
    data = {"run.yaml": f"policy: {{name: {name}, length: 3}}\n", "mine.py": POLICY}

    config = config_of([{"kind": "ConfigMap", "data": data}], tmp_path)

    assert config.policy.options == {"length": 3}
    with pytest.raises(ConfigError, match=rf"{name}: there is no such file. It is not at .*mine.py, nor next"):
        config_of([{"kind": "ConfigMap", "data": {"run.yaml": data["run.yaml"]}}], tmp_path)


def test_the_settings_of_a_task_file_in_the_config_map_count(tmp_path: Path):
    task, settings = "SETTINGS = {'workers': 3, 'epochs': 9}\n", "task: /etc/paceline/mine.py\nepochs: 2\n"

    config = config_of([{"kind": "ConfigMap", "data": {"run.yaml": settings, "mine.py": task}}], tmp_path)

    assert (config.workers, config.epochs) == (3, 2)


@pytest.mark.parametrize("key", ["../outside.py", "/tmp/outside.py", "..", ".", "a b.py", ""])
def test_a_key_that_no_config_map_can_have_is_refused(key: str, tmp_path: Path):
    documents = [{"kind": "ConfigMap", "data": {"run.yaml": "policy: asp\n", key: "x = 1\n"}}]

    with pytest.raises(ConfigError, match=rf"key {re.escape(repr(key))}; Kubernetes takes only letters"):
        config_of(documents, tmp_path)


def test_the_volumes_of_the_same_run_are_gone_on_with_whatever_other_runs_have_unless_it_had_more_servers():
    kept = [claim(f"checkpoints-demo-paceline-server-{index}") for index in range(3)]
    others = [claim(f"checkpoints-other-paceline-server-{index}") for index in range(5)]

    deploying._check_same_run(Cluster(*kept[:2], *others), overlay())
    with pytest.raises(ConfigError, match=r"cut for 3 servers.*servers: 2.*RUN=\.\.\..*make teardown purge RUN=demo"):
        deploying._check_same_run(Cluster(*kept), overlay())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A kubectl that says what the file next to it holds, on stderr, and fails."""
    file = tmp_path / "kubectl"
    file.write_text(f'#!/bin/sh\ncat "{tmp_path}/says" >&2\nexit 1\n')
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("says", "error", "told_of"),
    [
        ("The connection to localhost:8080 was refused - connection refused", Exception, "Is KUBECONFIG right"),
        ('Error from server (NotFound): jobs.batch "x" not found', NotThere, "not found"),
        (
            "Error from server (ServiceUnavailable): the server is currently unable to handle the request (get pods)",
            ServersGone,
            "can't reach a cluster: Error from server",
        ),
        (
            'Error from server (Forbidden): jobs.batch "x" is forbidden: User "me" cannot get resource "jobs"',
            Forbidden,
            "User",
        ),
        ("error: You must be logged in to the server (Unauthorized)", ConfigError, "Unauthorized"),
    ],
    ids=["gone", "missing", "starting", "forbidden", "refused"],
)
def test_what_kubectl_says_becomes_an_error(program: Path, says: str, error: type[Exception], told_of: str):
    (program.parent / "says").write_text(says)

    with pytest.raises(error, match=told_of):
        Kubectl("here", program=str(program)).run("get", "job/x")


def test_a_log_may_hold_any_bytes(program: Path):
    program.write_text("#!/bin/sh\nprintf '\\351 is open'\n")

    assert Kubectl("here", program=str(program)).logs("x") == "\ufffd is open"


def test_an_object_is_asked_for_again_while_the_api_server_does_not_answer(tmp_path: Path, program: Path):
    late = "net/http: TLS handshake timeout"
    program.write_text(
        f'#!/bin/sh\ncd "{tmp_path}"\n[ -e asked ] && echo \'{{"kind": "Job"}}\' && exit\n'
        f'touch asked; echo "Unable to connect to the server: {late}" >&2; exit 1\n'
    )
    assert Kubectl("here", program=str(program)).get("job/x") == {"kind": "Job"}


def test_a_cluster_that_never_answers_is_given_up(program: Path, monkeypatch: pytest.MonkeyPatch):
    (program.parent / "says").write_text("Unable to connect to the server: dial tcp: i/o timeout")
    monkeypatch.setattr(kubectl_module, "LONGEST", 0.3)

    with pytest.raises(ServersGone, match="can't reach a cluster: Unable to connect"):
        Kubectl("here", program=str(program)).get("job/x")


def test_without_kubectl_there_is_a_sentence():
    with pytest.raises(UsageError, match="no-such-kubectl is not installed here"):
        Kubectl("here", program="no-such-kubectl")


def test_a_scale_to_no_workers_is_refused():
    with pytest.raises(UsageError, match="make stop"):
        live_changes.scale(Cluster(), 0, print)


def test_the_same_cause_of_many_pods_is_one_line() -> None:
    def quota(part: str, used: int) -> dict[str, Any]:
        message = (
            f'Error creating: pods "{part}-x{used}" is forbidden: exceeded quota: team, requested: limits.memory=2Gi, '
            f"used: limits.memory={used}Gi, limited: limits.memory=8Gi"
        )
        return event("FailedCreate", message, "Job", part)

    crashed = [ended(78) | {"metadata": {"name": f"paceline-worker-{number}"}} for number in range(3)]
    events = [quota("paceline-worker", 7), quota("paceline-worker", 8), quota("paceline-evaluator", 8)]

    lines = finding_lines(
        findings(Seen(crashed, events=events), lambda pod, _: f"{pod[9:]}: ConfigError: The certificate ended.\n")
    )

    assert lines == [
        "job/paceline-worker, job/paceline-evaluator: the namespace's quota team is spent (limited: limits.memory=8Gi). "
        "Ask for less, or for a larger quota; what is used: kubectl describe quota.",
        "pod/paceline-worker-0, pod/paceline-worker-1, pod/paceline-worker-2: ended with exit code 78: ConfigError: "
        "The certificate ended.",
    ]


@pytest.mark.parametrize(("workers", "told_of"), [(2, []), (5, ["the run has 2 seats"])])
def test_a_scale_beyond_the_runs_seats_says_that_some_wait(workers: int, told_of: list[str]) -> None:
    spec = {"volumes": [{"name": "config", "configMap": {"name": "settings"}}]}
    job = {"kind": "Job", "metadata": {"name": "w", "labels": {"app.kubernetes.io/component": "worker"}}}
    job["spec"] = {"parallelism": 2, "completions": 2, "template": {"metadata": {}, "spec": spec}}
    settings = {"kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"run.yaml": "workers: 2\n"}}
    said: list[str] = []

    live_changes.scale(Cluster(job, settings), workers, said.append)

    assert [words for words in told_of if words in said[-1]] == told_of
    assert len(said) == 1 + len(told_of)


class Chief:
    """It takes a change of policy, and a stop."""

    def __init__(self, *_: object) -> None:
        self.calls: list[str] = []

    def stop(self, reason: str) -> bool:
        self.calls.append("stop")
        return True

    def set_policy(self, policy: dict[str, Any]) -> Switch:
        self.calls.append(f"set {policy['name']}")
        return Switch(number=1, policy=policy_message({"name": "ssp", "bound": 5}), version=7)

    def status(self) -> StatusReply:
        return StatusReply()

    def close(self) -> None: ...


def test_a_run_in_the_cluster_gets_another_policy_and_a_proper_end(monkeypatch: pytest.MonkeyPatch) -> None:
    chief = Chief()
    monkeypatch.setattr(live_changes, "chief_of", lambda kubectl: nullcontext(chief))
    servers = {"kind": "StatefulSet", "metadata": {"name": "demo-paceline-server"}, "spec": {"replicas": 2}}
    cluster = Cluster(servers)

    assert "ssp (bound 5) trains from version 7 on" in live_changes.set_policy(cluster, ["policy=ssp:5"])
    assert "run demo stops" in live_changes.stop(cluster)
    assert chief.calls == ["set ssp", "stop"]


def test_a_finished_run_gets_no_other_policy() -> None:
    servers = {"kind": "StatefulSet", "metadata": {"name": "demo-paceline-server"}, "spec": {"replicas": 0}}

    with pytest.raises(UsageError, match="Run demo is finished"):
        live_changes.set_policy(Cluster(servers), ["policy=ssp:5"])


def test_a_policy_file_of_the_users_own_is_refused_in_mid_run() -> None:
    with pytest.raises(UsageError, match="from the run's ConfigMap"):
        live_changes.set_policy(Cluster(), ["policy=./mine.py"])


def test_the_role_to_copy_may_delete_what_a_run_has() -> None:
    rules = yaml.safe_load((ROOT / "k8s/role.yaml").read_text())["rules"]
    allowed = {kind for rule in rules for kind in rule["resources"] if {"list", "delete"} <= set(rule["verbs"])}

    assert allowed >= set(deploying.KINDS) - {"roles", "rolebindings"} | {"secrets", "persistentvolumeclaims"}


def test_a_teardown_with_the_rights_of_an_editor_deletes_what_it_may_and_says_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Editor(Cluster):
        def may(self, verb: str, kind: str) -> bool:
            return "role" not in kind

    said: list[str] = []
    cluster = Editor(claim("checkpoints-0"))

    deploying.teardown(cluster, said.append)

    deleted = cluster.deleted[0].split(",")
    assert {"statefulsets", "jobs", "pods"} <= set(deleted)
    assert not {"roles", "rolebindings"} & set(deleted)
    assert said[0].startswith("you may not delete roles, rolebindings")
    assert "checkpoints-0" in said[1]


def test_who_may_delete_nothing_is_refused() -> None:
    class Viewer(Cluster):
        def may(self, verb: str, kind: str) -> bool:
            return False

    with pytest.raises(Forbidden, match="You may delete nothing"):
        deploying.teardown(Viewer(), print)


def test_who_may_not_look_at_namespaces_deploys_to_the_one_that_is_there() -> None:
    class Closed(Cluster):
        def get(self, *what: str) -> dict[str, Any]:
            raise Forbidden('namespaces "here" is forbidden')

    cluster = Closed()
    deploying.make_namespace(cluster, print)
    assert cluster.calls == []


def test_doctor_names_what_only_the_chief_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    status = StatusReply()
    status.servers.add(server=1).figures.disk_trouble = "No space left on device."
    status.workers.add(worker="worker-0", outage="pushes to server 1 fail")
    chief = Chief()
    monkeypatch.setattr(chief, "status", lambda: status)
    monkeypatch.setattr(following, "chief_of", lambda kubectl: nullcontext(chief))
    monkeypatch.setattr(State, "serves", property(lambda state: True))
    about = {"name": "demo-paceline-server"}
    template = {"spec": {"containers": [{}], "volumes": []}}
    servers = {"kind": "StatefulSet", "metadata": about, "spec": {"replicas": 2, "template": template}}
    job = {"kind": "Job", "metadata": {"name": "w", "labels": {"app.kubernetes.io/component": "worker"}}, "spec": {}}
    said: list[str] = []

    assert following.doctor(Cluster(servers, job), said.append) == DiskError.exit_code
    assert said[1].startswith("server-1 can't write its snapshots: No space left on device. Give its claim room")
    assert said[2] == "worker-0: pushes to server 1 fail"
    assert not any("no trouble" in line for line in said)


def test_a_finished_run_has_its_test_accuracy_as_result_and_says_why_it_has_ended():
    score = Score(epoch=3, metrics={"test_accuracy": 0.96666}, final=True)

    assert result_of(StatusReply(phase="RUN_PHASE_FINISHED", scores=[score])) == "test accuracy 0.9667"
    assert result_of(StatusReply(phase="RUN_PHASE_FINISHED")) == "test score unknown: the run was not scored"
    assert result_of(StatusReply(phase="RUN_PHASE_TRAINING", scores=[score])) == ""
    assert _why(StatusReply(phase="RUN_PHASE_FINISHED", reason="it diverged")) == ["Ended: it diverged"]
    assert _why(StatusReply(phase="RUN_PHASE_TRAINING")) == []


def test_a_finished_regression_has_its_loss_as_result_also_when_its_servers_are_gone():
    score = Score(metrics={"test_loss": 0.25, "test_r2": 0.5}, final=True, measure="min loss")
    line = {"event": "scored", "final": True, "measure": "min loss", "test_loss": 0.25, "test_r2": 0.5}

    class Logs(Cluster):
        def run(self, *arguments: str, stdin: str | None = None, seconds: float = 0) -> str:
            assert arguments[:2] == ("logs", "job/new")
            return json.dumps(line) + "\nnot JSON\n"

    assert result_of(StatusReply(phase="RUN_PHASE_FINISHED", scores=[score])) == "test loss 0.2500, r2 0.5000"
    jobs = job_of("evaluator", "new", NEW), job_of("evaluator", "old", OLD)
    assert end_of(Logs(*jobs)) == "test loss 0.2500, r2 0.5000"


def test_a_result_outlives_the_servers():
    kept = {"metadata": {"annotations": {"paceline.dev/result": "test accuracy 0.9"}}, "spec": {"replicas": 0}}

    assert kept_result(State(kept, {}, [], [], [])) == "test accuracy 0.9"
    assert kept_result(State(None, {}, [], [], [])) == ""


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The chief answers nobody, and nobody sleeps."""

    def chief_of(kubectl: object) -> Any:
        raise ServersGone("no such pod")

    monkeypatch.setattr(following, "chief_of", chief_of)
    own_time(monkeypatch, following, sleep=lambda seconds: None)
    return monkeypatch


def test_the_result_of_earlier_epochs_ends_no_run_that_goes_on(silent: pytest.MonkeyPatch):
    kept = {"metadata": {"annotations": {"paceline.dev/result": "test accuracy 0.9"}}}
    looks = [State(kept | {"spec": {"replicas": count}}, {}, [], [], []) for count in (2, 2, 0)]
    times = iter(range(0, 1000, 100))
    silent.setattr(following, "look", lambda kubectl: looks.pop(0))

    found = following.follow(Kubectl("n"), lambda text: None, lambda: float(next(times)))

    assert (found, looks) == ("test accuracy 0.9", [])


def test_a_run_that_is_torn_down_is_not_followed_any_longer(silent: pytest.MonkeyPatch):
    silent.setattr(following, "look", lambda kubectl: State(None, {}, [], [], []))

    with pytest.raises(Trouble, match="Run demo has no servers any more: somebody has torn it down") as caught:
        following.follow(Cluster(), lambda text: None)
    assert caught.value.exit_code == ServersGone.exit_code


def test_the_result_of_servers_that_autostop_has_scaled_down_is_in_the_evaluators_log(silent: pytest.MonkeyPatch):
    gone = State({"metadata": {}, "spec": {"replicas": 0}}, {}, [], [], [])
    silent.setattr(following, "look", lambda kubectl: gone)
    silent.setattr(following, "end_of", lambda kubectl: "test accuracy 0.9")

    assert following.follow(Cluster(), lambda text: None) == "test accuracy 0.9"


@pytest.mark.parametrize(
    ("part", "counts"),
    [
        ("pod/a-paceline-server-0", True),
        ("pod/a-paceline-shards-x", True),
        ("pod/a-paceline-worker-0-x", False),
        ("pod/a-paceline-sharder-x", False),
        ("job/a-paceline-sharder-x", False),
    ],
)
def test_servers_that_roll_are_waited_for_though_a_job_has_failed_before(part: str, counts: bool):
    assert deploying._is_of_servers(Finding(part, "", "")) is counts


def test_the_secret_that_deploy_makes_is_never_an_argument():
    cluster = Cluster()

    make_secrets(cluster, opened(has_tls=False), lambda text: None)

    (arguments,), (stdin,) = cluster.calls, cluster.stdin
    token = yaml.safe_load(stdin)["stringData"]["token"]
    assert len(token) >= 32
    assert all(token not in argument for argument in arguments)


def test_deploying_makes_the_certificate_that_all_processes_share(tmp_path: Path):
    cluster, said = Cluster(), list[str]()
    make_secrets(cluster, encrypted(), said.append)

    made = cluster.there[f"secret/{cluster.part('tls')}"]
    for name, content in made["stringData"].items():
        (tmp_path / name).write_text(content)
    assert (made["type"], read_keys(tmp_path).name) == ("kubernetes.io/tls", ANY_PROCESS)
    server, worker = cluster.part("server"), cluster.part("worker")
    called = [f"{server}-0.{server}", f"w-0.{worker}.{cluster.namespace}.svc", cluster.part("shards"), "127.0.0.1"]
    assert all(is_named(tmp_path, host) for host in called)
    assert "made the run's certificate" in said[-1]
    delete_secrets(cluster, said.append)
    assert cluster.there == {}


def encrypted() -> Overlay:
    """With the component tls."""
    found = overlay()
    found.documents[0]["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": TLS}]
    return found


def test_a_certificate_for_other_machines_is_left_to_who_knows_their_way():
    cluster = Cluster()
    with pytest.raises(ConfigError, match=r"demo-paceline-tls is missing, .*outside .* `paceline keys certs`"):
        make_secrets(cluster, opened(), lambda text: None)


def test_a_certificate_of_somebody_else_stays():
    secrets = [{"kind": "Secret", "metadata": {"name": f"demo-paceline-{name}"}} for name in ("token", "tls")]
    cluster = Cluster(*secrets)
    make_secrets(cluster, opened(), lambda text: None)
    delete_secrets(cluster, lambda text: None)
    assert list(cluster.there) == ["secret/demo-paceline-tls"]

    issued = {"kind": "Certificate", "metadata": {}, "spec": {"secretName": "demo-paceline-tls"}}
    found, waiting = encrypted(), Cluster()
    make_secrets(waiting, found._replace(documents=[*found.documents, issued]), lambda text: None)
    assert list(waiting.there) == ["secret/demo-paceline-token"]


def owned(name: str, phase: str, made: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 70, "reason": "Error"}}
    found = pod(name, phase=phase, containerStatuses=[container(state=state)])
    found["metadata"] |= {"creationTimestamp": made, "ownerReferences": [{"name": "paceline-worker"}]}
    found["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "0"}
    return found


def test_a_pod_that_failed_and_has_a_successor_is_no_trouble():
    failed, later = owned("a", "Failed", "2026-11-21T20:00:00Z"), pod("b", phase="Running")
    later["metadata"] |= owned("b", "Running", "2026-11-21T20:01:00Z")["metadata"]

    assert findings(Seen([failed, later])) == []
    later["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "1"}
    assert [one.part for one in findings(Seen([failed, later]))] == ["pod/a"]


def test_a_pod_that_could_not_be_made_at_first_is_no_trouble_once_it_is_there():
    why = event("FailedCreate", "exceeded quota", "Job", "paceline-worker") | {"lastTimestamp": "2026-11-21T20:00:30Z"}
    there = pod("b", phase="Running")
    there["metadata"] |= owned("b", "Running", "2026-11-21T20:01:00Z")["metadata"]

    assert findings(Seen([there], events=[why])) == []
    assert [one.part for one in findings(Seen(events=[why]))] == ["job/paceline-worker"]


def test_a_pod_for_which_the_cluster_grows_is_waited_for():
    waiting = unscheduled("Insufficient cpu")
    assert only(Seen([waiting])).fatal
    for reason in ("TriggeredScaleUp", "Nominated"):  # the cluster autoscaler, Karpenter
        assert not only(Seen([waiting], events=[event(reason, "a node", "Pod", "paceline-worker-0-x")])).fatal


@pytest.mark.parametrize(
    ("reason", "seconds", "counts"), [("Nominated", 800, True), ("FailedMount", 800, False), ("FailedMount", 100, True)]
)
def test_that_a_node_is_being_made_is_said_once_and_counts_for_longer(reason: str, seconds: float, counts: bool):
    at = datetime.now(UTC) - timedelta(seconds=seconds)

    assert cluster_status._is_recent({"reason": reason, "lastTimestamp": at.isoformat()}) is counts


def rolled(wanted: int = 2, ready: int = 2, updated: int = 2, observed: int = 3) -> dict[str, Any]:
    status = {"readyReplicas": ready, "updatedReplicas": updated, "observedGeneration": observed}
    return {"metadata": {"name": "x", "generation": 3}, "spec": {"replicas": wanted}, "status": status}


@pytest.mark.parametrize(
    ("servers", "shards", "serves"),
    [
        (rolled(), [], True),
        (rolled(ready=1), [], False),
        (rolled(updated=0), [], False),
        (rolled(observed=2), [], False),
        (rolled(), [rolled(wanted=1, ready=0)], False),
        (None, [], False),
    ],
    ids=["all", "not-ready", "old-ones", "not-seen-yet", "no-shards", "none"],
)
def test_servers_serve_when_all_are_ready_as_they_are_wanted_now(servers: Any, shards: list[Any], serves: bool):
    assert State(servers, {}, shards, [], []).serves is serves


def test_a_wait_for_parts_leaves_out_the_time_in_which_shards_are_made(monkeypatch: pytest.MonkeyPatch):
    making = pod("a-paceline-shards-x", phase="Running")
    making["metadata"]["labels"] = {"app.kubernetes.io/component": "sharder"}
    states = [State(None, {}, [rolled(wanted=1, ready=0)], pods, []) for pods in ([making], [making], [], [])]
    monkeypatch.setattr(deploying, "look", lambda kubectl: states.pop(0))
    own_time(monkeypatch, deploying, sleep=lambda seconds: None)
    times = iter((0, 1000, 2000, 2050, 2101))

    with pytest.raises(Trouble, match="its parts did not all run within 100 s"):
        deploying.wait_until(lambda state: False, Cluster(), lambda text: None, 100, lambda: float(next(times)))
    assert states == []


def test_a_copy_whose_reader_ends_first_is_an_error():
    with pytest.raises(DiskError, match="Copying failed"):
        volumes._piped(["yes"], ["false"], print)


def test_claims_that_are_there_keep_their_size():
    mine, there = (claim("paceline-data", spec={"resources": size}) for size in ("5Gi", "50Gi"))

    deploying._keep_sizes(Cluster(there), Overlay([mine], overlay().config))

    assert mine["spec"] == {"resources": "50Gi"}


def job_of(component: str, name: str, made: str, **status: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component}
    return {"kind": "Job", "metadata": {"name": name, "labels": labels, "creationTimestamp": made}, "status": status}


OLD, NEW = "2026-11-26T08:00:00Z", "2026-11-26T09:00:00Z"


def test_a_job_that_another_one_has_replaced_and_its_pods_that_have_ended_are_no_trouble():
    ends = (("w-old", "Failed"), ("w-old", "Running"), ("w-new", "Failed"))
    pods = [owned_by("worker", job, phase) for job, phase in ends]
    old = job_of("worker", "w-old", OLD, conditions=failed_job()["status"]["conditions"])
    jobs = [job_of("worker", "w-new", NEW), old]

    state = look(Cluster(*jobs, *pods))

    assert state.jobs["worker"]["metadata"]["name"] == "w-new"
    assert state.pods == pods[1:]
    assert [one.part for one in state.troubles if one.part.startswith("job/")] == []


def owned_by(component: str, job: str, phase: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component}
    metadata = {"name": f"{job}-{phase}", "labels": labels, "ownerReferences": [{"kind": "Job", "name": job}]}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}


def stuck(name: str, component: str) -> dict[str, Any]:
    """A pod whose image can't be had."""
    waiting = container(state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})
    found = pod(name, phase="Pending", containerStatuses=[waiting])
    found["metadata"]["labels"] = {"app.kubernetes.io/component": component}
    return found


def stuck_cluster(ready: int) -> Cluster:
    """Nothing of it can start."""
    return Cluster(
        job_of("worker", "demo-paceline-worker-a", NEW, ready=ready),
        stuck("demo-paceline-server-1", "server"),
        stuck("demo-paceline-worker-a-0-x", "worker"),
        stuck("demo-paceline-shards-b", "sharder"),
    )


def test_a_deploy_lets_servers_that_could_not_start_begin_again():
    cluster = stuck_cluster(ready=0)

    deploying._begin_again(cluster)

    assert cluster.deleted == ["pod/demo-paceline-server-1", "pod/demo-paceline-shards-b"]


@pytest.mark.parametrize(
    ("cluster", "same", "dropped"),
    [
        (Cluster(job_of("worker", "w-old", OLD), job_of("worker", "w-new", NEW)), "w-new", ["job/w-old"]),
        (stuck_cluster(0), "demo-paceline-worker-a", ["job/demo-paceline-worker-a"]),
        (stuck_cluster(1), "demo-paceline-worker-a", []),
    ],
    ids=["of the overlay before", "could not start", "has begun"],
)
def test_a_deploy_drops_jobs_of_before_and_makes_those_that_could_not_start_again(
    cluster: Cluster, same: str, dropped: list[str]
):
    deploying._drop_jobs(cluster, Overlay([job_of("worker", same, "")], Config()), lambda text: None)

    assert cluster.deleted == dropped
