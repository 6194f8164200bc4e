"""Finds the papers' tables and figures: each file below `recipes` is one, and its name is its path."""

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from paceline.core.errors import UsageError
from paceline_papers.reproduce import recipes
from paceline_papers.reproduce.recipe import Recipe

PAPERS = {
    "sharding": "[Sharding]",
    "shat": "[SHAT]",
    "survey": "[Survey]",
    "hogwild": "[Hogwild]",
    "actors": "[Actors]",
    "ours": "Ours",
}
"""In the order of the page; `ours` are questions that no paper asks."""
ALL, OURS = "all", "ours"


@dataclass(frozen=True, slots=True)
class Artefact:
    """A table or figure and its name, like shat/table-2."""

    name: str
    recipe: Recipe

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def is_ours(self) -> bool:
        """Whether no paper has it."""
        return self.paper == OURS

    @property
    def title(self) -> str:
        return self.recipe.number if self.is_ours else f"{PAPERS[self.paper]} {self.recipe.number}"


def known() -> list[Artefact]:
    """All of them, by paper."""
    found = []
    for module in pkgutil.walk_packages(recipes.__path__, f"{recipes.__name__}."):
        if not module.ispkg and not module.name.rpartition(".")[2].startswith("_"):
            name = module.name.removeprefix(f"{recipes.__name__}.").replace(".", "/").replace("_", "-")
            found.append(Artefact(name, importlib.import_module(module.name).RECIPE))
    order = list(PAPERS)
    return sorted(found, key=lambda each: (order.index(each.paper), each.name))


def wanted(what: str) -> Sequence[Artefact]:
    """`all`, those of a paper, or one. UsageError: there is none of this name."""
    every = known()
    found = [each for each in every if what in (ALL, each.paper, each.name)]
    if not found:
        names = [ALL, *PAPERS, *(each.name for each in every)]
        near = get_close_matches(what.lower(), names, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(f"No table or figure is called {what!r}. {hint}See them all: paceline reproduce")
    return found
