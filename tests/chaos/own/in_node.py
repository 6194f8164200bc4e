"""`in_node.py NAMESPACE ARGUMENTS`: `python -P ARGUMENTS`, in that network namespace."""

import sys

from paceline.launch.forks.fork_program import run_line
from paceline_papers.reproduce.network import Node

if __name__ == "__main__":
    Node(sys.argv[1], "").enter()
    run_line(sys.argv[2:])
