"""The nightly run goes on after a part that fails, and its page has what each part's last run gave."""

from pathlib import Path

import pytest

from tools import nightly
from tools.nightly import Part


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of a night with three short parts."""
    parts = {
        "good": Part("echo 3 passed", "passes"),
        "bad": Part("echo 1 failed >&2; exit 4", "fails"),
        "other": Part("echo 7 passed", "is tried last"),
    }
    monkeypatch.setattr(nightly, "PARTS", parts)
    monkeypatch.setattr(nightly, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(nightly, "PAGE", tmp_path / "page")
    return tmp_path / "page"


def night(*parts: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns what the command ends with: "" where nothing failed."""
    monkeypatch.setattr("sys.argv", ["nightly", *parts])
    try:
        nightly.main()
    except SystemExit as end:
        return str(end.code)
    return ""


def test_it_goes_on_after_a_part_that_fails_and_then_fails(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert night(monkeypatch=monkeypatch).startswith("FAILED: bad.")

    good, bad, other = page.read_text().splitlines()[-3:]
    assert good.endswith("| passed: 3 passed |")
    assert bad.endswith("| FAILED, exit code 4: 1 failed |")
    assert other.endswith("| passed: 7 passed |")
    assert (page.parent / "logs" / "bad.log").read_text() == "1 failed\n"


def test_a_part_by_itself_leaves_the_other_rows_as_they_are(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night(monkeypatch=monkeypatch)
    before = page.read_text().splitlines()
    nightly.PARTS["other"] = Part("exit 2", "is tried last")

    assert night("other", monkeypatch=monkeypatch).startswith("FAILED: other.")

    after = page.read_text().splitlines()
    assert after[:-1] == before[:-1]
    assert "FAILED, exit code 2" in after[-1]


def test_a_part_that_never_ran_says_so(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert night("good", monkeypatch=monkeypatch) == ""

    assert [line.split(" | ")[2] for line in page.read_text().splitlines()[-2:]] == ["never", "never"]


def test_a_part_that_there_is_not_is_refused_before_anything_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert night("good", "god", monkeypatch=monkeypatch) == "2"

    assert "there is no part god; there are good, bad, other" in capsys.readouterr().err
    assert not page.exists()


def test_the_page_keeps_what_it_has_where_only_a_purpose_changed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night("good", monkeypatch=monkeypatch)
    before = page.read_text()
    nightly.PARTS["bad"] = Part("exit 4", "fails always")

    nightly.write(nightly.last_runs())

    assert page.read_text() == before.replace("| fails |", "| fails always |")
