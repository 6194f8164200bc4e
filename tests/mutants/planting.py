"""The list of mutants: what each one breaks, and which tests catch it."""

import ast
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.yaml")


@dataclass(frozen=True)
class Mutant:
    """A defect that can be planted in a copy of the repository."""

    name: str
    breaks: str
    """What goes wrong in a run that has it."""
    file: str
    find: str
    replace: str
    caught_by: tuple[str, ...]
    """Test ids; each has to fail."""

    def plant(self, root: Path) -> None:
        """Edits the copy; ValueError where it does not have the text exactly once."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.find) != 1:
            raise ValueError(
                f"{self.name}: {self.find!r} is {text.count(self.find)} times in {self.file}, expected once."
            )
        path.write_text(text.replace(self.find, self.replace))


def mutants() -> list[Mutant]:
    """All of the list."""
    return [Mutant(**(entry | {"caught_by": tuple(entry["caught_by"])})) for entry in yaml.safe_load(LIST.read_text())]


def is_a_test(name: str) -> bool:
    """Whether the repository has this test; without its parameters."""
    file, _, function = name.partition("[")[0].partition("::")
    path = ROOT / file
    return path.is_file() and any(
        isinstance(node, ast.FunctionDef) and node.name == function.rpartition("::")[2]
        for node in ast.walk(ast.parse(path.read_text()))
    )
