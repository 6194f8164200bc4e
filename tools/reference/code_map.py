"""The map of the code: each folder with the first sentence of its docstring, and the names of its modules."""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tools.prose.rules import sentences
from tools.reference.sources import ROOT

WINGS = (
    "paceline",
    "paceline/api",
    "paceline/cli",
    "paceline/results",
    "paceline/launch",
    "server",
    "worker",
    "sharder",
    "paceline/processes",
    "paceline/tasks",
    "paceline/rpc",
    "paceline/data",
    "paceline/settings",
    "paceline/base",
    "paceline/core",
    "k8s/paceline_k8s",
    "studies/paceline_studies",
    "tools",
    "papers/paceline_papers",
)
"""The sections of the page; of the package they come from the top of its layers, as import-linter has them."""
PAPERS = WINGS[-1]
"""A distribution by itself: of it the page has the upper folders alone."""
WITHOUT_MODULES = {"tools", PAPERS}
HEAD = """# The map of the code

Made by `make pages` from the docstrings. It lists the folders of the code, what each is for, and
its modules. Of the package the upper sections may import from those below them, never the reverse;
`make check` verifies that (import-linter, `pyproject.toml`). `server/`, `worker/` and `sharder/`
know nothing of each other; links in `paceline/` make them packages of it.
[Architecture](docs/understand/architecture.md) has the idea. Each module says in its first line what
it is for:

<!-- not run: needs the repository -->
```sh
grep -m 1 '^"' paceline/core/slice/*.py
```

Around the code:

- `protos/` has the messages, `k8s/` and `docker/` manifests and images, `e2e/` what tries them on a
  cluster.
- `k8s/paceline_k8s/`, `studies/` and [`papers/`](papers/README.md) are distributions by
  themselves, with their own tests.
- `tests/` has the same folders as the code, with `test_<part>.py` for each part; whole runs are in
  `tests/runs/`, what several tests share in `tests/support/`.
- `benchmarks/` measures speed next to other systems, and `examples/` is for users.
"""


def page() -> str:
    """The whole page; its links are from the repository's root."""
    return HEAD + "".join(f"\n## `{wing}/`\n\n{_paragraph(*_of_folder(wing, wing))}{_inner(wing)}" for wing in WINGS)


def _inner(wing: str) -> str:
    """Returns the list of the folders inside of a wing, without those that are wings or links to them."""
    found = sorted(file.parent for file in (ROOT / wing).glob("*/__init__.py" if wing == PAPERS else "**/__init__.py"))
    names = [str(folder.relative_to(ROOT)) for folder in found if folder.resolve() == folder]
    items = [name for name in names if not any(name == other or _is_inside(name, other, wing) for other in WINGS)]
    lines = [_paragraph(f"- **`{item.removeprefix(wing + '/')}/`** ", *_of_folder(item, wing)) for item in items]
    return "\n" + "".join(lines) if lines else ""


def _is_inside(folder: str, other: str, wing: str) -> bool:
    return folder.startswith(f"{other}/") and len(other) > len(wing)


def _of_folder(folder: str, wing: str) -> Iterator[str]:
    """Yields what the folder is for, and its modules."""
    yield first_sentence(ROOT / folder / "__init__.py")
    names = sorted(file.stem for file in (ROOT / folder).glob("*.py") if not re.match(r"__|.*_pb2", file.name))
    if names and wing not in WITHOUT_MODULES:
        yield " " + ", ".join(f"`{name}`" for name in names) + "."


def first_sentence(module: Path) -> str:
    """Returns the first sentence of a module's docstring. Raises ValueError if there is none."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    text = " ".join(docstring.split("\n\n")[0].split())
    if not text:
        raise ValueError(f"{module} has no docstring. Say there in one sentence what is in the folder.")
    _, sentence = next(sentences(text))
    return sentence


def _paragraph(*parts: str) -> str:
    indent = "  " if parts[0].startswith("- ") else ""
    return textwrap.fill("".join(parts), 100, subsequent_indent=indent, break_on_hyphens=False) + "\n"
