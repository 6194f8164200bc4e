"""Imported by the process that forks the others, so that none of them imports and compiles for itself."""

import paceline_papers.reproduce.exchanges
import paceline_papers.reproduce.processes  # noqa: F401 - for the processes to come
from paceline.launch.forks.fork_program import warm

warm()
