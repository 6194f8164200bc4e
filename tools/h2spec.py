"""`python -m tools.h2spec`: runs h2spec, the conformance tests of HTTP/2 and HPACK, against the lane.

Of its 146 tests, the strict ones included, all but EXCEPTIONS pass; those have their reasons there."""

import shutil
import subprocess
import sys
from typing import Any

from paceline.core.errors import TryAgain
from paceline.rpc.auth import OPEN, authentication
from paceline.rpc.lane.server import LaneServer
from paceline.rpc.watchdog import Watchdog

EXCEPTIONS = {
    "Sends a DATA frame with 2^14 octets in length": "h2spec sends a frame of the largest size that is taken, whatever the "
    "stream's window, which is smaller until the call has been let in. FLOW_CONTROL_ERROR is right (RFC 9113, 6.9.1).",
}
"""A failing test's title -> why it stays so."""
_THREADS = 512
"""More than the calls that tests leave half-way: a call that finds no thread is refused."""
_GET = "Get it with `go install github.com/summerwind/h2spec/cmd/h2spec@latest` and put $(go env GOPATH)/bin on PATH."
_AT_MOST = 300
"""Seconds for all tests."""


class Echo(LaneServer):
    """Answers every request with its own path: h2spec knows no gRPC, but wants bytes in replies."""

    def _answer(self, call: Any) -> bool:
        stream = call.stream
        try:
            stream.done.wait()
            if call.is_there():
                stream.failure = None  # h2spec's data is no gRPC message
            call.headers([(":status", "200"), ("content-type", "text/plain")])
            call.connection.send(stream, [f"You asked for {stream.fields[':path']}".encode()], end=True)
        except TryAgain:  # the tests end many a call early
            pass
        finally:
            call.leave()
        return True


def run(tool: str) -> str:
    """What h2spec prints."""
    lane = Echo({}, _THREADS, authentication(OPEN), lambda *facts: None, Watchdog())
    lane.start()
    try:
        command = [tool, "-h", "127.0.0.1", "-p", str(lane.port), "--strict"]
        return subprocess.run(command, capture_output=True, text=True, timeout=_AT_MOST, check=False).stdout
    finally:
        lane.stop(0)


def failures(printed: str) -> list[str]:
    """Titles of the tests that failed and are no exceptions, in order."""
    _, _, listed = printed.partition("Failures:")
    titles = [line.partition(": ")[2] for line in listed.splitlines() if line.lstrip().startswith("×")]
    return [title for title in titles if title not in EXCEPTIONS]


def main() -> int:
    """Returns the exit code."""
    tool = shutil.which("h2spec")
    if tool is None:
        print(f"h2spec is not on PATH. {_GET}", file=sys.stderr)
        return 2
    printed = run(tool)
    _, found, listed = printed.partition("Failures:")
    print(found + listed if found else printed[-200:].strip().rpartition("\n\n")[2])
    return 1 if failures(printed) or " tests, " not in printed else 0


if __name__ == "__main__":
    sys.exit(main())
