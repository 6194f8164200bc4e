"""Bills of materials, licences and advisories of what is locked. What other programs do is skipped where they can't be had."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.release import bill, licences, locks, provenance
from tools.release.audit import TOOL as AUDIT_TOOL
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


def test_the_bill_of_a_wheel_names_it_by_its_hash_and_keeps_to_the_schema(tmp_path: Path) -> None:
    wheel, file = tmp_path / "paceline-0.1.0-py3-none-any.whl", tmp_path / "wheel.cdx.json"
    wheel.write_bytes(b"a wheel")

    or_skip(lambda: bill.write_wheel_bill(wheel, SERVER, file))

    made = json.loads(file.read_text())
    about = made["metadata"]["component"]
    assert (about["name"], about["type"], about["version"]) == ("paceline", "library", "0.1.0")
    assert about["hashes"] == [{"alg": "SHA-256", "content": provenance.sha256(wheel)}]
    assert about["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert {Pin(locks.plain(one["name"]), one["version"]) for one in made["components"]} == set(pins([SERVER]))
    made["components"][0]["type"] = "no kind of CycloneDX"
    file.write_text(json.dumps(made))
    with pytest.raises(SystemExit, match=r"is no CycloneDX 1\.6: the schema refuses it"):
        bill.check_bill(file)


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


@pytest.mark.parametrize(
    ("said", "licence", "told_of"),
    [
        ({"License-Expression": "MIT"}, "MIT", ""),
        ({"License-Expression": "MIT OR GPL-3.0-only"}, "MIT OR GPL-3.0-only", ""),
        (
            {"License-Expression": "MIT AND GPL-3.0-only"},
            "MIT AND GPL-3.0-only",
            "MIT AND GPL-3.0-only is not among the accepted licences",
        ),
        ({"License-Metadata": "GPL"}, "GPL", "GPL is not among the accepted licences"),
        ({"License-Metadata": "Apache 2.0"}, "Apache-2.0", ""),
        (
            {"License-Metadata": "A text\nof many lines", "License-Classifier": "MIT License; Apache Software License"},
            "MIT License; Apache Software License",
            "",
        ),
        (
            {"License-Classifier": "MIT License; GNU General Public License v3 (GPLv3)"},
            "MIT License; GNU General Public License v3 (GPLv3)",
            "is not among the accepted",
        ),
        (
            {"License-Expression": "UNKNOWN", "License-Metadata": "UNKNOWN"},
            "",
            "it names no licence, or is not installed",
        ),
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
        events = [{"introduced": "0"}, {"fixed": "99.0"}]
        affected = [
            {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
        ]
        advisory = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "summary": "made up", "affected": affected}
        content = json.dumps({"vulns": [advisory]} if name in source.bad else {}).encode()
        self.send_response(source.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def source() -> Iterator[Source]:
    with Source() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def audited(url: str, *files: Path) -> subprocess.CompletedProcess[str]:
    if run_tool(AUDIT_TOOL, ["pip-audit", "--version"]).returncode:
        pytest.skip("pip-audit can't be had")
    words = [sys.executable, "-m", "tools.release.audit", "--source", url, *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, cwd=provenance.ROOT)


def test_each_locked_library_is_asked_for_and_an_advisory_fails_the_audit(source: Source) -> None:
    source.bad = {"numba"}

    done = audited(source.url, SERVER)

    assert done.returncode == 1, done.stderr
    assert "(server.lock): PYSEC-2026-1, CVE-2026-1; fixed in 99.0" in done.stdout
    assert "numba " in done.stdout
    assert {Pin(*each) for each in source.asked} == set(pins([SERVER]))


def test_an_audit_without_advisories_ends_with_0(source: Source) -> None:
    done = audited(source.url, SERVER)

    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(pins([SERVER]))} libraries asked for at {source.url}; advisories: 0" in done.stdout


def test_a_source_that_can_not_be_asked_is_no_clean_audit(source: Source) -> None:
    source.status = 503
    for url in ("http://127.0.0.1:9/v1/query", source.url):
        done = audited(url, SERVER)
        assert done.returncode == 69
        assert done.stdout == ""
        assert "Nothing is known of their advisories. Give another source: make audit SOURCE=URL" in done.stderr


def test_a_lock_file_that_is_not_here_is_named(source: Source) -> None:
    done = audited(source.url, Path("docker/nothing.lock"))

    assert (done.returncode, source.asked) == (2, [])
    assert "no such lock file: docker/nothing.lock" in done.stderr
