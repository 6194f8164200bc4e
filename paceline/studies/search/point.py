"""`python -m paceline.studies.search.point`: one run of a search, in a folder that is prepared, on shards that exist."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.supervise.launcher import run_local
from paceline.processes.exits import exits, run_command
from paceline.settings.load_settings import load


def main(
    folder: Annotated[Path, typer.Option(help="Folder of the run, with its config and a link to its shards.")],
    device: Annotated[str, typer.Option(help="What to compute on: auto, cpu, cuda, cuda:1.")] = "auto",
) -> None:
    """Trains, and exits as `paceline run` does."""
    with exits("point"):
        place = RunFolder(folder)
        outcome = run_local(load(place.config), folder, shards=place.shards.resolve(), device=device, keep=True)
        print(outcome.reason, flush=True)
        sys.exit(outcome.exit_code)


if __name__ == "__main__":
    run_command(main)
