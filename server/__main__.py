"""`python -m paceline.server`: holds one slice of the model and answers pushes and pulls."""

import paceline.base.first_process  # noqa: F401  # isort: skip

from paceline.processes.command_line import end_process, options_of
from paceline.processes.exits import exits, run_command
from paceline.server.command_line import ToldServer


@options_of(ToldServer)
def main(told: ToldServer) -> None:
    """Serves one slice of the model until it receives a stop signal. Resumes from its folder."""
    with exits(f"server-{told.index}"):
        config = told.load()
        from paceline.server.server import serve

        end_process(serve(config, told))


if __name__ == "__main__":
    run_command(main)
