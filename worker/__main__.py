"""`python -m paceline.worker`: trains on its shard against the servers."""

import paceline.base.first_process  # noqa: F401  # isort: skip

from paceline.processes.command_line import end_process, options_of
from paceline.processes.exits import exits, run_command
from paceline.worker.command_line import ToldWorker
from paceline.worker.startup.start import Start


@options_of(ToldWorker)
def main(told: ToldWorker) -> None:
    """Trains until the run is over, then exits with 0."""
    with exits(told.name):
        start = Start.read(told)
        if start.config.updates == "sparse":
            from paceline.worker.linear.linear_worker import work
        else:
            from paceline.worker.module_worker import work

        end_process(work(start))


if __name__ == "__main__":
    run_command(main)
