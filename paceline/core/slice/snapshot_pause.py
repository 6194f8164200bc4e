"""How long a slice trains between two snapshots."""

SHORTEST, LONGEST = 1.0, 30.0
"""Bounds of a pause that no setting gives (seconds). With them, a server that is killed every few seconds still makes
progress."""
_SHARE = 2.0
"""Of the time that the last one took: the disk is busy for a third of the time at most."""


def snapshot_pause(every: float | None, took: float | None) -> float:
    """Seconds until the next snapshot. `every`: the setting, None where there is none. `took`: seconds that the last try of
    this start took, None before it."""
    if every is not None:
        return every
    return min(max(SHORTEST, _SHARE * (took or 0.0)), LONGEST)
