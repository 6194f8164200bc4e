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
from paceline_k8s.cluster_status import State, look
from paceline_k8s.deploy import Patience, Trouble
from paceline_k8s.findings import Finding, Seen, finding_lines, findings
from paceline_k8s.follow import _why
from paceline_k8s.kubectl import Forbidden, Kubectl, NotThere
from paceline_k8s.observation import DEADLINE, result_of
from paceline_k8s.overlay import Overlay, _mistakes, config_of
from paceline_k8s.pod_api import PodApi
from paceline_k8s.run_secrets import delete_secrets, make_secrets
from paceline_k8s.wanted import Failed, Memory, Result, Wanted
from tests.settings.test_own_extensions import POLICY
from tests.support.kubectl import Cluster, settings_map, state_map, statefulset
from tests.support.own_time import own_time
from tests.support.tree import ROOT

LIMITED = {"name": "worker", "resources": {"limits": {"memory": "1Gi"}}}
POD: dict[str, Any] = {"containers": [LIMITED]}


def pod(name: str = "paceline-worker-0", **status: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "worker"}
    return {"kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": POD, "status": status}


def claim(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, **more}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "worker", "image": "localhost/paceline-worker:9", "restartCount": 0, **state}


def event(reason: str, message: str, kind: str, name: str) -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"kind": kind, "name": name}}


