"""The user's kubectl, called as a program: the cluster that it points to is the one."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from paceline.core.errors import ConfigError, ServersGone, UsageError
from paceline.rpc.retries import backoff

PARTS = "app.kubernetes.io/part-of=paceline"
"""Label selector of all that belongs to any run."""
COMPONENT, RUN = "app.kubernetes.io/component", "app.kubernetes.io/instance"
"""Labels of a part: what it is, and the run that it is of."""
GRPC = 50051
DATA = "paceline-data"
"""The claim of the input data, which all runs of a namespace read."""
TEXT: Any = {"text": True, "encoding": "utf-8", "errors": "replace"}
"""How what programs print is read: a log may hold any bytes."""
LONGEST = 10.0
"""Time after which an object is not asked for again, when no cluster answers (seconds)."""
_GONE = (
    "connection refused",
    "no such host",
    "unable to connect",
    "i/o timeout",
    "tls handshake",
    "service unavailable",
    "(serviceunavailable)",
    "(internalerror)",
    "unable to handle the request",
    "timed out",
    "timeout",
    "deadline exceeded",
    "unexpected eof",
    "too many requests",
)


def part_name(run: str, part: str) -> str:
    """'demo-paceline-server' for the part server of the run demo."""
    return f"{run}-paceline-{part}"


def pod_spec(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the spec of the pods that an object makes; an empty one if it makes none."""
    found: dict[str, Any] = document.get("spec", {}).get("template", {}).get("spec", {})
    return found


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the containers of the pods that an object makes, those that begin first in front."""
    spec = pod_spec(document)
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def settings_of(workload: dict[str, Any]) -> str:
    """The name of the ConfigMap with the run's settings that its pods mount."""
    return settings_of_pod(workload["spec"]["template"]["spec"])


def settings_of_pod(spec: dict[str, Any]) -> str:
    """The same of a pod's spec."""
    return str(next(volume["configMap"]["name"] for volume in spec["volumes"] if volume["name"] == "config"))


class NotThere(ConfigError):
    """What was asked for does not exist."""


class Forbidden(ConfigError):
    """The cluster does not let this user do it."""


class Kubectl:
    """One namespace of one cluster, and the run in it that is meant, if one is."""

    def __init__(self, namespace: str, run_name: str = "", program: str = "kubectl") -> None:
        """UsageError where there is no such program."""
        if shutil.which(program) is None:
            raise UsageError(
                f"{program} is not installed here. Install it, and connect it to your cluster (KUBECONFIG)."
            )
        self.namespace = namespace
        self.run_name = run_name
        self._program = program

    def of_run(self, name: str) -> "Kubectl":
        """The same namespace, and this run in it."""
        return Kubectl(self.namespace, name, self._program)

    # what the run's parts are called
    def part(self, name: str) -> str:
        """What the run's part of that name is called."""
        return part_name(self.run_name, name)

    @property
    def servers(self) -> str:
        return f"statefulset/{self.part('server')}"

    @property
    def state(self) -> str:
        """The ConfigMap of what the run's controller notes."""
        return f"configmap/{self.part('state')}"

    @property
    def chief_pod(self) -> str:
        return f"{self.part('server')}-0"

    @property
    def selector(self) -> str:
        """Of all parts of the run; of any run where none is meant."""
        return f"{PARTS},{RUN}={self.run_name}" if self.run_name else PARTS

    def command(self, *arguments: str) -> list[str]:
        return [self._program, "--namespace", self.namespace, *arguments]

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
        """What it prints. NotThere, Forbidden, ServersGone (no cluster answers) or ConfigError (the cluster refuses), in its
        words."""
        command = self.command(*arguments)
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, timeout=seconds, **TEXT)
        except subprocess.TimeoutExpired as error:
            raise ServersGone(
                f"kubectl {arguments[0]} took longer than {seconds:.0f} s. Does the cluster answer?"
            ) from error
        if done.returncode == 0:
            return str(done.stdout)
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        if "(NotFound)" in said:
            raise NotThere(said)
        if "(Forbidden)" in said and "is forbidden: User " in said:  # not by a quota, or by Pod Security
            raise Forbidden(f"kubectl {' '.join(arguments[:2])}: {said}")
        if any(word in said.lower() for word in _GONE):
            raise ServersGone(
                f"kubectl can't reach a cluster: {said.splitlines()[-1]}. Is KUBECONFIG right, and is the cluster "
                "running?"
            )
        raise ConfigError(f"kubectl {' '.join(arguments[:2])}: {said}")

    def kustomized(self, folder: Path) -> list[dict[str, Any]]:
        """Returns the objects that kustomize makes of a folder; no cluster is asked. Raises ConfigError in its words."""
        return [found for found in yaml.safe_load_all(self.run("kustomize", str(folder))) if found]

    def get(self, *what: str) -> dict[str, Any]:
        """One object, or a list, as JSON; asked for again, for `LONGEST`, while a busy API server does not answer."""
        began = time.monotonic()
        for pause in backoff():
            try:
                said = self.run("get", *what, "--output=json", "--request-timeout=9s", seconds=20)
            except ServersGone:
                if time.monotonic() + pause > began + LONGEST:
                    raise
            else:
                found: dict[str, Any] = json.loads(said)
                return found
            time.sleep(pause)
        raise AssertionError("backoff never ends")

    def items(self, kinds: str, selector: str | None = None) -> list[dict[str, Any]]:
        """The objects of these kinds, as 'pods,services', with a label; default: those of the run, '': all."""
        labels = self.selector if selector is None else selector
        found: list[dict[str, Any]] = self.get(kinds, *([f"--selector={labels}"] if labels else []))["items"]
        return found

    def find(self, what: str) -> dict[str, Any] | None:
        """One object, as 'pod/NAME'; None where it does not exist."""
        try:
            return self.get(what)
        except NotThere:
            return None

    def may(self, verb: str, kind: str) -> bool:
        """Whether this user may do that in the namespace. ServersGone where no cluster answers."""
        try:
            self.run("auth", "can-i", verb, kind, "--quiet")
        except ConfigError:
            return False
        return True

    def logs(self, pod: str, lines: int = 40, previous: bool = False) -> str:
        """The pod's last lines; nothing where there are none (yet, or any more)."""
        try:
            return self.run("logs", pod, f"--tail={lines}", *(["--previous"] if previous else []))
        except (ConfigError, ServersGone):
            return ""

    @contextmanager
    def forwarded(self, pod: str, port: int) -> Iterator[str]:
        """A port of a pod as 'host:port' here, until the block ends. ServersGone where it can't be had."""
        command = self.command("port-forward", f"pod/{pod}", f":{port}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **TEXT) as forward:
            try:
                assert forward.stdout is not None
                said = []
                for line in forward.stdout:
                    said.append(line.strip())
                    if "Forwarding from " in line:
                        break
                else:
                    raise ServersGone(f"Can't reach {pod}: {' '.join(said) or 'kubectl port-forward says nothing'}")
                yield said[-1].partition("Forwarding from ")[2].partition(" ->")[0]
            finally:
                forward.terminate()
