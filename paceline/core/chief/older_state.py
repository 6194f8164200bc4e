"""A run's state that may be older than the run: its newest changes were lost with the chief's folder."""

from typing import Any

from paceline.core.chief.phases import RunPhase

_AHEAD = 1_000_000
"""More views and orders than a run has between two copies of its state."""


def as_older(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state (`Run.state`) to go on from. Views and orders get numbers that nobody has seen yet, so that no server
    takes a new one for one that it knows. Members need not be heard again before a process that was admitted later joins. A run
    that was finished is scored again, since the model was lost with the folder."""
    membership = state["membership"]
    found = {**state, "membership": {**membership, "view": membership["view"] + _AHEAD, "is_older": True}}
    if "back" in state and state["back"][0]:
        number, version, done = state["back"]
        found["back"] = [number + _AHEAD, version, done]
    if state.get("phase") == RunPhase.FINISHED:
        scores = [score for score in state["scores"] if not score["final"]]
        found |= {"phase": RunPhase.SCORING, "scores": scores}
    return found
