"""The page of errors: exit codes, and the words of each error, to be found by pasting them."""

import re
import textwrap
from functools import cache

from paceline.core.errors import PacelineError, error_classes
from tools.reference.sources import GAP, calls, modules, text_of

SHORTEST = 12
"""Letters of a text, below which it is only a gap with a word."""
HEAD = """# Errors and exit codes

Made by `make pages` from the code. Paste some words of an error into the search of this site, or of
your browser. Dots (…) stand for what differs from run to run: names, numbers, sizes. Each error
says what was seen, what was expected and what to do.

## Exit codes

| code | class | meaning |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    ours = PacelineError.__module__  # a class of one program or test is known only where that is loaded
    kinds = {name: kind for name, kind in error_classes().items() if kind.__module__ == ours}
    codes: dict[int, list[type[PacelineError]]] = {}
    for kind in kinds.values():
        codes.setdefault(kind.exit_code, []).append(kind)
    rows = ["| 0 | | The run is done. |"]
    rows += [
        f"| {code} | `{kind.__name__}` | {_summary(kind)} |"
        for code in sorted(codes)
        for kind in sorted(codes[code], key=lambda one: one.__name__)
    ]
    rows.insert(-1, "| 130 | | Ctrl-C ended it. |")
    told = texts(frozenset(kinds))
    sections = [
        f"\n## {name}: exit code {kinds[name].exit_code}\n\n" + "\n".join(_item(text) for text in sorted(found))
        for name, found in sorted(told.items())
    ]
    return HEAD + "\n".join([*rows, *sections, ""])


@cache
def texts(kinds: frozenset[str]) -> dict[str, set[str]]:
    """The texts of each class of errors, wherever one of it is made."""
    found: dict[str, set[str]] = {}
    for _, tree in modules(kinds):
        for call, name, names in calls(tree, kinds):
            text = text_of(call.args[0], names) if call.args else None
            if text and len(re.sub(r"\W", "", text)) > SHORTEST:
                found.setdefault(name, set()).add(" ".join(text.split()))
    return found


def _summary(kind: type[PacelineError]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _item(text: str) -> str:
    shown = _shown(text)
    return textwrap.fill(
        shown, 100, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _shown(text: str) -> str:
    """A text as Markdown that shows it as it is."""
    text = re.sub(f"{GAP}+", GAP, text)
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text).replace("\\<", "&lt;")