class Api(ThreadingHTTPServer):
    """Kubernetes' API, as far as one object is read and patched."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Object)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.changes: list[Any] = []
        self.answer = 200
        self.asked: list[tuple[str, str, str]] = []


class _Object(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        if body := self.rfile.read(int(self.headers.get("Content-Length", 0))):
            self.server.changes.append(json.loads(body))
        self.send_response(self.server.answer)
        self.end_headers()
        self.wfile.write(json.dumps({"kind": "Scale"}).encode())

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
        (
            f"{ONE} had untolerated taint {{nvidia.com/gpu: present}}. preemption: 0/1 nodes",
            "add the component gpu (workers), or a toleration",
        ),
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

    assert [one.part for one in found] == ["claim/paceline-shards", "pod/paceline-worker-0"]
    assert '"fast" not found' in found[0].what
    assert "storage class" in found[0].todo


AGAIN = container(state={"running": {}}, lastState={"terminated": {"exitCode": 137, "reason": "Error"}}, ready=True)
NOT_READY = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]


WORKER, SET = "paceline-worker-0", "paceline-worker"
FORBIDDEN = 'pods "x" is forbidden: violates PodSecurity: runAsNonRoot'


def mount(message: str) -> dict[str, Any]:
    return event("FailedMount", message, "Pod", WORKER)


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    status = container(state={"terminated": {"exitCode": code, "reason": reason}})
    return pod(phase="Running", containerStatuses=[status])


@pytest.mark.parametrize(
    ("why", "part", "what", "todo"),
    [
        (mount('SetUp failed : secret "paceline-token" not found'), f"pod/{WORKER}", "paceline-token", "make deploy"),
        (mount('secret "paceline-tls" not found'), f"pod/{WORKER}", "paceline-tls", "docs/run/kubernetes-security.md"),
        (event("FailedCreate", FORBIDDEN, "StatefulSet", SET), f"statefulset/{SET}", "runAsNonRoot", ""),
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


def given_up(code: int = 78, kept: Memory | None = None) -> Cluster:
    """A run whose workers are not started again."""
    failed = {"worker": Failed("a", code, "worker-0: This task needs torch.")}
    parts = [statefulset("server", 2), statefulset("worker", 0), statefulset("evaluator", 1)]
    return Cluster(*parts, settings_map(), state_map(kept or Memory(failed=failed)))


def test_a_part_that_is_given_up_ends_a_wait_at_once_with_its_exit_code_and_the_words_of_its_process():
    state = look(given_up(code=65))
    of_the_part = lambda one: one.part.startswith("statefulset/")  # noqa: E731

    for patience in (Patience(), Patience(of_the_part)):
        with pytest.raises(
            Trouble, match=r"statefulset/demo-paceline-worker: ended with exit code 65.*needs torch"
        ) as e:
            patience.check(state, 0.0)
        assert e.value.exit_code == 65
    assert "kubectl rollout restart -n here statefulset/demo-paceline-worker" in finding_lines(state.troubles)[0]


def test_doctor_says_once_why_a_part_is_given_up() -> None:
    lines: list[str] = []

    assert following.doctor(given_up(), lines.append) == 78

    assert len([line for line in lines if "needs torch" in line]) == 1
    assert any("Servers start" in line for line in lines)


def test_what_was_given_up_before_the_end_is_no_trouble_of_a_finished_run():
    over = Memory(Result(20, "test accuracy 0.9"), {"worker": Failed("a", 78, "No GPU.")})

    assert look(given_up(kept=over)).troubles == []


def test_a_pod_whose_node_is_silent_is_named_with_what_to_do():
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    found = pod("paceline-server-1", phase="Running", conditions=conditions)
    found["spec"] = POD | {"nodeName": "node-7"}

    trouble = only(Seen([found]))

    assert "its node node-7 does not answer" in trouble.what
    assert "kubectl delete node node-7" in trouble.todo
    assert not trouble.fatal
    assert trouble.exit_code == 69


def test_other_trouble_may_last_half_a_minute():
    trouble, patience = Finding("pod/x", "no node takes it.", "Add one."), Patience()
    there, well = State({}, [], [trouble]), State({}, [], [])

    for now, state in ((0, there), (29, there), (30, well), (31, there), (60, there)):
        patience.check(state, now)
    with pytest.raises(Trouble) as raised:
        patience.check(there, 61)

    assert raised.value.exit_code == 78


def test_the_pods_api_is_read_and_patched_by_the_pods_own_account(tmp_path: Path, api: Api):
    (tmp_path / "namespace").write_text("mine\n")
    (tmp_path / "token").write_text("of the pod\n")
    asked = ("apis/apps/v1", "statefulsets/demo-paceline-server/scale")

    PodApi(tmp_path, api.url).get(*asked)
    assert PodApi(tmp_path, api.url).patch(*asked, {"spec": {"replicas": 0}}) == {"kind": "Scale"}

    path = "/apis/apps/v1/namespaces/mine/statefulsets/demo-paceline-server/scale"
    assert api.asked == [(method, path, "Bearer of the pod") for method in ("GET", "PATCH")]
    assert api.changes == [{"spec": {"replicas": 0}}]


def test_what_the_pods_api_can_not_do_is_told_apart_from_what_it_can_not_do_just_now(tmp_path: Path, api: Api):
    asked = ("apis/apps/v1", "statefulsets/x/scale", {})
    with pytest.raises(ConfigError, match="no service account"):
        PodApi(tmp_path, api.url).patch(*asked)
    for name in ("namespace", "token"):
        (tmp_path / name).write_text("mine")
    api.answer = 403
    with pytest.raises(ConfigError, match=r"refuses to patch statefulsets/x/scale \(403 Forbidden\).*their Role"):
        PodApi(tmp_path, api.url).patch(*asked)
    api.answer = 404
    with pytest.raises(NotThere, match="There is no statefulsets/x/scale in namespace mine"):
        PodApi(tmp_path, api.url).patch(*asked)
    with pytest.raises(TryAgain, match="does not answer"):
        PodApi(tmp_path, "http://127.0.0.1:9").patch(*asked)
    for api.answer in (429, 500, 503):
        with pytest.raises(TryAgain, match=f"answers {api.answer} .*may be busy"):
            PodApi(tmp_path, api.url).patch(*asked)


def test_the_same_trouble_of_several_parts_is_one_line():
    found = [Finding(f"pod/{name}", "no room.", "Add a node.") for name in "ab"]

    assert finding_lines(found) == ["pod/a, pod/b: no room. Add a node."]


def overlay(image: str = "x/y:1", replicas: int | None = None, **settings: Any) -> Overlay:
    """Servers and workers; `replicas`: a number that the workers' manifest has."""

    def part(component: str) -> dict[str, Any]:
        labels = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": component}
        spec = {"selector": {"matchLabels": labels}, "template": {"spec": {"containers": [{"image": image}]}}}
        about = {"name": f"demo-paceline-{component}", "labels": labels}
        return {"kind": "StatefulSet", "metadata": about, "spec": spec}

    servers, workers = part("server"), part("worker")
    if replicas is not None:
        workers["spec"]["replicas"] = replicas
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
    found.documents.extend({"kind": kind, "metadata": {"labels": labels}, "spec": {}} for kind in kinds)
    return found


