"""`python -m paceline.worker`: trains on its shard against the servers."""

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
    config: Annotated[Path | None, typer.Option(help="YAML file with the run's settings.")] = None,
    rank: Annotated[int, typer.Option(min=0, max=1023, help="Number of this worker; its name is worker-RANK.")] = 0,
    token_file: Annotated[Path | None, typer.Option(help="File with the run's token.")] = None,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, cuda, cuda:1 or auto: the GPUs that are visible in turn, by rank. Several workers may share one."
        ),
    ] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads for torch; 1 gives the same bits everywhere.")] = 1,
    metrics_port: Annotated[int, typer.Option(min=0, max=65535, help="Prometheus port; 0 for any free one.")] = 0,
    peer_host: Annotated[str, typer.Option(help="Host or IP under which others reach this worker's local model.")] = (
        "127.0.0.1"
    ),
    peer_port: Annotated[int, typer.Option(min=0, max=65535, help="Port for that; 0 for any free one.")] = 0,
    shard_server: Annotated[str, typer.Option(help="host:port of `sharder serve`, for data.source=server.")] = "",
    residuals: Annotated[
        Path | None,
        typer.Option(help="Folder to keep what pushes leave out in, for when this worker is started again."),
    ] = None,
    tls: Tls = None,
    report: Annotated[Path | None, typer.Option(help="JSON file to write the port to.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Overrides, like policy.bound=3.")] = None,
) -> None:
    """Trains until the run is over, then exits with 0."""
    with exits(f"worker-{rank}"):
        loaded = load_config(config, parse_sets(settings or []), own_file=False)
        from paceline.rpc.auth import read_credentials
        from paceline.worker.startup.start import Start

        if loaded.updates == "sparse":
            from paceline.worker.linear.linear_worker import work
        else:
            from paceline.worker.module_worker import work

        credentials, name = read_credentials(token_file, tls), f"worker-{rank}"
        code = work(
            Start(
                loaded, name, shards, servers, credentials, device, threads, metrics_port, report, peer_host, peer_port,
                shard_server, residuals,
            )
        )  # fmt: skip
        # Threads that wait in gRPC calls must not keep a stopped process alive.
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    run_command(main)
