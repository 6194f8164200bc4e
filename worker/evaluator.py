"""`python -m paceline.worker.evaluator`: scores versions of the model as they come, always the final one; writes the model."""

import paceline.first_process  # noqa: F401  # isort: skip

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.load_settings import exits, parse_sets, run_command
from paceline.tasks.task import load_config
from paceline.tls_option import Tls


def main(
    shards: Annotated[Path, typer.Option(help="Folder that the sharder wrote; with --shard-server one for copies.")],
    servers: Annotated[
        str, typer.Option(help="host:port of every server in order, with commas; {} stands for 0, 1, ...")
    ],
    models: Annotated[Path, typer.Option(help="Folder for the last and the best model.")],
    config: Annotated[Path | None, typer.Option(help="YAML file with the run's settings.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the run's token.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads for torch.")] = 1,
    metrics_port: Annotated[int, typer.Option(min=0, max=65535, help="Prometheus port; 0 for any free one.")] = 0,
    shard_server: Annotated[str, typer.Option(help="host:port of `sharder serve`, for data.source=server.")] = "",
    tls: Tls = None,
    report: Annotated[Path | None, typer.Option(help="JSON file to write the port to.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Overrides, like policy.bound=3.")] = None,
) -> None:
    """Scores versions until the run is finished, then exits with 0."""
    with exits("evaluator"):
        loaded = load_config(config, parse_sets(settings or []), own_file=False)
        from paceline.rpc.auth import read_credentials
        from paceline.worker.startup.start import Start

        if loaded.updates == "sparse":
            from paceline.worker.scoring.linear_scorer import evaluate
        else:
            from paceline.worker.scoring.module_scorer import evaluate

        credentials = read_credentials(token_file, tls)
        start = Start(
            loaded, "evaluator", shards, servers, credentials, device, threads, metrics_port, report,
            shard_server=shard_server,
        )  # fmt: skip
        code = evaluate(start, models)
        # Threads that wait in gRPC calls must not keep a stopped process alive.
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    run_command(main)
