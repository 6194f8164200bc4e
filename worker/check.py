"""`python -m paceline.worker.check`: tries one mini-batch on all that a run needs, to report mistakes before anything
starts."""

from paceline.processes.command_line import options_of
from paceline.processes.exits import exits, run_command
from paceline.rpc.process import make_log
from paceline.worker.command_line import ToldCheck
from paceline.worker.startup.wait_for_shards import whole_shards


@options_of(ToldCheck)
def main(told: ToldCheck) -> None:
    """Exits with 0 if a run can start; otherwise says why not, and exits with the code that the run would have."""
    with exits("check"):
        config = told.load()
        shards = whole_shards(config, told.shards, make_log("check"))
        if config.updates == "sparse":
            from paceline.worker.before_run.check_linear import check_linear

            check_linear(config, shards)
            return
        from paceline.worker.before_run.check_module import check
        from paceline.worker.training.model_and_gradient import use_threads

        use_threads(told.threads)
        check(config, shards, told.device)


if __name__ == "__main__":
    run_command(main)
