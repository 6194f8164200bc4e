"""Scores versions of a script's model with the script's own function, and has the last and the best one written down."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.base.own_files import error_text, show_own, where
from paceline.core.chief.best_model import SPLITS, chooses, default_measure
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.slice.plan import make_plan
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.scoring.mean_and_vote import LocalModels
from paceline.worker.scoring.model_file import save_model
from paceline.worker.scoring.scorer import Scorer, Scores
from paceline.worker.script.asked_scores import AskedScores, Evaluate, kept_modes, named
from paceline.worker.script.script_replica import ScriptReplica
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.model_and_gradient import use_threads


class ScriptScorer(Scorer):
    """`asked` None: only the final version is taken, and nothing is measured."""

    def __init__(
        self,
        around: Surroundings,
        replica: ScriptReplica,
        models: Path | None,
        asked: AskedScores | None = None,
        final_threads: int = 0,
    ) -> None:
        """`final_threads`: as in ToldLaunched."""
        config = around.config
        self._is_worker = around.name != "evaluator"
        self._replica = replica
        self._asked = asked
        self._evaluate = None if asked is None else asked.function
        self._patience = None if asked is None else asked.patience
        self._final_threads = final_threads
        self._in_vain: list[int] = []
        """Epochs of the scores since the best one."""
        self._epoch = 0
        """Of the version that is scored."""
        self._is_final = False
        """Whether that is the run's last one."""
        self._is_own = asked is not None and asked.baseline is None
        """Whether a script brings the function; that of `paceline.train` needs no check."""
        self.has_taken = False
        """Whether a version has been scored, or taken."""
        self._has_scored = False
        """Whether the script's function has given anything."""
        self._task = config.task
        self._has_told = False
        self._has_mean = False
        """Whether the replica holds the mean of the local models."""
        plan = make_plan(replica.shapes, config.servers, config.plan)
        super().__init__(
            around, plan, replica.local, models or Path("models"), None if asked is None else asked.best, {}
        )
        self._locals = LocalModels(around, replica, plan)

    def hasten(self) -> None:
        if self._final_threads:
            use_threads(self._final_threads)

    def midway(self, epoch: int) -> None:
        """After this many epochs of a worker's script: scores the newest version, where the chief wants that from this worker
        now. The model then has the worker's own weights again."""
        due = self._ask(None, midway=epoch)
        if due.due:
            with self._replica.kept_weights():
                score = self._score(due)
            self._ask(score, midway=epoch)

    def baseline(self) -> dict[str, float]:
        return {} if self._asked is None or self._asked.baseline is None else self._asked.baseline()

    def measure(self, due: pb.EvaluateReply) -> tuple[Scores, dict[str, float]]:
        """Where the policy's local models count, their mean is scored, too, and kept; without servers they are all there is.
        A vote would need the outputs, which only the script's function sees. A worker between two epochs scores its own model
        in their place: the others' loops may wait for it."""
        self._epoch, self._is_final = due.epoch, due.final
        kinds, count = self._in_force.policy.scores, 0
        has_mean = "mean" in kinds and (due.final or not self._is_worker)
        scores = self._scored() if "global" in kinds else {}
        if has_mean and (count := self._take_mean(due)):
            prefix = "mean_" if "global" in kinds else ""
            scores |= {prefix + split: values for split, values in self._scored().items()}
        elif "global" not in kinds:
            scores = self._scored()
        return scores, {"local_models": count} if count and scores else {}

    def _scored(self) -> Scores:
        """What the script's function makes of the model that the replica holds."""
        self._replica.refresh()
        self.has_taken = True
        if self._evaluate is None:
            return {}
        with kept_modes(self._replica.model):
            found, line = named(self._call(self._evaluate), self._evaluate, self._measure)
        scores = by_split(found)
        said = "\n".join(filter(None, (line, self._checked(scores))))
        if said and not self._has_told:
            print(said, flush=True)  # the launcher shows what the evaluator prints
            self._has_told = True
        return scores

    def _call(self, function: Evaluate) -> Any:
        """What the function gives. One that fails at once would fail again in another start: ConfigError, unless that would
        throw a trained model away."""
        try:
            found = function()
        except PacelineError:
            raise
        except Exception as error:
            if self._has_scored or self._is_final:
                raise
            show_own(error, self._task)
            raise ConfigError(
                f"The function of paceline.evaluate failed at its first score, {where(error, self._task)}: "
                f"{error_text(error)}. Correct it; the evaluator's log has all its lines."
            ) from None
        self._has_scored = True
        return found

    def _checked(self, scores: Scores) -> str:
        """What to say of who chooses the best model. ConfigError where nothing does, unless that would throw a trained model
        away."""
        if not self._is_own:
            return ""
        split = chooses(
            {f"{split}_{name}": value for split, values in scores.items() for name, value in values.items()}
        )
        names = list(scores.get(split, {}))
        measure = self._measure or default_measure(names)
        if measure.name not in names:
            gave = ", ".join(names) or "nothing"
            said = (
                f"The function of paceline.evaluate gave {gave}, so that nothing chooses the best model by its {measure.name}. "
                f"Say what does: paceline.evaluate(..., best='max {next(iter(names), 'f1')}'), or min."
            )
            if self._is_final:
                return said
            raise ConfigError(said)
        if split != "test":
            return ""
        return (
            "paceline.evaluate: all scores are of test data, so these choose the best model. For a fair test score, also "
            f"return a score of other data: validation_{measure.name}."
        )

    def _take_mean(self, due: pb.EvaluateReply) -> int:
        """The replica holds the mean of the local models afterwards, if any could be had; how many there were."""
        before = self._replica.local.copy()
        found, count = self._locals.mean(due.peers)
        if not count:
            self._say("no local model could be had", epoch=due.epoch)
        self._has_mean = count > 0
        self._replica.local[:] = found if self._has_mean else before
        return count

    def note_score(self, is_better: bool, final: bool) -> None:
        before = [epoch for epoch in self._in_vain if epoch < self._epoch]  # the run may have gone back
        self._in_vain = [] if is_better else [*before, self._epoch]
        waited = len(self._in_vain)
        if self._patience is not None and waited >= self._patience and not final:
            self._chief.stop(f"{waited} scores in a row were no better than the best one")

    def write(self, name: str, facts: dict[str, str]) -> None:
        facts = {**facts, "model": "mean"} if self._has_mean else facts
        save_model(self._models / f"{name}.safetensors", self._replica, facts)


def by_split(metrics: Mapping[Any, Any]) -> Scores:
    """What a script's function gave, by the split that its names begin with; validation, where they don't. ConfigError where
    they are no numbers."""
    scores: Scores = {}
    for name, value in metrics.items():
        split, _, rest = str(name).partition("_")
        split, rest = (split, rest) if split in SPLITS and rest else ("validation", str(name))
        try:
            scores.setdefault(split, {})[rest] = float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"The function of paceline.evaluate gave {type(value).__name__} as '{name}'; expected one number, "
                "or a dict of numbers like {'loss': .3, 'accuracy': .9}."
            ) from error
    return scores
