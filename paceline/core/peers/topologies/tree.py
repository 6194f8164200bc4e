"""Tree: everybody is linked to its parent and its children."""

from collections.abc import Iterable

from pydantic import Field

from paceline.core.peers.topology import Members, Topology


class Tree(Topology):
    """The first member is the root; those after it fill one level after the other. The fewest links, n - 1."""

    children: int = Field(2, ge=1, description="Children of each member; 1 makes a chain.")

    def _reached(self, place: int, members: Members) -> Iterable[int]:
        first = place * self.children + 1
        parent = [(place - 1) // self.children] if place else []
        return [*parent, *range(first, min(first + self.children, len(members)))]
