"""The Secrets of a run that deploying makes: the word that its tokens are signed with, and its certificate."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress

import yaml

from paceline.core.errors import ConfigError
from paceline_k8s.cluster_status import has_tls
from paceline_k8s.kubectl import PARTS, RUN, Kubectl, NotThere
from paceline_k8s.overlay import Overlay, is_open

DAYS = 365
"""How long the certificate is valid."""
MADE_HERE = "paceline.dev/made-by"
"""The label of a Secret that goes with the run."""


def make_secrets(kubectl: Kubectl, overlay: Overlay, say: Callable[[str], None]) -> None:
    """Those that are missing. A certificate is made where the run has the component tls, and nobody else makes it. ConfigError:
    it must name an address that is not known here."""
    if kubectl.find(f"secret/{kubectl.part('token')}") is None:
        _make(kubectl, "token", {"token": secrets.token_urlsafe(32)})
        say(f"made the run's token (secret {kubectl.part('token')})")
    name, servers = kubectl.part("tls"), overlay.find("StatefulSet", "server")
    by_others = any(
        each["kind"] == "Certificate" and each["spec"].get("secretName") == name for each in overlay.documents
    )
    if servers is None or not has_tls(servers) or by_others or kubectl.find(f"secret/{name}") is not None:
        return
    if any(map(is_open, overlay.documents)):
        raise ConfigError(
            f"The Secret {name} is missing, and with the component outside its certificate must name the address that other "
            "machines call: make it by `paceline keys certs` (docs/run/outside-workers.md), then deploy again."
        )
    from paceline.rpc.certificates import HERE, Authority
    from paceline.rpc.tls import AUTHORITY, CERTIFICATE, KEY

    authority = Authority.new(DAYS)
    pair = authority.pair([*HERE, *hosts_of(kubectl, overlay)], days=DAYS)
    files = {AUTHORITY: authority.certificate, CERTIFICATE: pair.certificate, KEY: pair.key}
    _make(kubectl, "tls", {file: content.decode() for file, content in files.items()}, "kubernetes.io/tls")
    say(f"made the run's certificate (secret {name}), valid until {authority.until:%Y-%m-%d}")


def hosts_of(kubectl: Kubectl, overlay: Overlay) -> list[str]:
    """What the run's processes call each other by."""
    server, worker, shards = (kubectl.part(name) for name in ("server", "worker", "shards"))
    servers = [f"{server}-{index}.{server}" for index in range(overlay.config.server_processes)]
    return [*servers, f"*.{worker}.{kubectl.namespace}.svc", shards]


def delete_secrets(kubectl: Kubectl, say: Callable[[str], None]) -> None:
    """The token, and a certificate that was made here."""
    with suppress(NotThere):
        kubectl.run("delete", f"secret/{kubectl.part('token')}")
        say(f"deleted the token of run {kubectl.run_name}")
    made = [one["metadata"]["name"] for one in kubectl.items("secrets", f"{kubectl.selector},{MADE_HERE}")]
    if kubectl.part("tls") in made:
        kubectl.run("delete", f"secret/{kubectl.part('tls')}")
        say(f"deleted the certificate of run {kubectl.run_name}")


def _make(kubectl: Kubectl, part: str, content: Mapping[str, str], kind: str = "Opaque") -> None:
    labels = {**dict([PARTS.split("=")]), RUN: kubectl.run_name, MADE_HERE: "deploy"}
    metadata = {"name": kubectl.part(part), "labels": labels}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "stringData": dict(content)}
    kubectl.run("create", "--filename=-", stdin=yaml.safe_dump(secret))
