"""A policy that changes by itself, in virtual time: heartbeats, and the chief's choice."""

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.workers import WorkerPhase, WorkerReport
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline_studies.simulator.members import Members
from paceline_studies.simulator.worker import Worker


class Changes(Members):
    """What the chief learns of the workers' steps, and what it makes of that."""

    config: Config

    @property
    def choices(self) -> tuple[str, ...]:
        """What the policy chose so far, in sentences."""
        return tuple(self._run.policy_choice.said)

    def _watch_policy(self) -> None:
        """Heartbeats begin where the policy may change."""
        if build_policy(self.config.policy).alternatives:
            self.time.after(self.config.heartbeat / self.pace.second, self._beat)

    def _beat(self) -> None:
        now = self.time.now * self.pace.second
        for worker in self.workers:
            if worker.incarnation:
                self._run.policy_choice.heard(worker.name, self._report(worker, now))
        if self._run.choose_policy(lambda: self._slices[0].clocks, now) is not None:
            self._publish()
        if self.time.goes_on and self._run.phase is RunPhase.TRAINING:
            self._watch_policy()

    def _report(self, worker: Worker, now: float) -> WorkerReport:
        """As a worker's heartbeat has it (seconds): what is under way counts once it is over."""
        is_computing = self.time.now < worker.batch_until
        phase, since = (
            (WorkerPhase.COMPUTE, worker.batch_from) if is_computing else (WorkerPhase.EXCHANGE, worker.began)
        )
        compute = worker.compute - (worker.batch_until - worker.batch_from if is_computing else 0.0)

        spent = {"compute": compute, "push": worker.pushed, "pull": worker.pulled, "wait": worker.waited}
        seconds = {f"{part}_seconds": time * self.pace.second for part, time in spent.items()}
        figures = seconds | {"steps": worker.clock, "own_squares": worker.squares * self.pace.second**2}
        return WorkerReport(worker.clock, phase, (self.time.now - since) * self.pace.second, figures, now)

    def _maybe_changed(self) -> None:
        """The chief's view says so once every slice has begun the new policy."""
        switch = self.view.switch
        if switch is None or not self._run.policy_change.is_under_way:
            return
        if all(server.switch_number == switch.number for server in self._slices):
            self._run.switched()
            self._publish()
