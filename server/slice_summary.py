"""A copy of a slice's numbers, which any thread reads without waiting for a push."""

from collections.abc import Mapping
from typing import NamedTuple

from paceline.core.policies.clocks import Clocks
from paceline.core.values import View


class SliceSummary(NamedTuple):
    """The numbers of one moment. A new one takes its place after each change of the slice, so none is ever half changed."""

    version: int = 0
    view: View = View()
    clocks: Mapping[str, int] = {}
    """Each worker's."""
    trained: int = 0
    """Examples; see `Clocks`."""
    gone: int = 0
    unseated: Mapping[str, int] = {}
    """How far each worker is that is not in the view; see `Entry.mark`."""
    in_round: float = 0.0
    """Examples of the last round that has closed."""
    has_weights: bool = False
    switch: int = 0
    """The number of the last change of policy that can't be lost any more."""

    def as_clocks(self) -> Clocks:
        """Returns the members' clocks, to compare their progress."""
        return Clocks.of(self.view, self.version, self.clocks)
