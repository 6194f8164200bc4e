"""Bills of materials, licences and advisories of what is locked. What other programs do is skipped where they can't be had."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tools.release import audit, bill, licences, locks, provenance
from tools.release.licences import Accepted, Row, read_accepted, rows
from tools.release.locks import Pin, pins
from tools.release.uv_tool import run_tool

SERVER = provenance.ROOT / "docker" / "server.lock"
DEVELOPMENT = provenance.ROOT / "requirements.lock"


def or_skip(attempt: Callable[[], Any]) -> Any:
    """What it returns; a tool that no index gives is skipped."""
    try:
        return attempt()
    except SystemExit as error:
        if "No bill of materials" in str(error) or error.code == licences.UNREAD:
            pytest.skip(f"the tool can't be had: {error}")
        raise


def test_each_version_of_each_lock_is_found_with_the_files_that_name_it() -> None:
    found = pins()

    named = {line.split("==")[0] for lock in locks.LOCKS for line in lock.read_text().splitlines() if "==" in line[:60]}
    assert {pin.name for pin in found} == {locks.plain(name) for name in named if not name.startswith(" ")}
    numba = next(where for pin, where in found.items() if pin.name == "numba")
    assert {SERVER, DEVELOPMENT} <= set(numba)
    assert locks.IMAGES
    assert set(locks.IMAGES) < set(locks.LOCKS)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "paceline-0.1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


@pytest.mark.nightly  # installs a wheel
def test_the_bill_of_a_wheel_names_it_by_its_hash_and_is_checked(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, checked = tmp_path / "wheel.cdx.json", list[Path]()
    monkeypatch.setattr(bill, "check_bill", checked.append)

    or_skip(lambda: bill.write_wheel_bill(wheel, SERVER, file))

    assert checked == [file]
    made = json.loads(file.read_text())
    about = made["metadata"]["component"]
    assert (about["name"], about["type"], about["version"]) == ("paceline", "library", "0.1.0")
    assert about["hashes"] == [{"alg": "SHA-256", "content": provenance.sha256(wheel)}]
    assert about["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert {Pin(locks.plain(one["name"]), one["version"]) for one in made["components"]} == set(pins([SERVER]))
    locked = dict(line.split(" ")[0].split("==") for line in SERVER.read_text().splitlines() if "==" in line)
    assert {one["name"]: one["version"] for one in made["components"]} == locked


@pytest.mark.nightly
def test_bills_of_a_wheel_and_of_an_image_keep_to_the_schema_and_a_wrong_one_is_refused(
    wheel: Path, tmp_path: Path
) -> None:
    """At night, since loading the schema takes 3 CPU seconds for each of the three files. By day the test above looks at what
    a bill says, and the one below at what follows from the schema's answer."""
    file = tmp_path / "bill.cdx.json"
    or_skip(lambda: bill.write_wheel_bill(wheel, SERVER, file))
    bill.write_bill(SERVER, file)
    bill.check_bill(file)
    made = json.loads(file.read_text())
    assert made["metadata"]["component"]["type"] == "application"
    made["components"][0]["type"] = "no kind of CycloneDX"
    file.write_text(json.dumps(made))

    with pytest.raises(SystemExit, match="is no CycloneDX"):
        bill.check_bill(file)


@pytest.mark.parametrize(("stderr", "told"), [("", "is no CycloneDX"), ("no index answers", "no index answers")])
def test_a_bill_that_the_tool_refuses_or_can_not_check_ends_the_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stderr: str, told: str
) -> None:
    monkeypatch.setattr(bill, "run_tool", lambda *_: subprocess.CompletedProcess([], 1, "", stderr))

    with pytest.raises(SystemExit, match=told):
        bill.check_bill(tmp_path / "server.cdx.json")


@pytest.mark.nightly  # `make licences` says the same
def test_all_that_is_locked_has_an_accepted_licence() -> None:
    installed = or_skip(licences.installed)
    here = {locks.plain(each["Name"]) for each in installed}

    found = [row for row in rows(installed, read_accepted()) if row.pin.name in here]

    assert licences.refused(found) == ""
    assert len(found) > 150


def test_the_table_has_a_line_for_each_library_with_the_files_that_lock_it() -> None:
    out = io.StringIO()

    licences.write_table(
        [Row(Pin("numpy", "2.0"), "MIT", [DEVELOPMENT, SERVER]), Row(Pin("b", "1"), "", [SERVER])], out
    )

    assert out.getvalue().splitlines() == [
        "library,version,licence,locked in",
        "numpy,2.0,MIT,requirements.lock docker/server.lock",
        "b,1,unknown,docker/server.lock",
    ]


BOTH_FREE = "MIT License; Apache Software License"
ONE_IS_GPL = "MIT License; GNU General Public License v3 (GPLv3)"


