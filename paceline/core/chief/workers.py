"""Keeps what the chief knows of each worker besides its seat: its last report, and where to read its local model."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paceline.core.chief.membership import Membership
from paceline.core.errors import ConfigError
from paceline.core.values import worker_order


class WorkerPhase(StrEnum):
    """What a worker does."""

    JOINING = "joining"
    WAITING = "waiting"
    """It has asked for its seat."""
    DATA = "data"
    COMPUTE = "compute"
    EXCHANGE = "exchange"
    SCORING = "scoring"
    DONE = "done"
    FINISHED = "finished"
    """A script's worker: its last clock is behind it."""
    UNHEARD = "unheard"
    """The chief has come back, and has not heard of it since."""


ENDED_EARLY = "ended_early"
"""A worker's figure: its script has left its loop before its last step."""
_ROUNDING = 1e-3
"""How much frozen weights of two machines may differ, relative to their norm."""


@dataclass(slots=True)
class WorkerReport:
    """A worker's last report, for status and for the stall check."""

    clock: int = 0
    phase: str = WorkerPhase.JOINING
    """As WorkerPhase; another word where a later release sent it."""
    phase_seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    seen: float = 0.0
    reached: int = 0
    """The newest clock that any slice has of it, as far as it knows."""
    outage: str = ""
    """Calls of it that keep failing, in words; empty where none do."""
    large_inputs: str = ""
    """Columns of its inputs with numbers that no network learns from, in words; empty where there are none."""
    stopping: bool = False
    """Its process got a stop signal."""


