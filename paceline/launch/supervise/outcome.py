"""How a run ended: what the launcher gives its callers."""

from dataclasses import dataclass, field

from paceline.callback import End
from paceline.core.chief.scoring import Score
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import Diverged, Incomplete, PacelineError, ScriptFailed, Stopped, error_of
from paceline.core.explain.cause import Finding
from paceline.launch.folder.audit import Lost
from paceline.launch.status.recoveries import Recovery
from paceline.launch.supervise.faults import Inflicted
from paceline.launch.this_machine.signals import CTRL_C

NOT_WELL = {
    Diverged.exit_code: "The run gave up (exit code {}): its last version may be of no use.",
    Incomplete.exit_code: "A worker could not go on (exit code {}): the others have finished the run without it.",
    ScriptFailed.exit_code: "The script failed after its training (exit code {}): the model is kept, but what the script "
    "does at its end may be missing.",
}
"""What to say at the end of runs that have finished, but not well, by their exit code."""
FINISHED = (0, *NOT_WELL)
"""Exit codes of a run that has trained to its end and was scored, be it in vain."""


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    exit_code: int = PacelineError.exit_code
    accuracy: float | None = None
    """Of the final version on the test data (ratio); None when it was not scored, or has no accuracy."""
    seconds: float = 0.0
    """Training time, without the start of the processes."""
    scores: list[Score] = field(default_factory=list)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    """The last figures of each worker by name, e.g. wait_seconds."""
    examples: int = 0
    version: int = 0
    steps: tuple[int, int] | None = None
    """Made, and of how many, where the run counts steps and knows no examples."""
    reason: str = ""
    """Why it ended, in words."""
    metrics: dict[str, float] = field(default_factory=dict)
    """All metrics of the final version."""
    measure: str = ""
    """What the best model was chosen by, like 'max accuracy'."""
    scored: dict[str, int] = field(default_factory=dict)
    """How many examples of each split the metrics are of."""
    warnings: list[RunWarning] = field(default_factory=list)
    """What went wrong although the run went on, oldest first."""
    choices: list[str] = field(default_factory=list)
    """What a policy that changes by itself has chosen and why, in sentences, oldest first."""
    causes: list[Finding] = field(default_factory=list)
    """What made it slow or worse, what costs most first; but for what the warnings say anyway."""
    recovery: Recovery = field(default_factory=Recovery)
    """What servers came back from, and what workers did again because of it."""
    faults: list[Inflicted] = field(default_factory=list)
    """What became of the faults that the settings name."""
    lost: Lost | None = None
    """Of a finished run with faults and servers: pushes that are missing at its end."""
    refused: bool = False
    """Whether a mistake ended it before anything was learned."""

    @property
    def is_finished(self) -> bool:
        """Whether the run has trained to its end and was scored, be it in vain."""
        return self.exit_code in FINISHED

    @property
    def how(self) -> End:
        """In one word."""
        if self.exit_code in (CTRL_C, Stopped.exit_code):
            return End.STOPPED
        return End.FAILED if self.exit_code else End.FINISHED

    def error(self) -> PacelineError:
        """What to raise where it did not finish."""
        return error_of(self.exit_code)(self.reason)
