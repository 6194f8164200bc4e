"""`paceline serve` as a process: who asks while versions come in and while it ends gets an answer, and a bad request
hears what was expected."""

import io
import json
import os
import re
import select
import signal
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.core.errors import UsageError
from paceline.launch.folder.run_folder import RunFolder
from paceline.rpc.auth import Credentials, held
from paceline.rpc.tls import AUTHORITY
from tests.support.commands import paceline
from tests.support.live_run import LiveRun
from tests.support.processes import PATIENCE, QUIET, TORCH, eventually, forker_of
from tests.support.trained_run import trained_run
from tests.support.tree import ROOT
from tools.authority import Authority

torch = pytest.importorskip("torch")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
LARGEST: int = pytest.importorskip("paceline.results.serving.bodies").LARGEST


def test_the_best_version_is_in_a_folder_and_not_at_servers(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("task: digits\n")
    asked = ["serve", "--servers", "localhost:1", "--config", str(tmp_path / "run.yaml"), "--best"]

    found = CliRunner().invoke(app, asked)

    assert found.exit_code == 64
    assert "--best is for a run whose folder is on this machine" in found.output


TASK = """
import numpy as np

from paceline.extend import Dataset, Labelled


def data(path):
    features = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(LABELS)
    return Dataset(Labelled(features, labels), classes=CLASSES)


def model():
    import torch

    return torch.nn.Linear(4, 2)


def loss(model, inputs, targets):
    return (model(inputs).sum(1) - targets).square().mean()
"""
CLASSES, NUMBERS = ("np.int64", '("no", "yes")'), ("np.float32", "None")


def task(folder: Path, kind: tuple[str, str] = CLASSES) -> Path:
    file = folder / "own.py"
    file.write_text(TASK.replace("LABELS", kind[0]).replace("CLASSES", kind[1]))
    return file


class Served:
    """A `paceline serve` process of a run."""

    def __init__(self, run: RunFolder, folder: Path, *more: str) -> None:
        self.run = run
        report = folder / "ports.json"
        words = ["serve", str(run.path), "--port", "0", "--every", "0.05", "--device", "cpu"]
        self._log = folder / "serve.log"
        self._log.touch()
        line = ["-m", "paceline.cli", *words, "--report", str(report), *more]
        process = forker_of(TORCH).start(line, self._log, ROOT, {**os.environ, **QUIET})
        assert process is not None, "the process that forks has ended; see what it wrote to stderr"
        self.process = process
        eventually(lambda: report.exists() or self.process.poll() is not None, "its ports")
        assert report.exists(), self.log()
        self.ports: dict[str, int] = json.loads(report.read_text())
        self.token = run.reader_token.read_text().strip()

    def log(self) -> str:
        return self._log.read_text()

    def ready(self) -> "Served":
        eventually(lambda: self.get("/readyz")[0] == 200, self.log)
        return self

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
        return self.ask(urllib.request.Request(self.url(path), headers=headers))

    def post(self, body: Any, token: str | None = None) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.token if token is None else token}"} if token != "" else {}
        return self.ask(urllib.request.Request(self.url("/v1/predict"), data, headers))

    def ask(self, request: urllib.request.Request) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error) if error.headers.get_content_type() == "application/json" else {}

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports['port']}{path}"

    def post_array(self, body: bytes, query: str = "") -> tuple[int, dict[str, Any]]:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/x-npy"}
        return self.ask(urllib.request.Request(self.url(f"/v1/predict{query}"), body, headers))

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.ports['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
            return str(reply.read().decode())

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(PATIENCE)


def saved(values: Any, **options: Any) -> bytes:
    """What numpy.save, or with names numpy.savez, writes."""
    buffer = io.BytesIO()
    np.savez(buffer, **options) if options else np.save(buffer, values)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One of a run that has ended, whose model says 'yes' where the first feature is above 0."""
    folder = tmp_path_factory.mktemp("ended")
    weights = {"weight": torch.tensor([[-1.0, 0, 0, 0], [1, 0, 0, 0]]), "bias": torch.zeros(2)}
    served = Served(trained_run(folder / "runs", task(folder), weights), folder, "--batch", "8").ready()
    yield served
    served.end()


def test_all_requests_get_answers_while_versions_come_in_and_while_it_ends(tmp_path: Path) -> None:
    live = LiveRun(tmp_path / "runs", task(tmp_path, NUMBERS), policy="bsp").begin()
    live.push(-1.0)
    served = Served(live.folder, tmp_path).ready()
    stop, failures, answers = threading.Event(), list[str](), list[tuple[int, float]]()
    began = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            code, found = served.post({"examples": [[1, 0, 0, 0]]})
            if code != 200:
                failures.append(f"{code}: {found}")
                return
            answers.append((found["versions"][0], found["predictions"][0][0]))
            began.set()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert began.wait(PATIENCE)
    for version in range(2, 22):  # each has to answer before the next one comes
        live.push(-1.0)
        eventually(lambda version=version: answers[-1][0] >= version or failures, served.log)  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join()

    assert not failures
    assert {version for version, _ in answers} >= set(range(2, 22))
    # a weight and the bias are each the version: what answers is one version's model, never parts of two
    assert all(output == 2 * version for version, output in answers)

    assert served.end() == 0, served.log()
    live.end()


def test_requests_under_way_when_it_is_told_to_stop_get_their_answers(tmp_path: Path) -> None:
    folder = trained_run(tmp_path / "runs", task(tmp_path))
    served = Served(folder, tmp_path, "--window", "60000", "--batch", "1000").ready()
    codes: list[Any] = []

    def ask() -> None:
        codes.append(served.post({"examples": [[1, 0, 0, 0]]})[0])

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    eventually(lambda: re.search(r"paceline_serve_waiting_examples{.*} 10\.0", served.metrics()), served.log)
    assert served.end() == 0, served.log()
    for thread in threads:
        thread.join()

    assert codes == [200] * 10


def test_classes_come_with_their_names_and_with_probabilities_if_asked_and_the_model_tells_its_form(
    ended: Served,
) -> None:
    code, found = ended.post({"examples": [[2, 0, 0, 0], [-2, 0, 0, 0]], "probabilities": True})

    assert code == 200
    assert found["predictions"] == ["yes", "no"]
    assert np.allclose(found["probabilities"], [[0.018, 0.982], [0.982, 0.018]], atol=1e-3)
    rows = np.array([[2, 0, 0, 0], [-2, 0, 0, 0]], np.float32)
    assert ended.post_array(saved(rows), "?probabilities=true&run=one") == (200, found)
    code, found = ended.get("/v1/model", authorization=f"Bearer {ended.token}")
    assert code == 200
    assert (found["run"], found["shape"], found["dtype"], found["classes"]) == ("one", [4], "float32", ["no", "yes"])


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        (b"{", 400, "The request is no JSON"),
        ({"rows": []}, 400, "The request has no 'examples'"),
        ({"examples": [[1, 2, 3, 4]], "proba": 1}, 400, "The request has 'proba'"),
        ({"examples": []}, 400, "have the shape (0,); expected numbers of the shape (examples, 4)"),
        ({"examples": [[1, 2, 3]]}, 400, "has the shape (3,), but the model was trained on (4,)"),
        ({"examples": [[1, 2, 3, 4], [1]]}, 400, "The examples have different shapes, or are too long"),
        ({"examples": [["a", 2, 3, 4]]}, 400, "hold what is no number"),
        (b'{"examples": [[NaN, 2, 3, 4]]}', 400, "NaN"),
        ({"examples": [[1e300, 2, 3, 4]]}, 400, "not a finite float32"),
        ({"examples": [[0, 0, 0, 0]] * 9}, 400, "has 9 examples; at most 8"),
        ({"examples": [[0, 0, 0, 0]], "run": "other"}, 404, "There is no run 'other' here; this process serves 'one'"),
        (b'{"examples": [' + b"[]," * 250_000 + b"[]]}", 400, "lists, objects and texts; at most 250,000"),
        ({"examples": [[[[1, 2, 3, 4, 5]]]]}, 400, "or are too long"),
        (b" " * (9 << 20), 413, "more than 8,388,608 bytes"),
    ],
)
def test_a_bad_request_is_told_what_was_seen_and_expected(body: Any, code: int, told: str, ended: Served) -> None:
    found, reply = ended.post(body)

    assert (found, told in reply["error"]) == (code, True), reply


def test_who_still_sends_what_is_too_much_gets_the_answer(ended: Served) -> None:
    rest = 1 << 20
    head = f"POST /v1/predict HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {ended.token}\r\n"
    with socket.create_connection(("127.0.0.1", ended.ports["port"]), PATIENCE) as client:
        client.sendall(f"{head}Content-Length: {LARGEST + 1 + rest}\r\n\r\n".encode() + b" " * (LARGEST + 1))
        early, _, _ = select.select([client], [], [], 0.3)
        client.sendall(b" " * rest)

        assert not early
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def test_health_is_answered_while_a_large_body_is_taken_apart(ended: Served) -> None:
    body = b'{"examples": [[' + b"1," * (LARGEST // 2 - 20) + b"1]]}"
    answers: list[tuple[int, dict[str, Any]]] = []
    asking = threading.Thread(target=lambda: answers.append(ended.post(body)))
    asking.start()
    beside = 0
    while asking.is_alive():
        assert ended.get("/healthz")[0] == 200
        beside += 1

    assert beside > 5  # one or two where the loop itself parses
    assert (answers[0][0], "are too long" in answers[0][1]["error"]) == (400, True)


def test_without_the_readers_token_there_is_no_answer(ended: Served) -> None:
    for token in ("", "wrong", ended.run.read_secret().strip()):
        code, reply = ended.post({"examples": [[1, 2, 3, 4]]}, token)
        assert (code, "token" in reply["error"]) == (401, True)
    assert ended.run.reader_token.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("body", "query", "code", "told"),
    [
        (b"word", "", 400, "The request is no .npy file"),
        (b"", "", 400, "The request is no .npy file"),
        (saved(np.array([["word"]])), "", 400, "expected numbers"),
        (saved(np.array([[None]])), "", 400, "can't be read"),
        (saved(None, one=np.zeros(4)), "", 400, "The request is no .npy file"),
        (saved(np.zeros((2, 4)))[:20] + b"\\(", "", 400, "can't be read"),
        (saved(np.zeros((1, 4))), "?probability=true", 400, "The query has 'probability'"),
        (saved(np.zeros((1, 4))), "?probabilities=1", 400, "expected true or false"),
        (saved(np.zeros((2, 4)))[:-8], "", 400, "expected 64 bytes got 56"),
        (saved(np.zeros((1, 3))), "", 400, "has the shape (3,)"),
        (saved(np.full((1, 4), np.inf)), "", 400, "inf"),
        (saved(np.zeros((1, 4))), "?run=other", 404, "There is no run 'other' here"),
    ],
)
def test_a_bad_array_is_told_what_was_seen_and_expected(
    body: bytes, query: str, code: int, told: str, ended: Served
) -> None:
    found, reply = ended.post_array(body, query)

    assert (found, told in reply["error"]) == (code, True), reply


def test_other_paths_and_methods_are_refused_and_health_needs_no_token(ended: Served) -> None:
    assert ended.get("/nothing")[0] == 404
    assert ended.get("/v1/predict")[0] == 405
    assert ended.get("/healthz") == (200, {"status": "alive"})
    assert ended.get("/readyz")[0] == 200


def test_prometheus_sees_requests_batches_and_the_models_age(ended: Served) -> None:
    ended.post({"examples": [[1, 2, 3, 4]] * 3})
    found = ended.metrics()

    names = ("requests_total", "request_seconds_bucket", "batch_examples_sum", "model_version", "model_age_seconds")
    for name in names:
        assert f"paceline_serve_{name}{{" in found
    assert 'code="200"' in found


def test_before_the_run_trains_it_is_alive_but_not_ready(tmp_path: Path) -> None:
    live = LiveRun(tmp_path / "runs", task(tmp_path, NUMBERS))
    served = Served(live.folder, tmp_path)
    eventually(lambda: _answers(served.get), served.log)

    assert served.get("/healthz")[0] == 200
    assert served.get("/readyz") == (503, {"status": "no model yet"})
    code, reply = served.post({"examples": [[1, 2, 3, 4]]})
    assert (code, "There is no model yet" in reply["error"]) == (503, True)
    live.begin().push(-1.0)
    served.ready()
    live.end(exit_code=None)
    assert served.post({"examples": [[1, 2, 3, 4]]})[0] == 200  # the servers are gone, the model stays
    assert served.end(signal.SIGINT) == 130


def _answers(get: Callable[[str], Any]) -> bool:
    try:
        get("/healthz")
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["RUN", "--reader-token-file", "nowhere"], "Can't read the token file nowhere"),
        (["RUN", "--config", "x.yaml"], "belong to --servers"),
        (["unknown-run"], "There is no run 'unknown-run'"),
        (["--servers", "a:1"], "--servers needs --config"),
    ],
)
def test_what_can_not_be_served_is_told_before_anything_starts(words: list[str], told: str, tmp_path: Path) -> None:
    folder = trained_run(tmp_path / "runs", task(tmp_path))
    done = CliRunner().invoke(app, ["serve", *(str(folder.path) if word == "RUN" else word for word in words)])

    assert done.exit_code == (78 if "token" in told else UsageError.exit_code)
    assert told in done.output


def test_a_port_that_is_taken_is_told(ended: Served, tmp_path: Path) -> None:
    words = ["serve", str(ended.run.path), "--port", str(ended.ports["port"])]
    done = paceline(*words, cwd=ROOT)

    assert done.returncode == 78
    assert "Can't listen on HTTP port" in done.stderr


@pytest.mark.parametrize("host", ["::", "0.0.0.0", "192.0.2.1"])
def test_beyond_this_machine_it_takes_keys_or_the_word_for_plain_text(host: str, tmp_path: Path) -> None:
    folder = trained_run(tmp_path / "runs", task(tmp_path))
    done = CliRunner().invoke(app, ["serve", str(folder.path), "--host", host])

    assert done.exit_code == UsageError.exit_code
    assert f"--host {host} without TLS" in " ".join(done.output.split())


def test_other_machines_ask_by_https_and_without_a_certificate(tmp_path: Path) -> None:
    keys = Authority().write(tmp_path / "keys")
    run = trained_run(tmp_path / "runs", task(tmp_path))
    served = Served(run, tmp_path, "--host", "::", "--tls", str(keys))
    context = ssl.create_default_context(cafile=keys / AUTHORITY)
    shown = {"authorization": f"Bearer {served.token}"}
    metrics_token = held(Credentials(run.read_secret(), role="reader", name="reader", run=run.name)).shown()

    def is_ready() -> bool:
        ready = f"https://127.0.0.1:{served.ports['port']}/readyz"
        try:
            with urllib.request.urlopen(ready, timeout=PATIENCE, context=context) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    try:
        eventually(is_ready, served.log)
        for port, path, headers in (
            ("port", "/v1/model", shown),
            ("metrics_port", "/metrics", {"authorization": metrics_token}),
        ):
            asked = urllib.request.Request(f"https://127.0.0.1:{served.ports[port]}{path}", headers=headers)
            with urllib.request.urlopen(asked, timeout=PATIENCE, context=context) as reply:
                assert reply.status == 200
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            served.get("/v1/model")
        assert "https://[::]:" in served.log()
    finally:
        served.end()
