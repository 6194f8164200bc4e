"""The pages of the site: docs/ as it is, and a page for each file or folder elsewhere that a page links to."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
OUTSIDE = re.compile(r"\w+:|#")
LANGUAGES = {".py": "python", ".proto": "protobuf", ".yaml": "yaml", ".sh": "bash"}
PICTURE = ".png"
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
"""The head of a page that the search leaves out."""


class Missing(Exception):
    """A page links to something that is not in the repository."""


def write_pages(place: Path, root: Path = ROOT) -> int:
    """Writes all pages below `place`, which is emptied first, and returns how many there are.

    Missing: a link leads nowhere."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root / "docs", place)
    shutil.copy(Path(__file__).with_name("site.css"), place)
    waiting = [page.relative_to(root) for page in sorted((root / "docs").rglob("*.md"))]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        page = place / page_of(source, root)
        page.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == PICTURE:
            shutil.copy(root / source, page)
            continue
        text = _text(source, root)
        page.write_text(_linked(text, source, root), encoding="utf-8")
        for found in _targets(text, source, root):
            if found not in seen and not found.is_relative_to("docs"):
                seen.add(found)
                waiting.append(found)
    return len(seen)


def page_of(source: Path, root: Path = ROOT) -> Path:
    """Where the site has a file of the repository, relative to the site's root."""
    if source.is_relative_to("docs"):
        return source.relative_to("docs")
    if (root / source).is_dir():
        return "source" / source / "index.md"
    return "source" / (source if source.suffix in {".md", PICTURE} else source.with_name(source.name + ".md"))


def _text(source: Path, root: Path) -> str:
    """A page of Markdown as it is; code as a block; a folder as a list of what lies in it."""
    path = root / source
    if path.is_dir():
        shown = (one for one in path.iterdir() if one.is_dir() or one.suffix in {*LANGUAGES, ".md"})
        inside = sorted(one.name for one in shown if not one.name.startswith(("__", ".")) and "_pb2" not in one.name)
        lines = (f"- [`{name}`]({name})" for name in inside)
        return "\n".join([f"{UNSEARCHED}# `{source}`", "", *lines, ""])
    text = path.read_text(encoding="utf-8")
    if source.suffix == ".md":
        return text if source.is_relative_to("docs") else UNSEARCHED + text
    return f"{UNSEARCHED}# `{source}`\n\n````{LANGUAGES.get(source.suffix, 'text')}\n{text.rstrip()}\n````\n"


def _linked(text: str, source: Path, root: Path) -> str:
    """The text with its links as the site has them."""
    here = page_of(source, root).parent

    def link_to(link: str) -> str:
        name, _, anchor = link.partition("#")
        page = os.path.relpath(page_of(_target(name, source, root), root), here)
        return f"{page}#{anchor}" if anchor else page

    return _outside_of_code(text, lambda found: found if OUTSIDE.match(found) else link_to(found))


def _targets(text: str, source: Path, root: Path) -> Iterator[Path]:
    """What the text links to, as paths from the repository's root."""
    found: list[str] = []

    def note(link: str) -> str:
        found.append(link)
        return link

    _outside_of_code(text, note)
    yield from (_target(link.partition("#")[0], source, root) for link in found if not OUTSIDE.match(link))


def _target(name: str, source: Path, root: Path) -> Path:
    folder = source if (root / source).is_dir() else source.parent
    target = Path(os.path.normpath(folder / name))
    if not (root / target).exists():
        raise Missing(f"{source} links to {name}, and there is no {target}. Correct the link.")
    return target


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """The text with `change` made to each link that is not in a block or span of code."""
    lines, is_code = [], False
    for line in text.split("\n"):
        is_code ^= line.lstrip().startswith("```")
        parts = [] if is_code else re.split(r"(`[^`]*`)", line)
        # In a table's cell GitHub wants \\| in code, and Python-Markdown shows it as it is written.
        changed = (
            part.replace(r"\|", "|") if part.startswith("`") else LINK.sub(lambda found: change(found[1]), part)
            for part in parts
        )
        lines.append(line if is_code else "".join(changed))
    return "\n".join(lines)
