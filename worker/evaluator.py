"""`python -m worker.evaluator`: scores versions of the model as they come, and always the final one; writes the model."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.core.errors import Stopped
from paceline.settings import exits, load, parse_sets


def main(
    shards: Annotated[Path, typer.Option(help="Folder that the sharder wrote.")],
    servers: Annotated[str, typer.Option(help="host:port of every server in order, separated by commas.")],
    models: Annotated[Path, typer.Option(help="Folder for last.safetensors and best.safetensors.")],
    config: Annotated[Path | None, typer.Option(help="YAML file with the run's settings.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the run's token.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads for torch.")] = 1,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Overrides, like policy.bound=3.")] = None,
) -> None:
    """Scores versions until the run is finished, then exits with 0."""
    with exits("evaluator"):
        loaded = load(config, parse_sets(settings or []))
        from paceline.rpc.auth import read_token
        from paceline.rpc.process import make_log, stop_on_signals
        from worker.app import check_addresses, wait_for_shards
        from worker.replica import use_threads
        from worker.scoring import Scorer

        say = make_log("evaluator")
        stop, signals = stop_on_signals()
        code = 0
        try:
            use_threads(threads)
            addresses = check_addresses(servers, loaded)
            opened = wait_for_shards(shards, loaded, stop, say)
            Scorer(loaded, opened, addresses, read_token(token_file), models, device, stop, say).run()
        except Stopped:
            say("stopped on request")
            code = 130 if signal.SIGINT in signals else Stopped.exit_code
        # Threads that wait in gRPC calls must not keep a stopped process alive.
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    typer.run(main)
