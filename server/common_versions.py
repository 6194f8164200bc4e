"""A server's part in the common snapshots of a run in lock-step: it writes one at each named version, and goes back to one."""

from collections.abc import Callable

from paceline.core.run.common_snapshots import GoBack
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots
from paceline.server.state_folder import StateFolder


class CommonVersions:
    """Follows the chief's word (paceline.core.run.common_snapshots). Call it from one thread."""

    def __init__(
        self, driver: SliceDriver, folder: StateFolder, snapshots: Snapshots, say: Callable[..., None]
    ) -> None:
        self._driver = driver
        self._folder = folder
        self._snapshots = snapshots
        self._say = say
        self.back = 0
        """The newest order to go back that this server has followed."""
        self.common = 0
        """The newest version that all servers have, as far as this one has heard."""

    @property
    def due(self) -> int:
        """The named version that this server knows."""
        return self._driver.due

    @property
    def kept(self) -> list[int]:
        """The versions that it has on disk."""
        return sorted(self._folder.round_versions)

    def heard(self, due: int, common: int) -> None:
        """The chief names a version to write a snapshot at (0: none), and the newest one that all servers have."""
        self.common = common
        self._folder.spare(common)
        self._driver.name(due)
        self._driver.is_common(common)

    def follow(self, order: GoBack | None) -> bool:
        """Goes back to an older snapshot, under a new term, if that is a new order. Returns whether it was."""
        if order is None or order.number <= self.back:
            return False
        with self._snapshots.none_written():
            found = self._folder.go_back(order.version)
            if found is None:
                self._say("can't go back: no intact snapshot of that version is left", version=order.version)
                return False
            plan, state = found
            self._driver.go_back(plan, state, self._folder.term)
        self.back = order.number
        self._say(
            "goes back to the newest snapshot that all servers have; workers compute again what it lacks",
            term=self._folder.term,
            version=order.version,
        )
        return True