class Workers:
    """Workers' reports and addresses, and which workers took part from the start or until the end. Not thread-safe."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.reports: dict[str, WorkerReport] = {}
        self.founders: dict[str, int] = {}
        """Incarnations of the workers that the run began with."""
        self.finished: set[str] = set()
        """Workers that have left with their last clock behind them."""
        self._dismissed: set[str] = set()
        """Finished workers whose processes end without the final model, as another one was to take it."""
        self._frozen: tuple[float, float] | None = None
        """What the first worker has said of the parameters that nobody trains: their norm and a product."""
        self._text_hash: int | None = None
        """The hash of a fixed text in the process of the first worker."""
        self.hosts: dict[str, str] = {}
        """The machine of each worker that has joined; empty if it has not reported one."""
        self._addresses: dict[str, str] = {}
        """The address at which each joined worker serves its local model; empty if it serves none."""
        self._seatless: dict[str, float] = {}
        """Since when workers that have not finished have been without a seat, as far as the chief has seen (seconds)."""
        self._unheard: set[str] = set()
        """Members that the chief's slice, back from a snapshot, may be behind."""
        self._beaten: set[str] = set()
        """Those of them of which a heartbeat has come since; the first may be from before the slice was back."""

    def compare(self, worker: str, norm: float, product: float) -> None:
        """A worker reports the parameters that its script does not train. ConfigError where the first one had others: each
        would train the rest for its own."""
        if self._frozen is None:
            self._frozen = norm, product
        nearly = _ROUNDING * self._frozen[0]
        if abs(norm - self._frozen[0]) > nearly or abs(product - self._frozen[1]) > nearly:
            raise ConfigError(
                f"{worker} has other weights in the parameters that are not trained than the worker that joined first (norm "
                f"{norm:.6g}, not {self._frozen[0]:.6g}). They are not sent: make them alike in all workers, from one file, "
                "or by the same seed (torch.manual_seed(0), without the rank), or train them."
            )

    def compare_hash(self, worker: str, text_hash: int) -> None:
        """A worker reports the hash of a fixed text in its process. ConfigError where the first one had another: a set has
        another order there."""
        if self._text_hash is None:
            self._text_hash = text_hash
        if text_hash != self._text_hash:
            raise ConfigError(
                f"{worker} orders sets in another way than the worker that joined first, so that classes which a script "
                "numbers by a set would have other numbers. Set PYTHONHASHSEED to the same number in all processes of the run, "
                "or nowhere: paceline launch and join start them with 0."
            )

    def joined(self, worker: str, address: str, now: float, host: str = "") -> None:
        """A process has joined under this name, on the machine `host`."""
        self.reports[worker] = WorkerReport(seen=now)
        self.hosts[worker] = host
        self._addresses[worker] = address

    def heard(self, worker: str, report: WorkerReport, clock: int) -> None:
        """A member reports; `clock`: its clock on the chief's slice."""
        self.reports[worker] = report
        if worker in self._beaten and report.phase != WorkerPhase.JOINING and report.reached <= clock:
            self._unheard.discard(worker)
        self._beaten.add(worker)

    def fell_back(self) -> None:
        """The chief's slice is as old as a snapshot again."""
        self._unheard = set(self._membership.view.seats)
        self._beaten = set()

    @property
    def are_caught_up(self) -> bool:
        """Whether the chief's slice has all that any slice has of the members; not so for a while after its restart."""
        return not self._unheard or self._unheard.isdisjoint(self._membership.view.seats)

    def started(self) -> None:
        """The run begins with the workers that have a seat now."""
        self.founders = {worker: seat.incarnation for worker, seat in self._membership.view.seats.items()}

    @property
    def first(self) -> str | None:
        """The member with the smallest number, or of those that have finished and are present; it scores where no evaluator
        does."""
        there = self._membership.view.seats.keys() | (self.finished - self._dismissed)
        return min(there, key=worker_order, default=None)

    def scores(self, worker: str) -> bool:
        """Whether this worker scores and takes the final model: the first one, or any where nobody is present. Another one that
        has finished ends with this answer."""
        is_first = self.first in (None, worker)
        if not is_first and worker in self.finished:
            self._dismissed.add(worker)
        return is_first

    @property
    def fastest(self) -> float:
        """Examples per second of computation of the fastest member; 0 until a member reports."""
        reports = (self.reports[worker] for worker in self._membership.view.seats if worker in self.reports)
        return max((report.figures.get("compute_rate", 0.0) for report in reports), default=0.0)

    @property
    def furthest(self) -> int:
        """The highest progress that any slice has of a member, as far as that is known."""
        seats = self._membership.view.seats.items()
        known = ((seat, self.reports[worker]) for worker, seat in seats if worker in self.reports)
        return max((report.reached + seat.handicap for seat, report in known if report.reached), default=0)

    @property
    def members(self) -> list[tuple[str, int, str]]:
        """Worker, incarnation and address of each member, in worker order."""
        seats = sorted(self._membership.view.seats.items(), key=lambda item: worker_order(item[0]))
        return [(worker, seat.incarnation, self._addresses.get(worker, "")) for worker, seat in seats]

    @property
    def local_models(self) -> list[str]:
        """Addresses of the local models of members and finished workers, in worker order."""
        seats, places = self._membership.view.seats, self._membership.places
        there = [
            worker for worker in self._addresses if worker in seats or (worker in places and places[worker].is_idle)
        ]
        return [self._addresses[worker] for worker in sorted(there, key=worker_order) if self._addresses[worker]]

    @property
    def unfinished(self) -> list[str]:
        """Who has joined and not left after its last clock, in worker order."""
        return sorted(self._addresses.keys() - self.finished, key=worker_order)

    @property
    def ended_early(self) -> list[str]:
        """Finished workers whose scripts have left their loops before their last steps, in worker order."""
        early = (each for each in self.finished & self.reports.keys() if self.reports[each].figures.get(ENDED_EARLY))
        return sorted(early, key=worker_order)

    def begin_anew(self) -> None:
        """The run, which was over, waits for workers again."""
        self.finished = set()
        self._dismissed = set()
        self._seatless = {}
        self._unheard = set()

    def note_seatless(self, now: float) -> None:
        """Notes who has no seat, though it has not finished."""
        seatless = [worker for worker in self.unfinished if worker not in self._membership.view.seats]
        self._seatless = {worker: self._seatless.get(worker, now) for worker in seatless}

    def awaited(self, now: float, patience: float) -> list[str]:
        """Who has not finished and is on the way to a seat, or has been without one for at most `patience` seconds: its process
        may be started again. In worker order, as of the last note."""
        places = self._membership.places
        return [worker for worker, since in self._seatless.items() if worker in places or now - since <= patience]

    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {
            "finished": sorted(self.finished),
            "dismissed": sorted(self._dismissed),
            "addresses": self._addresses,
            "founders": self.founders,
            "frozen": self._frozen,
            "text_hash": self._text_hash,
        }

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Continues from `state`, with the restored membership."""
        # members are shown from the start, not only once each has beaten again
        self.reports = {
            worker: WorkerReport(phase=WorkerPhase.UNHEARD, seen=now) for worker in self._membership.view.seats
        }
        self.fell_back()
        self.finished = set(state["finished"])
        self._dismissed = set(state.get("dismissed", ()))
        self._frozen = tuple(state["frozen"]) if state.get("frozen") else None
        self._text_hash = state.get("text_hash")
        self._addresses = dict(state["addresses"])
        self.founders = dict(state.get("founders", {}))
