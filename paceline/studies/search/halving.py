"""Successive halving: all points train a little, the best of them more, the best of these in full.

Source: Jamieson and Talwalkar 2016, "Non-stochastic Best Arm Identification and Hyperparameter Optimization". A round trains
from scratch, so that a schedule of the rate ends in it. Optuna's pruners decide on single trials as they come; they can't
wait for a round."""

from paceline.core.errors import UsageError


def budgets(epochs: int, points: int, factor: int) -> list[int]:
    """The epochs of each round, the last one in full. UsageError where there is nothing to leave out."""
    rounds = 1
    while epochs // factor**rounds and points // factor**rounds:
        rounds += 1
    if rounds == 1:
        raise UsageError(
            f"--halving {factor}: got {points} points of {epochs} epochs; expected at least {factor} of each. "
            "Give more of them, or leave --halving out."
        )
    return [epochs // factor**left for left in reversed(range(rounds))]


def kept(points: int, factor: int, round_: int) -> int:
    """How many points are in this round (from 0)."""
    found: int = points // factor**round_
    return found
