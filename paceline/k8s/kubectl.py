"""The user's kubectl, called as a program: the cluster that it points to is the one."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paceline.core.errors import ConfigError, ServersGone, UsageError

PARTS = "app.kubernetes.io/part-of=paceline"
"""Label selector of all that belongs to a run."""
COMPONENT = "app.kubernetes.io/component"
SERVERS, WORKERS, SHARDS = "statefulset/paceline-server", "job/paceline-worker", "deployment/paceline-shards"
CHIEF, GRPC, TOKEN, KEYS = "paceline-server-0", 50051, "paceline-token", "paceline-tls"
_GONE = (
    "connection refused",
    "no such host",
    "unable to connect",
    "i/o timeout",
    "tls handshake",
    "service unavailable",
    "timed out",
    "timeout",
    "deadline exceeded",
    "unexpected eof",
    "too many requests",
)


class NotThere(ConfigError):
    """What was asked for does not exist."""


class Kubectl:
    """One namespace of one cluster."""

    def __init__(self, namespace: str, program: str = "kubectl") -> None:
        """UsageError where there is no such program."""
        if shutil.which(program) is None:
            raise UsageError(
                f"{program} is not installed here. Install it, and connect it to your cluster (KUBECONFIG)."
            )
        self.namespace = namespace
        self._program = program

    def command(self, *arguments: str) -> list[str]:
        return [self._program, "--namespace", self.namespace, *arguments]

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
        """What it prints. NotThere, ServersGone (no cluster answers) or ConfigError (the cluster refuses), in its words."""
        command = self.command(*arguments)
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise ServersGone(
                f"kubectl {arguments[0]} took longer than {seconds:.0f} s. Does the cluster answer?"
            ) from error
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        if "(NotFound)" in said:
            raise NotThere(said)
        if any(word in said.lower() for word in _GONE):
            raise ServersGone(
                f"kubectl can't reach a cluster: {said.splitlines()[-1]}. Is KUBECONFIG right, and is the cluster "
                "running?"
            )
        raise ConfigError(f"kubectl {' '.join(arguments[:2])}: {said}")

    def get(self, *what: str) -> dict[str, Any]:
        """One object, or a list, as JSON."""
        found: dict[str, Any] = json.loads(self.run("get", *what, "--output=json", "--request-timeout=9s", seconds=20))
        return found

    def items(self, kinds: str, selector: str = PARTS) -> list[dict[str, Any]]:
        """The objects of these kinds, as 'pods,jobs', with a label."""
        found: list[dict[str, Any]] = self.get(kinds, *([f"--selector={selector}"] if selector else []))["items"]
        return found

    def find(self, what: str) -> dict[str, Any] | None:
        """One object, as 'job/NAME'; None where it does not exist."""
        try:
            return self.get(what)
        except NotThere:
            return None

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
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as forward:
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
