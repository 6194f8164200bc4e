"""Lets a server that is not the chief follow the chief's views and learn when the run is finished."""

import threading
from collections.abc import Callable

from paceline.core.chief.common_snapshots import GoBack
from paceline.core.chief.phases import RunPhase
from paceline.core.errors import BadPush, DataError, OtherProtocol, PacelineError, PermissionDenied
from paceline.core.slice.lost_slices import lost
from paceline.core.values import View
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import call, open_channel
from paceline.rpc.conversions import run_phase, view_value
from paceline.rpc.enums import phase_of
from paceline.rpc.outages import Outage
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.retries import backoff
from paceline.server.common_versions import CommonVersions
from paceline.server.own_figures import OwnFigures, ServerStart
from paceline.server.run_messages import start_message
from paceline.server.slice_driver import SliceDriver
from paceline.server.waiting_calls import LONGEST_WAIT
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.run_service_pb2_grpc import RunServiceStub


class Follower:
    """Keeps asking the chief for news; while the chief is away, the last view stays in force."""

    def __init__(
        self,
        driver: SliceDriver,
        versions: CommonVersions,
        chief: str,
        credentials: Credentials,
        say: Callable[..., None],
        start: ServerStart,
        figures: OwnFigures,
    ) -> None:
        """`start`, `figures`: this server's own, which the chief learns."""
        self._driver = driver
        self._versions = versions
        self._say = say
        self._start = start
        self._figures = figures
        self._stub = RunServiceStub(open_channel(chief, credentials))
        self._outage = Outage(f"the chief at {chief}", say, advice="The last view stays in force until it answers.")
        self.phase = RunPhase.WAITING
        self._view = View()
        self.refusal: PacelineError | None = None
        """Why this server can't take part: the chief refuses it for good, or its snapshots are lost."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        """Starts to follow."""
        self._thread.start()

    def close(self) -> None:
        """Stops following; a running call ends with the process."""
        self._stopping.set()

    def _follow(self) -> None:
        pauses = backoff()
        while not self._stopping.is_set():
            try:
                what = "ReportServer"  # before the chief waits with its news: it knows a new term at once
                call(self._stub.ReportServer, self._report(), timeout=LONGEST_WAIT)
                what = "FollowView"
                self._take(call(self._stub.FollowView, self._heard(), timeout=LONGEST_WAIT + 10))
                pauses = backoff()
                self._outage.works()
            except (OtherProtocol, DataError, PermissionDenied, BadPush) as error:  # waiting does not help
                self.refusal = error
                return
            except PacelineError as error:
                self._outage.failed(what, str(error))
                self._stopping.wait(next(pauses))
            except Exception as error:
                self._driver.fails(error)
                return

    def _heard(self) -> pb.FollowViewRequest:
        """Returns what this server knows of the run."""
        return pb.FollowViewRequest(
            server=self._driver.index,
            term=self._driver.term,
            view=self._view.number,
            phase=run_phase(self.phase),
            protocol=PROTOCOL,
            due=self._versions.due,
            common=self._versions.common,
            spared=self._versions.spared,
        )

    def _report(self) -> pb.ReportServerRequest:
        """Returns what the chief learns of this server."""
        summary = self._driver.summary
        return pb.ReportServerRequest(
            server=self._driver.index,
            term=self._driver.term,
            view=self._view.number,
            switch=summary.switch,
            unseated_examples=summary.gone,
            unseated=summary.unseated,
            version=summary.version,
            round_snapshots=self._versions.durable,
            snapshots=self._versions.stored,
            due=self._versions.due,
            back=self._versions.back,
            spared=self._versions.spared,
            start=start_message(self._start),
            figures=self._figures.message(),
            protocol=PROTOCOL,
        )

    def _take(self, message: pb.FollowViewReply) -> None:
        phase = RunPhase(phase_of(message))
        if phase is not RunPhase.FINISHED and self._driver.has_lost(message.version):
            raise lost([self._driver.index])
        if phase is not self.phase:
            self.phase = phase
            self._say("phase", phase=str(self.phase))
        if message.number != self._view.number:
            view = view_value(message)
            self._driver.view(view)
            self._view = view  # only now the chief hears that it is in force
        if message.back:
            self._versions.follow(GoBack(message.back, message.back_to))
        self._versions.heard(message.due, message.common)
        self._versions.spare(message.spared)
        self._versions.bring_good_weights()