@pytest.mark.parametrize(
    ("said", "licence", "told_of"),
    [
        ({"License-Expression": "MIT"}, "MIT", ""),
        ({"License-Expression": "MIT OR GPL-3.0-only"}, "MIT OR GPL-3.0-only", ""),
        ({"License-Expression": "MIT AND GPL-3.0-only"}, "MIT AND GPL-3.0-only", "GPL-3.0-only is not among the"),
        ({"License-Metadata": "GPL"}, "GPL", "GPL is not among the accepted licences"),
        ({"License-Metadata": "Apache 2.0"}, "Apache-2.0", ""),
        ({"License-Metadata": "A text\nof many lines", "License-Classifier": BOTH_FREE}, BOTH_FREE, ""),
        ({"License-Classifier": ONE_IS_GPL}, ONE_IS_GPL, "is not among the accepted"),
        ({"License-Expression": "UNKNOWN", "License-Metadata": "UNKNOWN"}, "", "it names no licence, or is not"),
    ],
)
def test_a_licence_is_accepted_only_where_all_that_it_demands_is_on_the_list(
    said: dict[str, str], licence: str, told_of: str
) -> None:
    accepted = read_accepted()

    found = accepted.licence("a-library", said)

    assert found == licence
    refusal = accepted.refusal(Row(Pin("a-library", "1.0"), found, [DEVELOPMENT]))
    assert (refusal == "") is (told_of == "")
    assert told_of in refusal


def test_a_tool_under_the_gpl_may_be_locked_for_development_but_not_in_an_image() -> None:
    accepted = read_accepted()
    tool = Row(Pin("codespell", "2.4.3"), "GPL-2.0-only", [DEVELOPMENT])

    assert accepted.refusal(tool) == ""
    assert "accepted as a tool only, but is in server.lock" in accepted.refusal(tool._replace(locks=[SERVER]))
    assert "not among the accepted" in accepted.refusal(tool._replace(pin=Pin("another", "1.0")))


def test_every_accepted_licence_says_why_and_every_other_spelling_leads_to_one() -> None:
    told = yaml.safe_load((provenance.ROOT / "tools/release/licences.yaml").read_text())

    assert all(isinstance(why, str) and why for why in told["accepted"].values())
    assert set(told["written"].values()) | set(told["read"].values()) <= set(told["accepted"])
    assert {pin.name for pin in pins()} >= {*told["read"], *told["tools_only"]}
    Accepted(told)


class Source(ThreadingHTTPServer):
    """Answers as OSV does; for which libraries with an advisory, the test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.bad: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1/query"


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        source: Any = self.server
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = query["package"]["name"]
        source.asked.append((name, query["version"]))
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.0"}]}]
        affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]
        advisory = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "summary": "made up", "affected": affected}
        content = json.dumps({"vulns": [advisory]} if name in source.bad else {}).encode()
        self.send_response(source.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


class Audited(NamedTuple):
    """What an audit has ended with and printed."""

    code: object
    stdout: str
    stderr: str


@pytest.fixture
def source() -> Iterator[Source]:
    with Source() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def tool() -> None:
    """pip-audit; a test that needs it is skipped where no index gives it."""
    if run_tool(audit.TOOL, ["python", "-c", ""]).returncode:
        pytest.skip("pip-audit can't be had")


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Audited]:
    """Does `make audit` in this process, and its tool in another one."""

    def run(url: str, *files: Path) -> Audited:
        monkeypatch.setattr(sys, "argv", ["audit", "--source", url, *map(str, files)])
        monkeypatch.chdir(provenance.ROOT)
        with pytest.raises(SystemExit) as ended:
            audit.main()
        return Audited(ended.value.code, *capsys.readouterr())

    return run


@pytest.mark.usefixtures("tool")
def test_each_locked_library_is_asked_for_and_an_advisory_fails_the_audit(
    source: Source, audited: Callable[..., Audited], monkeypatch: pytest.MonkeyPatch
) -> None:
    source.bad = {"numba"}
    answers = list[str]()

    def listened_to(*words: Any) -> subprocess.CompletedProcess[str]:
        done = run_tool(*words)
        answers.append(done.stdout)
        return done

    monkeypatch.setattr(audit, "run_tool", listened_to)

    done = audited(source.url, SERVER)

    assert done.code == 1, done.stderr
    assert "(server.lock): PYSEC-2026-1, CVE-2026-1; fixed in 99.0" in done.stdout
    assert "numba " in done.stdout
    assert {Pin(*each) for each in source.asked} == set(pins([SERVER]))
    clean = json.loads(answers[0])
    (bad,) = (each for each in clean["dependencies"] if each["vulns"])
    bad["vulns"] = []
    monkeypatch.setattr(audit, "run_tool", lambda *_: subprocess.CompletedProcess([], 0, json.dumps(clean), ""))

    done = audited(source.url, SERVER)

    assert (done.code, done.stderr) == (0, "")
    assert f"{len(pins([SERVER]))} libraries asked for at {source.url}; advisories: 0" in done.stdout


@pytest.mark.nightly  # by day the audit that finds something
@pytest.mark.usefixtures("tool")
def test_a_source_that_can_not_be_asked_is_no_clean_audit(
    source: Source, audited: Callable[..., Audited], tmp_path: Path
) -> None:
    lock = tmp_path / "short.lock"
    lock.write_text(f"six==1.17.0 \\\n    --hash=sha256:{'0' * 64}\n")
    source.status = 503
    for url in ("http://127.0.0.1:9/v1/query", source.url):
        done = audited(url, lock)
        assert done.code == 69
        assert done.stdout == ""
        assert "Nothing is known of their advisories. Give another source: make audit SOURCE=URL" in done.stderr
    assert source.asked == [("six", "1.17.0")]


def test_a_lock_file_that_is_not_here_is_named(source: Source, audited: Callable[..., Audited]) -> None:
    done = audited(source.url, Path("docker/nothing.lock"))

    assert (done.code, source.asked) == (2, [])
    assert "no such lock file: docker/nothing.lock" in done.stderr
