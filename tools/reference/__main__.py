"""`python -m tools.reference [--check]`: writes the pages of docs/ that the code makes, or says which are stale."""

import sys

from tools.reference import code_map, command_line, errors, metrics
from tools.reference.sources import ROOT

PAGES = {
    "docs/reference/command-line.md": command_line.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/understand/map.md": code_map.page,
}


def written(name: str) -> str:
    """The page as it must be, its links from where it lies."""
    text = PAGES[name]()
    return text.replace("](docs/", "](../").replace("](papers/", "](../../papers/")


def main() -> None:
    """Exits with 1 where a page is stale and was to be checked."""
    stale = []
    for name in PAGES:
        text, file = written(name), ROOT / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv[1:]:
            file.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"Stale: {', '.join(stale)}. Run: make pages")


if __name__ == "__main__":
    main()
