"""A real Prometheus next to a real run, for the tests of the dashboard and for its pictures."""

import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from tools.dashboard import ALERTS
from tools.panels import Query

EVERY = 1
"""Seconds from one scrape to the next."""
WINDOW = "5s"
"""What the panels' rates are taken over."""
NAMESPACE = "training"
"""Where the run's pods would be."""


class Prometheus:
    """Scrapes all that `watch` or `scrape` has named, while the block runs. Times are seconds since 1970."""

    def __init__(self, folder: Path, port: int, targets: Path) -> None:
        self._folder = folder
        self._targets = targets
        self._url = f"http://127.0.0.1:{port}"
        self._watched: dict[str, int] = {}

    def watch(self, ports: Mapping[str, int]) -> None:
        """Scrapes the processes of these names on these ports, as pods of one namespace; those of before too."""
        self._watched |= ports
        self.scrape(
            {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": NAMESPACE, "pod": pod_of(name)}}
            for name, port in self._watched.items()
        )

    def scrape(self, targets: Iterable[Mapping[str, Any]]) -> None:
        """Scrapes these and no others, given as in a file of Prometheus' file discovery."""
        draft = self._targets.with_suffix(".draft")
        draft.write_text(json.dumps(list(targets)))
        draft.replace(self._targets)

    def query(self, promql: str) -> list[Any]:
        """The result of now."""
        return self._series("query", query=promql)

    def query_range(self, promql: str, start: float, end: float, step: float = EVERY) -> list[Any]:
        """The series: labels in `metric`, pairs of time and text in `values`."""
        return self._series("query_range", query=promql, start=start, end=end, step=step)

    def rules(self) -> list[dict[str, Any]]:
        """The alerts it has loaded, with their `name`, `health` and `state`."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def log(self) -> str:
        return (self._folder / "prometheus.log").read_text(errors="replace")

    def _series(self, kind: str, **arguments: Any) -> list[Any]:
        found: list[Any] = self._ask(kind, **arguments)["result"]
        return found

    def _ask(self, kind: str, **arguments: Any) -> dict[str, Any]:
        with urlopen(f"{self._url}/api/v1/{kind}?{urlencode(arguments)}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
        return found


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that has ended, and the Prometheus that has seen it."""

    prometheus: Prometheus
    run: str
    start: float
    end: float
    namespace: str = ".*"

    def ask(self, query: Query) -> list[Any]:
        """The panel's series."""
        text = query.query(self.run, WINDOW, self.namespace)
        return self.prometheus.query_range(text, self.start, self.end)

    def trouble(self, query: Query) -> str:
        """What is wrong with what the panel shows: nothing that is finite, or a legend without its label; empty where all
        is well."""
        found = self.ask(query)
        if not any(math.isfinite(float(value)) for series in found for _, value in series["values"]):
            return f"nothing to show for {query.promql}"
        for series in found:
            if "{{" in query.named(series["metric"]):
                return f"{query.legend!r} names a label that {series['metric']} does not have"
        return ""


def pod_of(process: str) -> str:
    """The pod that the process would be in."""
    return f"paceline-{process}"


@contextmanager
def beside(folder: Path, others: int | None = None, relabel: Sequence[Mapping[str, Any]] = ()) -> Iterator[Prometheus]:
    """A Prometheus with the alerts of the repository, which keeps its data and prometheus.yml in `folder`, and ends with the
    block. `others`: port of an exporter that says itself what its series are of. `relabel`: relabel_configs of the targets."""
    folder.mkdir(parents=True, exist_ok=True)
    targets, config = folder / "targets.json", folder / "prometheus.yml"
    targets.write_text("[]")
    found_in = [{"files": [str(targets)], "refresh_interval": "1s"}]
    scrapes: list[dict[str, Any]] = [
        {"job_name": "paceline", "file_sd_configs": found_in, "relabel_configs": list(relabel)}
    ]
    if others is not None:
        there = [{"targets": [f"127.0.0.1:{others}"]}]
        scrapes.append({"job_name": "others", "honor_labels": True, "static_configs": there})
    every = {"scrape_interval": f"{EVERY}s", "evaluation_interval": f"{EVERY}s"}
    config.write_text(yaml.safe_dump({"global": every, "rule_files": [str(ALERTS)], "scrape_configs": scrapes}))
    port = _free_port()
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    found = Prometheus(folder, port, targets)
    try:
        deadline = time.monotonic() + 60
        while not found.is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Prometheus did not start:\n{found.log()}")
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait(30)


def watched_run(
    prometheus: Prometheus, folder: Path, *arguments: str, name: str = "watched"
) -> tuple[RunFolder, float, float]:
    """Does `paceline run ...` in this folder with Prometheus next to it; the run's folder, start and end. RuntimeError with
    what the run said where it failed."""
    began, place = time.time(), RunFolder(folder / "runs" / name)
    command = [sys.executable, "-P", "-m", "paceline.cli", "run", *arguments, "--run", place.name]
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            prometheus.watch(ports_of(place))
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait(60)
    if process.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {process.returncode}:\n{log.read_text()}")
    return place, began, time.time()


def ports_of(place: RunFolder) -> dict[str, int]:
    """process -> port of its metrics, of those that have said it."""
    found: dict[str, int] = {}
    for file in [*place.path.glob("server-*/ports.json"), *place.path.glob("ports/*.json")]:
        name = file.parent.name if file.name == "ports.json" else file.stem
        try:
            found[name] = json.loads(file.read_text())["metrics_port"]
        except (OSError, ValueError):  # just being replaced
            continue
    return found


@contextmanager
def other_exporters(config: Config) -> Iterator[int]:
    """Replaces dcgm-exporter, cAdvisor and kube-state-metrics, which this machine has not: their metrics, with made up
    values, for the pods of such a run. The port that it listens on."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "\n".join(_made_up(config, time.time())).encode() + b"\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _made_up(config: Config, now: float) -> Iterator[str]:
    workers = [f"worker-{rank}" for rank in range(config.workers)]
    servers = [f"server-{index}" for index in range(config.servers)]
    wave: Callable[[int], float] = lambda rank: math.sin(now / 7 + rank)  # noqa: E731
    for rank, worker in enumerate(workers):
        of = f'namespace="{NAMESPACE}",pod="{pod_of(worker)}",gpu="{rank}"'
        yield f"DCGM_FI_DEV_GPU_UTIL{{{of}}} {80 + 15 * wave(rank):.1f}"
        yield f"DCGM_FI_DEV_FB_USED{{{of}}} {9000 + 200 * wave(rank):.0f}"
        yield f"DCGM_FI_DEV_FB_FREE{{{of}}} {7000 - 200 * wave(rank):.0f}"
    for rank, process in enumerate([*servers, *workers]):
        of = f'namespace="{NAMESPACE}",pod="{pod_of(process)}",container="{process.split("-")[0]}"'
        yield f"container_cpu_cfs_periods_total{{{of}}} {now * 10:.0f}"
        yield f"container_cpu_cfs_throttled_periods_total{{{of}}} {now * rank:.0f}"
        yield f"kube_pod_container_status_restarts_total{{{of}}} {int(process == servers[-1])}"
    of = f'namespace="{NAMESPACE}",pod="{pod_of(servers[-1])}",container="server",reason="OOMKilled"'
    yield f"kube_pod_container_status_last_terminated_reason{{{of}}} 1"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
