"""The evaluator of a run that trains a model of torch."""

from pathlib import Path

from paceline.core.slice.plan import make_plan
from paceline.data.inputs import Inputs
from paceline.data.shards import Shards
from paceline.tasks.task import load_task
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.command_line import ToldEvaluator
from paceline.worker.scoring.mean_and_vote import LocalModels
from paceline.worker.scoring.model_file import save_model
from paceline.worker.scoring.scorer import Scorer, Scores, majorities, open_splits, sizes_of
from paceline.worker.startup.run_process import run_process
from paceline.worker.startup.start import Start
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.model_and_gradient import Replica, use_threads


class ModuleScorer(Scorer):
    """Scores a torch model; estimates BatchNorm statistics again for each version."""

    def __init__(self, around: Surroundings, shards: Shards, models: Path, device: str, final_threads: int = 0) -> None:
        """`final_threads`: as in ToldEvaluator."""
        config = around.config
        self._final_threads = final_threads
        task = load_task(config.task, config.model)
        self._replica = Replica(task, device, config.seed)
        self._splits = open_splits(shards, config.seed)
        plan = make_plan(self._replica.shapes, config.servers, config.plan)
        super().__init__(around, plan, self._replica.local, models, task.best, sizes_of(self._splits))
        self._locals = LocalModels(around, self._replica, plan)
        self._inputs = Inputs.of(shards.manifest)

    def hasten(self) -> None:
        if self._final_threads:
            use_threads(self._final_threads)

    def baseline(self) -> dict[str, float]:
        self._replica.recalibrate(*self._splits["train"])
        labels = {split: found for split, (_, found) in self._splits.items()}
        return {"train_loss": self._replica.score(*self._splits["train"])["loss"], **majorities(labels)}

    def measure(self, due: pb.EvaluateReply) -> tuple[Scores, dict[str, float]]:
        """Includes the local models' scores if the policy has them scored; the replica then holds their mean. Without servers
        there are no others."""
        is_served = "global" in self._in_force.policy.scores
        scores, count = self._score_present() if is_served else {}, 0
        if "mean" in self._in_force.policy.scores:
            others, count = self._score_local(due, "mean_" if is_served else "")
            scores |= others
        return scores, {"local_models": count} if count else {}

    def write(self, name: str, facts: dict[str, str]) -> None:
        """To NAME.safetensors, with what the model was trained on."""
        save_model(self._models / f"{name}.safetensors", self._replica, {**facts, **self._inputs.facts})

    def _score_present(self, prefix: str = "") -> Scores:
        """Scores the model that the replica holds, with newly estimated BatchNorm statistics."""
        self._replica.refresh()
        self._replica.recalibrate(*self._splits["train"])
        return {prefix + split: self._replica.score(*arrays) for split, arrays in self._splits.items()}

    def _score_local(self, due: pb.EvaluateReply, prefix: str) -> tuple[Scores, int]:
        """Scores of the local models' mean, which the replica holds afterwards, and of their vote; how many there were."""
        before = self._replica.local.copy()

        def keep(number: int) -> None:
            if due.final:
                self.write(f"last.local-{number}", {"epoch": str(due.epoch)})

        found = self._locals.gather(due.peers, self._splits, "vote" in self._in_force.policy.scores, keep)
        if found is None:
            self._replica.load(before)
            self._replica.recalibrate(*self._splits["train"])
            self._say("no local model could be had", epoch=due.epoch)
            return {}, 0
        self._replica.load(found.mean)
        votes = {f"vote_{split}": values for split, values in found.vote.items()}
        return self._score_present(prefix) | votes, found.count


def evaluate(start: Start[ToldEvaluator]) -> int:
    """Runs the evaluator; returns the exit code."""
    told = start.told
    return run_process(
        start, lambda around, shards: ModuleScorer(around, shards, told.models, told.device, told.final_threads).run()
    )
