"""No line cites a page or heading that is not in the repository: what it says must be there to be read."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.tree import ROOT

SOURCES = "papers/docs/sources.md"
KINDS = {".py", ".md", ".proto", ".yaml", ".yml", ".toml", ".sh"}
WRITTEN = {"index.md", "searches/digits/results.md", "full.md", "results.md", "both/results.md"}
"""Pages that programs write: such a name is no citation."""
SITE = {"zensical.toml": [ROOT / "docs"]}
"""Whose pages are named from there."""
CODE = ("paceline", "server", "worker", "sharder", "tools")
"""Folders of the code, each of them on docs/understand/map.md."""
MADE_UP = {"test_citations.py", "test_site.py"}
"""Tests that cite pages which nobody has."""
PAGE = re.compile(r"(?<![\w/.:-])((?:[\w.-]+/|\.\./)*[\w-]+\.md)\b(#[\w-]+)?")
LINK = re.compile(r"\]\(([^()\s]+)\)")
NUMBERED = re.compile(r"\b(?:protocol|algorithms|reliability|performance|operations|[Ll]aws?)(?:\.md)?,? \d")
"""A page of notes and a number in it, as in 'protocol 12': nobody who reads the repository has that page."""
SOURCE = re.compile(r"(?<!\w)\[([A-Z][A-Za-z]+)\](?![\w(\[])")


def is_text(name: str) -> bool:
    return name.startswith(("Makefile", "Dockerfile")) or (Path(name).suffix in KINDS and "_pb2" not in name)


def files() -> list[Path]:
    """Text files of the repository, without what is hidden, generated or made by runs."""
    found = []
    for folder, inner, names in os.walk(ROOT):
        is_left_out = re.compile(r"\.|__pycache__$|node_modules$|(build|dist|runs|shared)$|.*\.egg-info$").match
        inner[:] = [name for name in inner if not is_left_out(name)]
        found += [Path(folder) / name for name in names if is_text(name)]
    return sorted(path for path in found if path.name not in MADE_UP)


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link may name in a page: its headings, as GitHub spells them, and its <a id=...>."""
    names, seen = set(), dict[str, int]()
    for line in outside_of_code(page.read_text()):
        names.update(re.findall(r'<a id="([^"]+)"', line))
        if heading := re.match(r"#{1,6} (.+)", line):
            shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1].strip())
            slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
            seen[slug] = seen.get(slug, -1) + 1
            names.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
    return frozenset(names)


@cache
def known_sources() -> str:
    return (ROOT / SOURCES).read_text()


def outside_of_code(text: str) -> Iterator[str]:
    """Lines of a page; those of a block of code are empty."""
    is_code = False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        yield "" if is_code else line


def wrong(path: Path, text: str) -> Iterator[str]:
    """What cites something that does not exist, with its line."""
    is_page, has_number = path.suffix == ".md", NUMBERED.search(text)
    lines = outside_of_code(text) if is_page else text.splitlines()
    for number, line in enumerate(lines, 1):
        cited = [
            (page, anchor[1:]) for page, anchor in (PAGE.findall(line) if ".md" in line else ()) if page not in WRITTEN
        ]
        if is_page:
            shown = re.sub(r"`[^`]*`", "", line)
            links = [link.partition("#") for link in LINK.findall(line) if not re.match(r"\w+:", link)]
            yield from (
                f"{number}: there is no {page} beside the page"
                for page, _, _ in links
                if not (path.parent / page).exists()
            )
            cited += [(page or path.name, anchor) for page, _, anchor in links]
            yield from (
                f"{number}: [{name}] is not in {SOURCES}"
                for name in SOURCE.findall(shown)
                if f"[{name}]" not in known_sources()
            )
        yield from (
            f"{number}: {found}: say which page of docs/" for found in (NUMBERED.findall(line) if has_number else ())
        )
        for page, anchor in cited:
            there = [base / page for base in (path.parent, ROOT, *SITE.get(path.name, ())) if (base / page).exists()]
            if not there:
                yield f"{number}: there is no {page}"
            elif anchor and not any(anchor in anchors(found) for found in there if found.suffix == ".md"):
                yield f"{number}: {page} has no heading #{anchor}"


def test_every_page_and_heading_that_a_line_cites_is_there():
    found = [f"{path.relative_to(ROOT)}:{what}" for path in files() for what in wrong(path, path.read_text())]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("core/x.py", "# as design/lane.md says", "there is no design/lane.md"),
        ("core/x.py", "# (performance.md, part three)", "there is no performance.md"),
        ("core/x.py", "# docs/understand/protocol.md#nowhere", "docs/understand/protocol.md has no heading #nowhere"),
        ("core/x.py", "# as protocol 12 has it", "say which page"),
        ("core/x.py", "# docs/lane.md", "there is no docs/lane.md"),
        ("docs/x.md", "[that](gone.md)", "there is no gone.md"),
        ("docs/x.md", "[that](../paceline/gone.py)", "there is no ../paceline/gone.py"),
        ("docs/x.md", "as [Nobody] found", "[Nobody] is not in papers/docs/sources.md"),
        ("docs/understand/x.md", "[lane](lane.md#nowhere)", "lane.md has no heading #nowhere"),
        ("docs/run/x.md", "[lane](docs/understand/lane.md)", "there is no docs/understand/lane.md beside the page"),
    ],
)
def test_a_citation_of_what_is_not_there_is_found(name: str, line: str, words: str):
    (found, *_) = wrong(ROOT / name, line)

    assert words in found


def test_citations_that_lead_somewhere_are_left_alone():
    assert not list(
        wrong(ROOT / "paceline/x.py", "# docs/understand/protocol.md#clocks, docs/understand/lane.md and the Makefile")
    )
    page = "[SHAT] in [policies](policies.md), `[Nobody]`, [x](https://a.b/c.md)"
    assert not list(wrong(ROOT / "docs/choose/x.md", page))


def test_every_folder_of_the_code_is_in_the_map():
    page = (ROOT / "docs/understand/map.md").read_text()
    folders = {path.parent.relative_to(ROOT) for top in CODE for path in (ROOT / top).rglob("*.py")}

    missing = [str(folder) for folder in sorted(folders) if not re.search(rf"\b{re.escape(folder.name)}/", page)]

    assert missing == []
