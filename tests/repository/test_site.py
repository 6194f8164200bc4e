"""The guide as a site: every page is in the navigation, links outside of docs/ get pages, versions lie next to each other."""

import json
import re
import tomllib

import pytest

from tests.support.tree import ROOT
from tools.site.__main__ import publish, warnings_of
from tools.site.pages import Missing, write_pages


@pytest.fixture
def repository(tmp_path):
    """One with two pages, a file of code and a folder."""
    for folder in ("docs/run", "docs/start", "examples/more"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "examples/wine.py").write_text("print(1)\n")
    (tmp_path / "examples/more/one.py").write_text("x = [y](z)\n")
    (tmp_path / "docs/start/own.md").write_text("# Own\n")
    (tmp_path / "docs/run/images.md").write_text(
        "[own](../start/own.md#own) [wine](../../examples/wine.py) [`more`](../../examples/more) `[x](y)`\n"
    )
    return tmp_path


def test_every_page_is_in_the_navigation_once():
    nav = (ROOT / "zensical.toml").read_text().partition("[project.theme]")[0]

    named = re.findall(r'"([\w/-]+\.md)"', nav)

    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - set(named) == set(), "add these to `nav` in zensical.toml"
    assert sorted(named) == sorted(pages)


def test_the_index_of_the_guide_fits_on_a_screen():
    questions = (ROOT / "docs/index.md").read_text().partition("| you want to | read |")[2].partition("\n\n")[0]

    assert len(re.findall(r"^\| ", questions, re.MULTILINE)) <= 25


def test_all_that_pages_link_to_is_there(tmp_path):
    assert write_pages(tmp_path / "pages") > 40


def test_a_link_to_code_leads_to_a_page_with_the_code(repository, tmp_path):
    write_pages(tmp_path / "pages", repository)

    page = (tmp_path / "pages/run/images.md").read_text()
    assert "[own](../start/own.md#own) [wine](../source/examples/wine.py.md)" in page
    assert "[`more`](../source/examples/more/index.md) `[x](y)`" in page
    assert "````python\nprint(1)\n````" in (tmp_path / "pages/source/examples/wine.py.md").read_text()
    assert "- [`one.py`](one.py.md)" in (tmp_path / "pages/source/examples/more/index.md").read_text()
    assert "x = [y](z)" in (tmp_path / "pages/source/examples/more/one.py.md").read_text()


def test_a_picture_outside_of_the_guide_is_shown_where_a_page_shows_it(repository, tmp_path):
    (repository / "papers").mkdir()
    (repository / "papers/picture.png").write_bytes(b"picture")
    (repository / "papers/table.md").write_text("![it](picture.png)\n")
    (repository / "docs/start/own.md").write_text("[table](../../papers/table.md)\n")

    write_pages(tmp_path / "pages", repository)

    assert (tmp_path / "pages/source/papers/table.md").read_text().endswith("![it](picture.png)\n")
    assert (tmp_path / "pages/source/papers/picture.png").read_bytes() == b"picture"


def test_a_pipe_in_the_code_of_a_table_is_shown_without_its_backslash(repository, tmp_path):
    (repository / "docs/start/own.md").write_text("| `A\\|B` | x |\n")

    write_pages(tmp_path / "pages", repository)

    assert (tmp_path / "pages/start/own.md").read_text() == "| `A|B` | x |\n"


def test_a_link_that_leads_nowhere_is_refused(repository, tmp_path):
    (repository / "docs/start/own.md").write_text("[gone](../../examples/gone.py)")

    with pytest.raises(Missing, match=r"docs/start/own\.md links to .*examples/gone\.py, .* Correct the link"):
        write_pages(tmp_path / "pages", repository)


def test_a_version_is_put_beside_the_others_and_the_newest_comes_first(tmp_path):
    for version in ("0.9.0", "0.10.0"):
        (tmp_path / "new").mkdir()
        (tmp_path / "new/index.html").write_text(version)
        publish(tmp_path / "new", tmp_path / "site", version)

    versions = json.loads((tmp_path / "site/versions.json").read_text())
    assert [(row["version"], row["aliases"]) for row in versions] == [("0.10.0", ["latest"]), ("0.9.0", [])]
    assert "url=0.10.0/index.html" in (tmp_path / "site/index.html").read_text()
    assert (tmp_path / "site/0.9.0/index.html").read_text() == "0.9.0"


def test_the_site_takes_nothing_from_other_machines():
    settings = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]

    assert settings["theme"]["font"] is False
    assert "://" not in (ROOT / "zensical.toml").read_text()


def test_a_strict_build_that_fails_says_what_is_wrong_without_a_traceback():
    text = warnings_of(
        "Warning: page does not exist\nTraceback (most recent call last):\nRuntimeError: Aborted because --strict flag is set"
    )

    assert text.startswith("Warning: page does not exist\nThe site was not built. Correct what Zensical names above")
    assert (
        warnings_of("Traceback (most recent call last):\nOSError: disk")
        == "Traceback (most recent call last):\nOSError: disk"
    )
