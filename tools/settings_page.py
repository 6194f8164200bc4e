"""`python -m tools.settings_page [--check]`: writes docs/reference/settings.md from the code, or tells whether it is stale."""

import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from paceline.core import registry
from paceline.core.codecs.codec import PACKAGE as CODECS
from paceline.core.codecs.codec import Codec
from paceline.core.extension import SettingsRule
from paceline.core.optimizers.optimizer import PACKAGE as OPTIMIZERS
from paceline.core.optimizers.optimizer import Group, Optimizer
from paceline.core.peers.peer_policy import PACKAGE as PEERS
from paceline.core.peers.peer_policy import PeerPolicy
from paceline.core.peers.topology import PACKAGE as TOPOLOGIES
from paceline.core.peers.topology import Topology
from paceline.core.policies.policy import PACKAGE as POLICIES
from paceline.core.policies.policy import Policy
from paceline.core.setting_rules.check_rules import TABLE
from paceline.core.settings.config import Config, Options
from tools.reference import environment

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/settings.md"
HEAD = """# Settings

Made by `make pages` from the descriptions in the code.

You can set a key in three ways. A later one in this list wins:

1. in a YAML file: `paceline run my-run.yaml`
2. as an environment variable: `PACELINE_EPOCHS=3`, inner keys after two underscores
   (`PACELINE_POLICY__BOUND=3`); [others](#variables-of-the-environment) are not settings
3. as a flag: `--set policy.bound=3`

All three win over the settings of a task or a script, and those over the defaults. Write a duration
as 500ms, 5s, 10m or 1h, and a size as 1MiB. A section with a `name` may be that name alone:
`policy: ssp:3`, `optimizer: adam`, `schedule: cosine`, `PACELINE_POLICY=bsp`.

`paceline run` writes the whole config into the run folder, and gives that file to all its
processes. A process that you start yourself (`python -m paceline.server`, ...) takes that file, or
reads a task's settings [as they are
written](docs/reference/tasks.md#settings-and-who-reads-them).

| key | default | meaning |
|---|---|---|
"""
_ITEM: dict[str, Any] = {"subsequent_indent": "  ", "break_long_words": False, "break_on_hyphens": False}
TOGETHER = """
## Which settings go together

Paceline refuses these combinations before it starts anything, all of them at once. Dots are what
was set. Your own policy, codec, topology or optimizer can have `rules`, too:

```python
class Mine(Policy):
    rules = (
        SettingsRule(  # from paceline.extend
            lambda policy, config: policy.pairs * 2 > config.workers,
            "policy.pairs is {own.pairs}, but there are only {workers} workers. Set it to half of them or less.",
        ),
    )
```

"""


def page() -> str:
    """The whole page."""
    lines = [HEAD + "\n".join(_rows(Config, ""))]
    kinds_of: tuple[tuple[str, str, type[BaseModel]], ...] = (
        ("policy", POLICIES, Policy),
        ("policy without servers", PEERS, PeerPolicy),
        ("topology", TOPOLOGIES, Topology),
        ("optimizer", OPTIMIZERS, Optimizer),
        ("codec", CODECS, Codec),
    )
    rules: dict[str, Sequence[SettingsRule]] = dict(TABLE)
    for title, package, base in kinds_of:
        kinds = {name: registry.find(package, base, name) for name in registry.names(package)}
        lines.append(f"\n## Options of each {title}\n\n| {title} | option | default | meaning |\n|---|---|---|---|")
        lines += [f"| `{name}` {row}" for name, kind in kinds.items() for row in _rows(kind, "") or ["| | | |"]]
        rules |= {f"{title} {name}": vars(kind).get("rules", ()) for name, kind in kinds.items()}
    told = ["\n".join([f"**{subject}**\n", *_outlines(found)]) for subject, found in rules.items() if found]
    lines.insert(1, TOGETHER + "\n\n".join(told))
    return ("\n".join([*lines, ""]) + environment.section()).replace("](docs/", "](../")


def _outlines(rules: Sequence[SettingsRule]) -> list[str]:
    """Rules as items of a list."""
    return [textwrap.fill(rule.outline, 100, initial_indent="- ", **_ITEM) for rule in rules]


def _rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        key, section = prefix + (field.alias or name), registry.section_of(field)
        is_open = section not in (None, Options, Group)
        if not is_open or field.default is None:
            rows.append(f"| `{key}` | `{_shown(field.default)}` | {_linked(field.description or 'see below')} |")
        if section is not None and is_open:
            rows += _rows(section, f"{key}.")
    return rows


def _linked(description: str) -> str:
    """A setting's description; the pages of docs/ that it names are links."""
    return re.sub(r"docs/([\w-]+/([\w-]+)\.md)", r"[\2](docs/\1)", description)


def _shown(value: Any) -> str:
    if value is PydanticUndefined:
        return "-"
    return str(value.model_dump() if isinstance(value, BaseModel) else value)


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.exit("docs/reference/settings.md is stale. Run: make pages")
