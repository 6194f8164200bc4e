"""`python -m paceline.worker.evaluator`: scores versions of the model as they come, always the final one; writes the model."""

import paceline.base.first_process  # noqa: F401  # isort: skip

from paceline.processes.command_line import end_process, options_of
from paceline.processes.exits import exits, run_command
from paceline.worker.command_line import ToldEvaluator
from paceline.worker.startup.start import Start


@options_of(ToldEvaluator)
def main(told: ToldEvaluator) -> None:
    """Scores versions until the run is finished, then exits with 0."""
    with exits(told.name):
        start = Start.read(told)
        if start.config.updates == "sparse":
            from paceline.worker.scoring.linear_scorer import evaluate
        else:
            from paceline.worker.scoring.module_scorer import evaluate

        end_process(evaluate(start))


if __name__ == "__main__":
    run_command(main)
