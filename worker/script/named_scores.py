"""What the function of `paceline.evaluate` gave, by name; a number alone gets one."""

from collections.abc import Callable, Mapping
from typing import Any

from paceline.core.chief.best_model import ACCURACY, LOSS, Measure


def named(found: object, function: Callable[[], Any], best: Measure | None = None) -> tuple[Mapping[Any, Any], str]:
    """The scores by name, and a sentence for people if the name was guessed. A single number is what `best` names; without it,
    the accuracy if the function is called so, and otherwise the loss."""
    if isinstance(found, Mapping):
        return found, ""
    if best is not None:
        return {best.name: found}, ""
    guessed = ACCURACY if "accuracy" in getattr(function, "__name__", "").lower() else LOSS
    better = "more" if guessed.sign > 0 else "less"
    return {guessed.name: found}, (
        f"paceline.evaluate: one number is taken as the {guessed.name}: {better} is better. If it is something else, give it a "
        "name: return {'f1': number}, and say best='max f1'."
    )
