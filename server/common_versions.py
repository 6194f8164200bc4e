"""A server's part in the snapshots that all servers go back to: in lock-step it writes one at each named version; in every
policy it keeps those that are good, for a run that diverges."""

from collections.abc import Callable, Collection

from paceline.core.chief.common_snapshots import GoBack
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots
from paceline.server.state_folder import StateFolder


class CommonVersions:
    """Follows the chief's word (paceline.core.chief.common_snapshots). Call it from one thread."""

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
        """The newest version that all servers have, as the chief last said."""
        self._had = 0
        """The newest that it has said since all last went back: it may know fewer once a store answers again."""

    @property
    def due(self) -> int:
        """The named version that this server knows."""
        return self._driver.due

    @property
    def durable(self) -> list[int]:
        """The versions of its snapshots that are safe: on disk, and in the store if there is one. That which all servers have
        stays one of them, also if the store was away then, and lacks it."""
        common = {self._had} & self._folder.round_versions()
        return sorted(self._folder.round_versions(self._snapshots.safe_numbers) | common)

    @property
    def stored(self) -> list[int]:
        """The versions of all its snapshots on disk."""
        return self._folder.versions

    @property
    def spared(self) -> list[int]:
        """Those that it keeps for a run that diverges."""
        return self._folder.spared_good

    def spare(self, versions: Collection[int]) -> None:
        """The chief says which snapshots a diverged run may go back to."""
        self._folder.spare_good(versions)

    def bring_good_weights(self) -> None:
        """Where the chief has ordered a diverged run to go back (paceline.core.chief.rollback): reads the weights for the
        slice, which takes them at the moment that the order names."""
        change = self._driver.lacks_weights
        if change is None:
            return
        version = change.back[self._driver.index]
        with self._snapshots.none_written():
            state = self._folder.good_weights(version)
        if state is None:
            self._say("the run has diverged, and no intact snapshot is left to go back to", version=version)
        else:
            found = state.table["version"]
            self._say("the run has diverged; goes back to older weights", version=found, rate=change.rate)
        self._driver.hold(change.number, state)

    def heard(self, due: int, common: int) -> None:
        """The chief names a version to write a snapshot at (0: none), and the newest one that all servers have."""
        self.common, self._had = common, max(common, self._had)
        self._folder.spare(self._had)
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
        self.back, self._had = order.number, order.version
        self._say(
            "goes back to the newest snapshot that all servers have; workers compute again what it lacks",
            term=self._folder.term,
            version=order.version,
        )
        return True