@pytest.mark.parametrize(
    "found",
    [overlay(), sharded("StatefulSet", "PersistentVolumeClaim"), sharded("StatefulSet", shards_at="s3://mine/shards")],
    ids=["plain", "volume", "bucket"],
)
def test_an_overlay_that_fits_its_settings_has_no_mistakes(found: Overlay):
    assert _mistakes(found) == []


def overdue(seconds: str) -> Overlay:
    """With this deadline of the sharder's pods."""
    found = sharded("StatefulSet", "PersistentVolumeClaim")
    found.documents[2]["spec"] = {"template": {"metadata": {"annotations": {DEADLINE: seconds}}}}
    return found


@pytest.mark.parametrize(("seconds", "is_good"), [("86400", True), ("1d", False), ("-5", False)])
def test_a_deadline_that_is_no_number_of_seconds_is_refused(seconds: str, is_good: bool):
    found = _mistakes(overdue(seconds))

    assert is_good == (found == [])
    assert is_good or f"{DEADLINE}: '{seconds}'" in found[0]


def opened(*, has_tls: bool = True, **settings: Any) -> Overlay:
    """With the component outside."""
    found = overlay(**{"data": {"source": "server"}, **settings})
    is_streamed = found.config.data.source == "server"
    servers = found.documents[0]
    servers["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": TLS}] if has_tls else []
    service = {"kind": "Service", "metadata": {"name": "demo-paceline-outside-server-0"}, "spec": {}}
    labels = {"app.kubernetes.io/component": "sharder"}
    template = {"spec": {"containers": [{"image": "x/y:1", "args": ["serve"]}]}}
    about = {"name": "demo-paceline-sharder", "labels": labels}
    shards = {"kind": "StatefulSet", "metadata": about, "spec": {"template": template}}
    return Overlay([*found.documents, service, *([shards] if is_streamed else [])], found.config)


def test_workers_from_outside_the_cluster_may_take_part_in_a_run_with_any_shards_that_they_can_have():
    assert _mistakes(opened(workers=3)) == []
    assert _mistakes(opened(workers=3, data={"shards_at": "s3://mine/shards"})) == []


def test_a_run_has_as_many_pods_as_its_settings_say_and_fewer_workers_where_their_manifest_says_so():
    found = overlay(workers=3)
    assert found.pods == 5

    found.documents[1]["metadata"]["annotations"] = {"paceline.dev/workers": "1"}
    assert found.pods == 3


