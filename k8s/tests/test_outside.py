"""The key with which machines outside the cluster take part in a run, and which runs have none; the cluster is in e2e/."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from paceline.base.variables import TLS
from paceline.cli.__main__ import app
from paceline.core.errors import ConfigError, PacelineError, UsageError
from paceline.launch.folder.cluster_key import ClusterKey
from paceline.rpc.auth import Credentials, authentication, held
from paceline_k8s.outside import make_key
from tests.support import kubectl
from tools.authority import Authority

NODE = "192.0.2.7"
SERVERS, SHARDS, SECRET = "statefulset/demo-paceline-server", "service/demo-paceline-shards", "secret/demo-paceline"
SERVICE = "service/demo-paceline-outside"


def node_port(number: int) -> dict[str, Any]:
    return {"spec": {"type": "NodePort", "ports": [{"port": 50051, "nodePort": number}]}}


def balancer(**found: str) -> dict[str, Any]:
    ingress = {"ingress": [found]} if found else {}
    return {"spec": {"type": "LoadBalancer", "ports": [{"port": 50051}]}, "status": {"loadBalancer": ingress}}


class Cluster(kubectl.Cluster):
    """Has a run demo of two servers with everything that it needs; `there` changes that."""

    def __init__(self, folder: Path) -> None:
        super().__init__(namespace="team-a")
        self.may_list_nodes = True
        keys = Authority().write(folder / "keys", NODE, "gpu.example.org")
        volumes = [{"name": "config", "configMap": {"name": "demo-paceline-config-x"}}]
        spec = {"volumes": volumes, "containers": [{"env": [{"name": TLS}]}]}
        self.there = {
            SERVERS: {"spec": {"replicas": 2, "template": {"spec": spec}}},
            SHARDS: {},
            "configmap/demo-paceline-config-x": {"data": {"run.yaml": "run: demo\ntask: rcv1\n", "mine.py": "x = 1\n"}},
            f"{SECRET}-token": {"data": {"token": base64.b64encode(b"the-secret-of-this-run\n").decode()}},
            f"{SECRET}-tls": {
                "data": {one.name: base64.b64encode(one.read_bytes()).decode() for one in keys.iterdir()}
            },
            f"{SERVICE}-server-0": node_port(30001),
            f"{SERVICE}-server-1": node_port(30002),
            f"{SERVICE}-shards": node_port(30003),
        }

    def items(self, kinds: str, selector: str | None = None) -> list[dict[str, Any]]:
        if kinds == "services":
            names = [name for name in self.there if name.startswith("service/")]
            return [{"metadata": {"name": name.partition("/")[2]}, **self.there[name]} for name in names]
        if not self.may_list_nodes:
            raise ConfigError("nodes is forbidden")
        ready = [{"type": "Ready", "status": "True"}]
        addresses = [{"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": NODE}]
        return [{"status": {"conditions": ready, "addresses": addresses}}]

    def runs(self, task: str, *files: str) -> None:
        """Workers run a script of this name, with these files in its ConfigMap."""
        volume = {"name": "script", "configMap": {"name": "demo-paceline-script"}}
        self.there["statefulset/demo-paceline-worker"] = {"spec": {"template": {"spec": {"volumes": [volume]}}}}
        self.there["configmap/demo-paceline-config-x"] = {
            "data": {"run.yaml": f"task: {task}\ndata: {{source: script}}\n"}
        }
        self.there["configmap/demo-paceline-script"] = {"data": dict.fromkeys(files, "print()\n")}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_key_has_what_a_worker_outside_needs_and_comes_back_from_its_file(cluster: Cluster, tmp_path: Path) -> None:
    key = make_key(cluster)

    assert key.servers == (f"{NODE}:30001", f"{NODE}:30002")
    assert (key.run, key.shard_server) == ("demo", f"{NODE}:30003")
    caller = authentication(Credentials("the-secret-of-this-run")).check(held(Credentials(key.token)).shown(), "Push")
    assert (caller.role, caller.name) == ("worker", "worker-*"), "it opens nothing but a worker's calls"
    assert key.files == {"run.yaml": "run: demo\ntask: rcv1\n", "mine.py": "x = 1\n"}
    assert "BEGIN CERTIFICATE" in key.authority
    assert "PRIVATE KEY" in key.key
    (tmp_path / "demo.key").write_text(key.text())
    assert ClusterKey.read(tmp_path / "demo.key") == key


def test_the_key_is_a_file_for_this_user_alone(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline_k8s.commands._run", lambda *asked, **more: cluster)
    file = tmp_path / "demo.key"

    done = CliRunner().invoke(app, ["k8s", "key", "--out", str(file)])

    said = " ".join(done.output.split())
    assert f"opens run demo to machines that reach {NODE}:30001, {NODE}:30002. Keep it like a password" in said
    assert "On such a machine: paceline join demo.key -w 1" in said
    assert file.stat().st_mode & 0o777 == 0o600
    failed = CliRunner().invoke(app, ["k8s", "key", "--out", str(tmp_path / "absent/demo.key")])
    assert (failed.exit_code, "No such file or directory. Give another file" in " ".join(failed.output.split())) == (
        64,
        True,
    )


def test_the_address_of_a_node_may_be_another_than_the_cluster_says(cluster: Cluster) -> None:
    cluster.may_list_nodes = False

    assert make_key(cluster, "gpu.example.org").servers[0] == "gpu.example.org:30001"
    with pytest.raises(UsageError, match=r"You may not list the cluster's nodes.* --address IP-OR-NAME"):
        make_key(cluster)


def test_a_load_balancer_has_an_address_of_its_own(cluster: Cluster) -> None:
    cluster.there[f"{SERVICE}-server-1"] = balancer(hostname="gpu.example.org")

    assert make_key(cluster).servers == (f"{NODE}:30001", "gpu.example.org:50051")


def test_a_script_goes_with_its_neighbours(cluster: Cluster) -> None:
    cluster.runs("/script/train.py", "train.py", "neighbour.py")
    del cluster.there[SHARDS]

    key = make_key(cluster)

    assert {"script/train.py", "script/neighbour.py"} <= set(key.files)
    assert (key.settings()["task"], key.shard_server) == ("script/train.py", "")


STORED = "run: demo\ntask: rcv1\ndata: {shards_at: 's3://mine/shards'}\n"


def in_a_bucket(settings: str) -> Any:
    """With the component shards-in-bucket, and these settings."""

    def change(cluster: Cluster) -> None:
        for name in (SHARDS, f"{SERVICE}-shards"):
            cluster.there.pop(name, None)
        cluster.there["configmap/demo-paceline-config-x"]["data"]["run.yaml"] = settings

    return change


def test_a_run_with_its_shards_in_a_bucket_needs_no_data_server_and_its_key_has_no_credentials(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.there["secret/paceline-object-store"] = {"data": {"AWS_SECRET_ACCESS_KEY": "bm90IGZvciBvdGhlcnM="}}
    in_a_bucket(STORED)(cluster)

    key = make_key(cluster)

    assert key.shard_server == ""
    assert key.settings()["data"] == {"shards_at": "s3://mine/shards"}
    assert "AWS" not in key.text()


def test_a_task_file_may_say_where_the_shards_are(cluster: Cluster) -> None:
    in_a_bucket("run: demo\ntask: /config/mine.py\n")(cluster)
    task = "SETTINGS = {'data': {'shards_at': 's3://mine/shards'}}\n\n\ndef data():\n    raise OSError\n"
    cluster.there["configmap/demo-paceline-config-x"]["data"]["mine.py"] = task

    assert make_key(cluster).shard_server == ""


def test_nothing_that_is_in_the_cluster_is_run_for_a_key(cluster: Cluster, tmp_path: Path) -> None:
    in_a_bucket(STORED + "policy: evil.py\n")(cluster)
    evil = f"open({str(tmp_path / 'run')!r}, 'w')\n"
    cluster.there["configmap/demo-paceline-config-x"]["data"]["evil.py"] = evil

    assert make_key(cluster).files["evil.py"] == evil
    assert not (tmp_path / "run").exists()


def without(what: str) -> Any:
    return lambda cluster: cluster.there.pop(what)


def plain(cluster: Cluster) -> None:
    cluster.there[SERVERS]["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "RUN"}]


def finished(cluster: Cluster) -> None:
    cluster.there[SERVERS]["spec"]["replicas"] = 0


@pytest.mark.parametrize(
    ("change", "error", "told_of"),
    [
        (without(SERVERS), UsageError, "Run demo in namespace team-a has no servers now.*make deploy"),
        (finished, UsageError, "has no servers now: it is finished"),
        (without(f"{SERVICE}-server-1"), ConfigError, "no Service demo-.*-server-1.*add the component outside"),
        (without(SHARDS), ConfigError, "Nothing streams the shards of run demo.*data-server.*or shards-in-bucket"),
        (
            in_a_bucket(STORED.replace("mine/", "me:secret@mine/")),
            ConfigError,
            "s3://mine/shards with a.*Leave them out",
        ),
        (
            in_a_bucket(STORED.replace("shards'", "shards?sig=abc'")),
            ConfigError,
            "s3://mine/shards with a.*by variables",
        ),
        (plain, ConfigError, "Run demo has no TLS.*add the component tls"),
        (
            lambda cluster: cluster.there.update({f"{SERVICE}-shards": balancer()}),
            ConfigError,
            "demo-paceline-outside-shards .type LoadBalancer. has no address outside the cluster.*leave it type NodePort",
        ),
        (
            lambda cluster: cluster.there.update({f"{SERVICE}-shards": balancer(ip="192.0.2.9")}),
            ConfigError,
            "Secret demo-paceline-tls does not name 192.0.2.9.*Make it again with 192.0.2.9 among its names",
        ),
        (lambda cluster: cluster.runs("/app/train.py"), ConfigError, "/app/train.py .* is in no ConfigMap.*SCRIPT="),
    ],
)
def test_a_run_that_can_not_be_joined_from_outside_has_no_key(
    cluster: Cluster, change: Any, error: type[PacelineError], told_of: str
) -> None:
    change(cluster)

    with pytest.raises(error, match=told_of):
        make_key(cluster)


@pytest.mark.parametrize(
    ("text", "told_of"),
    [
        ("mbkvkmwe-ilu4kocj\n", "is no key of a run on Kubernetes. Copy the whole file, or make one"),
        ("format: 2\nrun: demo\n", "has format 2; this release of Paceline reads formats up to 1"),
        (yaml.safe_dump({"format": 1, "run": "demo"}), "is no key of a run on Kubernetes"),
    ],
    ids=["another file", "newer", "cut off"],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, text: str, told_of: str) -> None:
    (tmp_path / "demo.key").write_text(text)

    with pytest.raises(PacelineError, match=told_of) as found:
        ClusterKey.read(tmp_path / "demo.key")
    assert found.value.exit_code in (64, 65)
