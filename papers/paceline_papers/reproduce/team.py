"""Processes of one machine, forked in a moment; each lives at a node of an emulated network where there is one."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Self

from paceline.core.errors import TryAgain
from paceline.launch.this_machine.end_with_parent import end_with
from paceline_papers.reproduce.network import Node

LOOPBACK = "127.0.0.1"
WARM = "paceline_papers.reproduce.warm"
"""What is imported before the first fork."""
PATIENCE = 600.0
"""Longest that a process may say nothing (seconds)."""


class Team:
    """Processes that talk with this one over pipes; none is left after the block."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """`nodes`: by name, empty where all talk over loopback."""
        self._nodes = nodes
        self._members = dict[str, tuple[ForkServerProcess, "Connection[Any, Any]"]]()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([WARM])  # of the first team only: a process has one fork server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _pipe in self._members.values():
            process.kill()
        for process, pipe in self._members.values():
            process.join()
            pipe.close()

    def start(self, name: str, node: str, main: Callable[..., None], *what: object) -> None:
        """A process in which `main(pipe, own address, *what)` runs."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_live, args=(theirs, self._nodes.get(node), main, *what), name=name)
        process.start()
        theirs.close()
        self._members[name] = (process, ours)

    def hear(self, name: str) -> Any:
        """What the process says next. TryAgain where it has ended, or says nothing."""
        pipe = self._members[name][1]
        try:
            if pipe.poll(PATIENCE):
                return pipe.recv()
            why = f"has said nothing for {PATIENCE:g} s; make the run shorter"
        except EOFError:
            why = "ended early; its own message is above"
        raise TryAgain(f"The process {name} {why}.")

    def tell(self, name: str) -> None:
        """Wakes a process that waits for its pipe."""
        self._members[name][1].send(None)

    def ask(self, name: str) -> Any:
        """Its answer."""
        self.tell(name)
        return self.hear(name)


def _live(pipe: "Connection[Any, Any]", node: Node | None, main: Callable[..., None], *what: object) -> None:
    """One process, from its first moment on. Ends without waiting for threads that wait in calls."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that will end this one
    end_with(os.getppid())
    code = 1
    try:
        if node is not None:
            node.enter()
        main(pipe, LOOPBACK if node is None else node.address, *what)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)