@pytest.mark.parametrize(
    ("found", "told_of"),
    [
        (overlay(replicas=3), "has replicas of demo-paceline-worker: take them out"),
        (overlay(image="x/y:latest"), "x/y:latest has no fixed tag"),
        (overlay(image="host:5000/y"), "host:5000/y has no fixed tag"),
        (overlay(run=None), "'run: NAME'"),
        (unnamed(), "calls the servers paceline-server and labels them demo: give it namePrefix: NAME-"),
        (overlay(data={"source": "server"}), "the component data-server"),
        (sharded("StatefulSet"), "{shards_at: null}; with the component shards-in-bucket"),
        (
            sharded("StatefulSet", "PersistentVolumeClaim", shards_at="s3://a/b"),
            "{shards_at: s3://a/b}; with the component",
        ),
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


def test_the_volumes_of_the_same_run_or_of_one_that_was_only_begun_are_gone_on_with_unless_it_had_more_servers():
    kept = [claim(f"checkpoints-demo-paceline-server-{index}") for index in range(3)]
    others = [claim(f"checkpoints-other-paceline-server-{index}") for index in range(5)]

    for size in (1, 2):
        deploying._check_same_run(Cluster(*kept[:size], *others), overlay())
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
        ('Error from server (NotFound): statefulsets.apps "x" not found', NotThere, "not found"),
        (
            "Error from server (ServiceUnavailable): the server is currently unable to handle the request (get pods)",
            ServersGone,
            "can't reach a cluster: Error from server",
        ),
        (
            'Error from server (Forbidden): statefulsets.apps "x" is forbidden: User "me" cannot get resource "statefulsets"',
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
        Kubectl("here", program=str(program)).run("get", "statefulset/x")


def test_a_log_may_hold_any_bytes(program: Path):
    program.write_text("#!/bin/sh\nprintf '\\351 is open'\n")

    assert Kubectl("here", program=str(program)).logs("x") == "\ufffd is open"


def test_an_object_is_asked_for_again_while_the_api_server_does_not_answer(tmp_path: Path, program: Path):
    late = "net/http: TLS handshake timeout"
    program.write_text(
        f'#!/bin/sh\ncd "{tmp_path}"\n[ -e asked ] && echo \'{{"kind": "StatefulSet"}}\' && exit\n'
        f'touch asked; echo "Unable to connect to the server: {late}" >&2; exit 1\n'
    )
    assert Kubectl("here", program=str(program)).get("statefulset/x") == {"kind": "StatefulSet"}


def test_a_cluster_that_never_answers_is_given_up(program: Path, monkeypatch: pytest.MonkeyPatch):
    (program.parent / "says").write_text("Unable to connect to the server: dial tcp: i/o timeout")
    monkeypatch.setattr(kubectl_module, "LONGEST", 0.3)

    with pytest.raises(ServersGone, match="can't reach a cluster: Unable to connect"):
        Kubectl("here", program=str(program)).get("statefulset/x")


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
        return event("FailedCreate", message, "StatefulSet", part)

    crashed = [ended(78) | {"metadata": {"name": f"paceline-worker-{number}"}} for number in range(3)]
    events = [quota("paceline-worker", 7), quota("paceline-worker", 8), quota("paceline-evaluator", 8)]

    lines = finding_lines(
        findings(Seen(crashed, events=events), lambda pod, _: f"{pod[9:]}: ConfigError: The certificate ended.\n")
    )

    assert lines == [
        "statefulset/paceline-worker, statefulset/paceline-evaluator: the namespace's quota team is spent "
        "(limited: limits.memory=8Gi). Ask for less, or for a larger quota; what is used: kubectl describe quota.",
        "pod/paceline-worker-0, pod/paceline-worker-1, pod/paceline-worker-2: ended with exit code 78: ConfigError: "
        "The certificate ended.",
    ]


@pytest.mark.parametrize(("workers", "told_of"), [(2, []), (5, ["the run has 2 seats"])])
def test_a_scale_is_noted_and_one_beyond_the_runs_seats_says_that_some_wait(workers: int, told_of: list[str]) -> None:
    said: list[str] = []
    cluster = Cluster(statefulset("worker", 2), settings_map(), state_map())

    live_changes.scale(cluster, workers, said.append)

    noted = f'--patch={{"data": {{"workers": "{workers}"}}}}'
    assert cluster.calls[0] == ("patch", "configmap/demo-paceline-state", "--type=merge", noted)
    assert [words for words in told_of if words in said[-1]] == told_of
    assert len(said) == 1 + len(told_of)


@pytest.mark.parametrize("has_controller", [False, True])
def test_a_scale_sets_the_number_by_itself_only_where_no_controller_does(has_controller: bool) -> None:
    parts = [statefulset(part, count) for part, count in (("server", 2), ("worker", 2), ("evaluator", 1))]
    kept = state_map(Memory(is_open=True))
    kept["data"]["workers"] = "1"  # as the patch leaves it, which this cluster only notes
    controllers = [{"kind": "Deployment", "metadata": {"name": "demo-paceline-controller"}}] if has_controller else []
    cluster = Cluster(*parts, settings_map(), kept, *controllers)

    live_changes.scale(cluster, 1, lambda line: None)

    scaled = [call for call in cluster.calls if call[0] == "scale"]
    assert scaled == ([] if has_controller else [("scale", "statefulset/demo-paceline-worker", "--replicas=1")])


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
    cluster = Cluster(statefulset("server", 2), settings_map(), state_map())

    assert "ssp (bound 5) trains from version 7 on" in live_changes.set_policy(cluster, ["policy=ssp:5"])
    assert "run demo stops" in live_changes.stop(cluster)
    assert chief.calls == ["set ssp", "stop"]


def test_a_finished_run_gets_no_other_policy() -> None:
    over = state_map(Memory(Result(20, "test accuracy 0.9")))
    cluster = Cluster(statefulset("server", 0), settings_map(), over)

    with pytest.raises(UsageError, match="Run demo is finished"):
        live_changes.set_policy(cluster, ["policy=ssp:5"])


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
    assert {"statefulsets", "pods"} <= set(deleted)
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
    servers, workers = statefulset("server", 2), statefulset("worker", 2)
    said: list[str] = []

    assert (
        following.doctor(
            Cluster(servers, workers, statefulset("evaluator", 1), settings_map(), state_map()), said.append
        )
        == DiskError.exit_code
    )
    assert said[1].startswith("server-1 can't write its snapshots: No space left on device. Give its claim room")
    assert said[2] == "worker-0: pushes to server 1 fail"
    assert not any("no trouble" in line for line in said)
    assert said[-1].startswith("note: the run has no controller")


def test_a_finished_run_has_its_test_accuracy_as_result_and_says_why_it_has_ended():
    score = Score(epoch=3, metrics={"test_accuracy": 0.96666}, final=True)

    assert result_of(StatusReply(phase="RUN_PHASE_FINISHED", scores=[score])) == "test accuracy 0.9667"
    assert result_of(StatusReply(phase="RUN_PHASE_FINISHED")) == "test score unknown: the run was not scored"
    assert result_of(StatusReply(phase="RUN_PHASE_TRAINING", scores=[score])) == ""
    assert _why(StatusReply(phase="RUN_PHASE_FINISHED", reason="it diverged")) == ["Ended: it diverged"]
    assert _why(StatusReply(phase="RUN_PHASE_TRAINING")) == []


def test_a_finished_regression_has_its_loss_as_result():
    score = Score(metrics={"test_loss": 0.25, "test_r2": 0.5}, final=True, measure="min loss")

    assert result_of(StatusReply(phase="RUN_PHASE_FINISHED", scores=[score])) == "test loss 0.2500, r2 0.5000"


OVER = Memory(Result(20, "test accuracy 0.9", "The budget is spent."))


def test_a_result_outlives_the_servers_and_their_logs():
    assert look(Cluster(statefulset("server", 0), settings_map(), state_map(OVER))).result == OVER.result
    assert look(Cluster()).result is None


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The chief answers nobody, and nobody sleeps."""

    def chief_of(kubectl: object) -> Any:
        raise ServersGone("no such pod")

    monkeypatch.setattr(following, "chief_of", chief_of)
    own_time(monkeypatch, following, sleep=lambda seconds: None)
    return monkeypatch


def goes_on(kept: Memory) -> State:
    """A look at a run that has ended, or goes on."""
    return State({"server": statefulset("server", 2)}, [], [], Wanted({}, kept, ""))


def test_the_result_of_earlier_epochs_ends_no_run_that_goes_on(silent: pytest.MonkeyPatch):
    looks = [goes_on(kept) for kept in (Memory(), Memory(), OVER)]
    times = iter(range(0, 1000, 100))
    silent.setattr(following, "look", lambda kubectl: looks.pop(0))

    found = following.follow(Kubectl("n"), lambda text: None, lambda: float(next(times)))

    assert (found, looks) == ("Ended: The budget is spent.\ntest accuracy 0.9", [])


def test_a_run_that_is_torn_down_is_not_followed_any_longer(silent: pytest.MonkeyPatch):
    silent.setattr(following, "look", lambda kubectl: State({}, [], []))

    with pytest.raises(Trouble, match="Run demo has no servers any more: somebody has torn it down") as caught:
        following.follow(Cluster(), lambda text: None)
    assert caught.value.exit_code == ServersGone.exit_code


@pytest.mark.parametrize(
    ("part", "ends"),
    [
        ("pod/demo-paceline-server-0", True),
        ("statefulset/demo-paceline-evaluator", True),
        ("pod/demo-paceline-worker-0", False),
        ("pod/demo-paceline-sharder-0", False),
    ],
)
def test_a_run_is_followed_until_a_server_can_not_come_up_or_a_part_is_given_up(
    silent: pytest.MonkeyPatch, part: str, ends: bool
):
    trouble = State({"server": {}}, [], [Finding(part, "it is stuck.", "Help.", lasting=50.0)])
    looks = [trouble, trouble, goes_on(OVER)]
    times = iter(range(0, 1000, 100))
    silent.setattr(following, "look", lambda kubectl: looks.pop(0))
    said: list[str] = []

    with pytest.raises(Trouble, match="it is stuck") if ends else nullcontext():
        following.follow(Kubectl("n"), said.append, lambda: float(next(times)))
    assert (f"{part}: it is stuck. Help." in said, len(looks)) == (True, int(ends))


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


def test_a_pod_that_could_not_be_made_at_first_is_no_trouble_once_it_is_there():
    why = event("FailedCreate", "exceeded quota", "StatefulSet", SET) | {"lastTimestamp": "2026-11-21T20:00:30Z"}
    there = pod(phase="Running")
    there["metadata"] |= {"creationTimestamp": "2026-11-21T20:01:00Z", "ownerReferences": [{"name": SET}]}

    assert findings(Seen([there], events=[why])) == []
    assert [one.part for one in findings(Seen(events=[why]))] == ["statefulset/paceline-worker"]


def test_a_pod_for_which_the_cluster_grows_is_waited_for():
    waiting = unscheduled("Insufficient cpu")
    assert only(Seen([waiting])).fatal
    for reason in ("TriggeredScaleUp", "Nominated"):  # the cluster autoscaler, Karpenter
        assert not only(Seen([waiting], events=[event(reason, "a node", "Pod", "paceline-worker-0")])).fatal


@pytest.mark.parametrize(
    ("reason", "seconds", "counts"), [("Nominated", 800, True), ("FailedMount", 800, False), ("FailedMount", 100, True)]
)
def test_that_a_node_is_being_made_is_said_once_and_counts_for_longer(reason: str, seconds: float, counts: bool):
    at = datetime.now(UTC) - timedelta(seconds=seconds)

    assert cluster_status._is_recent({"reason": reason, "lastTimestamp": at.isoformat()}) is counts


def rolled(ready: int = 2, updated: int = 2, observed: int = 1, replicas: int = 2) -> dict[str, Any]:
    return statefulset("server", replicas, readyReplicas=ready, updatedReplicas=updated, observedGeneration=observed)


@pytest.mark.parametrize(
    ("servers", "serves"),
    [
        (rolled(), True),
        (rolled(ready=1), False),
        (rolled(updated=0), False),
        (rolled(observed=0), False),
        (rolled(replicas=0, ready=0), False),
        (None, False),
    ],
    ids=["all", "not-ready", "old-ones", "not-seen-yet", "not-begun", "none"],
)
def test_servers_serve_when_all_are_ready_as_they_are_wanted_now(servers: Any, serves: bool):
    parts = {} if servers is None else {"server": servers}

    assert State(parts, [], [], Wanted({"server": 2}, Memory(), "")).serves is serves


@pytest.mark.parametrize(
    ("workers", "kept", "is_up"),
    [(2, Memory(), True), (0, Memory(), False), (0, OVER, True)],
    ids=["all", "late", "over"],
)
def test_a_run_is_up_once_it_has_workers_or_has_ended(workers: int, kept: Memory, is_up: bool):
    parts = {"server": rolled(), "worker": statefulset("worker", workers, readyReplicas=2, updatedReplicas=2)}

    assert State(parts, [], [], Wanted({"server": 2, "worker": workers}, kept, "")).is_up is is_up


def test_a_wait_for_parts_leaves_out_the_time_in_which_shards_are_made(monkeypatch: pytest.MonkeyPatch):
    making, made = ({"sharder": 1, "worker": 0}, {"sharder": 0, "worker": 2})
    states = [State({}, [], [], Wanted(counts, Memory(), "")) for counts in (making, making, made, made)]
    monkeypatch.setattr(deploying, "look", lambda kubectl: states.pop(0))
    monkeypatch.setattr(deploying, "control", lambda *told: None)
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


def stuck(part: str) -> dict[str, Any]:
    """A pod whose image can't be had."""
    waiting = container(state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})
    found = pod(f"demo-paceline-{part}", phase="Pending", containerStatuses=[waiting])
    found["metadata"]["labels"] = {"app.kubernetes.io/component": part.partition("-")[0]}
    return found


def test_a_deploy_lets_pods_that_could_not_start_and_parts_that_were_given_up_begin_again():
    cluster = given_up()
    cluster.there |= {f"pod/{one}": stuck(one) for one in ("server-1", "worker-0")}

    deploying._begin_again(cluster)

    assert cluster.deleted == ["pod/demo-paceline-server-1", "pod/demo-paceline-worker-0"]
    assert ("rollout", "restart", "statefulset/demo-paceline-worker") in cluster.calls


@pytest.mark.parametrize("has_controller", [True, False])
def test_who_may_not_create_roles_sets_the_numbers_himself(has_controller: bool):
    cluster = given_up()
    if has_controller:
        cluster.there["deployment/demo-paceline-controller"] = {}

    deploying.control(cluster, look(cluster))

    scaled = [call[1:] for call in cluster.calls if call[0] == "scale"]
    assert scaled == ([] if has_controller else [("statefulset/demo-paceline-evaluator", "--replicas=0")])
