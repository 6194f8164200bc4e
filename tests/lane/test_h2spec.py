"""h2spec against the lane: a conformance test of HTTP/2 written by others."""

import shutil

import pytest

from tools import h2spec

PRINTED = """
Failures:

Hypertext Transfer Protocol Version 2 (HTTP/2)
  4. HTTP Frames
    4.2. Frame Size
      × 1: {}
        -> The endpoint MUST
Finished in 2.4434 seconds
146 tests, 145 passed, 0 skipped, 1 failed
"""


@pytest.mark.skipif(shutil.which("h2spec") is None, reason="h2spec is not on PATH; tools/h2spec.py says how to get it")
def test_the_lane_passes_all_of_h2spec_but_the_exceptions_with_reasons() -> None:
    printed = h2spec.run("h2spec")
    assert "146 tests, " in printed
    assert h2spec.failures(printed) == []


def test_a_failure_that_is_no_exception_is_reported() -> None:
    assert h2spec.failures(PRINTED.format("Sends a thing: and another")) == ["Sends a thing: and another"]
    for title in h2spec.EXCEPTIONS:
        assert h2spec.failures(PRINTED.format(title)) == []


def test_without_h2spec_the_tool_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert h2spec.main() == 2
    assert "go install github.com/summerwind/h2spec" in capsys.readouterr().err
