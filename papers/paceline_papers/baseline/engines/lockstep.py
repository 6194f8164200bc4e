"""lockstep: as paceline, but the workers wait for each other at every push (`bsp`)."""

from paceline_papers.baseline.engines.paceline import Paceline


class Lockstep(Paceline):
    """With the same number of workers it gives the same model each time."""

    policy = "bsp"
