"""Pulls the newest version of a run that trains, for those who only read."""

from paceline.core.values import Vector
from paceline.worker.exchange.parameter_client import ParameterClient

_AHEAD = (0, 4, 16)
"""Versions ahead of the newest that are asked for, one try after the other, until all slices give the same one: the
newest itself where rounds are slow, or over; later ones where rounds are so quick that it has gone meanwhile."""


def pull_newest(client: ParameterClient, model: Vector, is_in_rounds: bool, mean: bool = False) -> list[int]:
    """Pulls one exact version of all slices in rounds, otherwise each slice's newest, into the flat model; returns the
    versions. `mean`: of all versions up to these, where the run has it."""
    versions = client.pull(model, mean=mean)
    for ahead in _AHEAD if is_in_rounds else ():
        if len(set(versions)) == 1:
            break
        versions = client.pull(model, max(versions) + ahead, is_patient=False, mean=mean)
    return versions
