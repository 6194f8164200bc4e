"""The key of a run, with which machines outside the cluster take part in it: what it holds is asked of the cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.cluster_key import SCRIPT, SETTINGS, ClusterKey
from paceline.rpc.listening import with_port
from paceline.rpc.tls import AUTHORITY, CERTIFICATE, KEY, is_named, read_keys
from paceline.rpc.token_file import run_secret
from paceline.settings.load_settings import parse_yaml
from paceline.tasks.written_settings import written_settings
from paceline_k8s.cluster_status import keys_of, secret_of
from paceline_k8s.findings import condition
from paceline_k8s.kubectl import Kubectl, settings_of
from paceline_k8s.script import script_of
from paceline_k8s.wanted import WORKER

_PAGE = "docs/run/outside-workers.md"
Document = dict[str, Any]


def make_key(kubectl: Kubectl, address: str = "") -> ClusterKey:
    """The key as it is now. `address`: IP or name of a node as others reach it; empty: what the cluster says. UsageError,
    ConfigError: the run has no servers now, or is not open to others."""
    servers = kubectl.find(kubectl.servers)
    if servers is None or not servers["spec"].get("replicas", 1):
        raise UsageError(
            f"Run {kubectl.run_name} in namespace {kubectl.namespace} has no servers now: it is finished, or was torn down. "
            f"To go on with it: make deploy OVERLAY=... (or CONFIG=...) RUN={kubectl.run_name}."
        )
    where = _Ways(kubectl, address)
    addresses = [where.to(f"server-{index}") for index in range(servers["spec"].get("replicas", 1))]
    script = script_of(kubectl.find(f"statefulset/{kubectl.part(WORKER)}") or {})
    files = _files(kubectl, servers, script)
    is_stored = not script and _is_stored(kubectl.run_name, files)
    if not script and not is_stored and kubectl.find(f"service/{kubectl.part('shards')}") is None:
        raise ConfigError(
            f"Nothing streams the shards of run {kubectl.run_name}, so machines outside the cluster can't have them: add the "
            "component data-server, with data.source: server in run.yaml, or shards-in-bucket, with data.shards_at "
            f"({_PAGE})."
        )
    shards = "" if script or is_stored else where.to("shards")
    authority, certificate, own = _keys(kubectl, [each for each in (*addresses, shards) if each])
    key = ClusterKey(
        run=kubectl.run_name,
        servers=tuple(addresses),
        shard_server=shards,
        token=_token(kubectl),
        authority=authority,
        certificate=certificate,
        key=own,
        files=files,
    )
    key.settings()
    return key


def _token(kubectl: Kubectl) -> str:
    """The token file for any worker of the run."""
    text = secret_of(kubectl, "token")["token"].decode()
    return run_secret(text, f"The Secret {kubectl.part('token')}").issued(kubectl.run_name, "worker", "worker-*")


class _Ways:
    """By which others reach the run's parts: the Services of the component outside."""

    def __init__(self, kubectl: Kubectl, address: str) -> None:
        """`address`: as in `make_key`."""
        self._kubectl = kubectl
        self._there = {one["metadata"]["name"]: one for one in kubectl.items("services")}
        self._address = address

    def to(self, part: str) -> str:
        """host:port of one. ConfigError: it has none."""
        name = self._kubectl.part(f"outside-{part}")
        if name not in self._there:
            raise ConfigError(
                f"There is no Service {name}, by which machines outside the cluster reach this part: add the component "
                f"outside, which has them for two servers, and one for each further server ({_PAGE})."
            )
        service = self._there[name]
        spec, (port, *_) = service["spec"], service["spec"]["ports"]
        if spec["type"] == "NodePort":
            self._address = self._address or _node(self._kubectl)
            return with_port(self._address, port["nodePort"])
        found = service.get("status", {}).get("loadBalancer", {}).get("ingress") or []
        if spec["type"] != "LoadBalancer" or not found:
            raise ConfigError(
                f"Service {name} (type {spec['type']}) has no address outside the cluster. It may take minutes to get one "
                f"(kubectl get service {name}); where none comes, leave it type NodePort."
            )
        return with_port(found[0].get("ip") or found[0]["hostname"], port["port"])


def _node(kubectl: Kubectl) -> str:
    """The address of a node that is ready, the outer one where it has one. UsageError: none is known."""
    try:
        nodes = kubectl.items("nodes", "")
    except ConfigError:  # not everybody may list them
        nodes = []
    for kind in ("ExternalIP", "InternalIP"):
        for node in (one for one in nodes if condition(one, "Ready") is not None):
            for each in node["status"].get("addresses", []):
                if each["type"] == kind:
                    return str(each["address"])
    raise UsageError("You may not list the cluster's nodes. Say how others reach one: --address IP-OR-NAME.")


def _keys(kubectl: Kubectl, addresses: Sequence[str]) -> list[str]:
    """The run's authority, certificate and key (PEM), which fit these addresses. ConfigError: they don't, or it has none."""
    with TemporaryDirectory() as folder:
        keys = keys_of(kubectl, Path(folder))
        if keys is None:
            raise ConfigError(
                f"Run {kubectl.run_name} has no TLS, so its token could be read on the way: add the component tls ({_PAGE})."
            )
        read_keys(keys)
        for host in dict.fromkeys(each.rpartition(":")[0].strip("[]") for each in addresses):
            if not is_named(keys, host):
                raise ConfigError(
                    f"The certificate in the Secret {kubectl.part('tls')} does not name {host}, by which others call the "
                    f"servers. Make it again with {host} among its names, or say another address of a node with --address "
                    f"({_PAGE})."
                )
        return [(keys / name).read_text() for name in (AUTHORITY, CERTIFICATE, KEY)]


def _files(kubectl: Kubectl, servers: Document, script: str) -> dict[str, str]:
    """The settings and what lies next to them, and the script with its neighbours."""
    found = kubectl.get(f"configmap/{settings_of(servers)}")["data"]
    files = {name: text for name, text in found.items() if name == SETTINGS or name.endswith(".py")}
    beside = (kubectl.find(f"configmap/{script}") or {}).get("data", {}) if script else {}
    return files | {f"{SCRIPT}/{name}": text for name, text in beside.items()}


def _shards_at(run: str, files: Mapping[str, str]) -> str | None:
    """data.shards_at of these settings, or of the task file among them. Nothing that is in the cluster is run here."""
    try:
        said = parse_yaml(files[SETTINGS])
        task = Path(str(said.get("task", "")))
        if task.name in files and not set(Config.model_fields) <= set(said):
            with TemporaryDirectory() as folder:
                (Path(folder) / task.name).write_text(files[task.name])
                below = written_settings(Path(folder) / task.name, said.get("model"), said)
        else:
            below = {}
        found = {**(below.get("data") or {}), **(said.get("data") or {})}.get("shards_at")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(f"Can't read the settings of run {run}: {error}. Deploy it again.") from error
    return None if found is None else str(found)


def _is_stored(run: str, files: Mapping[str, str]) -> bool:
    """Whether these settings keep the shards in an object store, which each machine reads with its own credentials.
    ConfigError: the URL has some in it, which everybody with the key would get."""
    url = _shards_at(run, files)
    parts = urlsplit(url or "")
    if parts.password is not None or parts.query:
        bare = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise ConfigError(
            f"data.shards_at of run {run} is {bare} with a password or a query in it, which everybody with the key would "
            f"get. Leave them out, and give credentials by variables (docs/run/object-stores.md)."
        )
    return url is not None
