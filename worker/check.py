"""`python -m paceline.worker.check`: one mini-batch through all that a run needs, so that a mistake is told before anything
is started."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.data.shards import open_shards
from paceline.load_settings import exits, load, run_command


def main(
    shards: Annotated[Path, typer.Option(help="Folder that the sharder wrote.")],
    config: Annotated[Path, typer.Option(help="YAML file with the run's settings.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads for torch.")] = 1,
) -> None:
    """Ends with 0 where a run can start; else says why not, with the exit code that the run would have."""
    with exits("check"):
        found = load(config)
        if found.updates == "sparse":
            from paceline.worker.checking.check_linear import check_linear

            check_linear(found, open_shards(shards))
            return
        from paceline.worker.checking.check_module import check
        from paceline.worker.training.model_and_gradient import use_threads

        use_threads(threads)
        check(found, open_shards(shards), device)
        if found.loop is not None:
            from paceline.worker.checking.rehearsal import rehearse

            rehearse(found.loop, config, shards, device, threads)
        sys.stderr.flush()


if __name__ == "__main__":
    run_command(main)
