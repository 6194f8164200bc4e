"""`python -m paceline.server`: holds one slice of the model and answers pushes and pulls."""

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
    folder: Annotated[Path, typer.Option(help="Folder for snapshots and state; the same one resumes.")],
    config: Annotated[Path | None, typer.Option(help="YAML file with the run's settings.")] = None,
    index: Annotated[int, typer.Option(help="Number of this server; 0 is the chief.")] = 0,
    chief: Annotated[str, typer.Option(help="host:port of server 0, for the other servers.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="gRPC port; 0 for any free one.")] = 0,
    lane_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the lane; 0 for any free one.")] = 0,
    metrics_port: Annotated[int, typer.Option(min=0, max=65535, help="Prometheus port; 0 for any free one.")] = 0,
    health_port: Annotated[int, typer.Option(min=0, max=65535, help="gRPC health port; 0 for any free one.")] = 0,
    token_file: Annotated[Path | None, typer.Option(help="File with the run's token; else anybody may call.")] = None,
    tls: Tls = None,
    report: Annotated[Path | None, typer.Option(help="JSON file to write the ports to once they are open.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Overrides, like policy.bound=3.")] = None,
) -> None:
    """Serves one slice of the model until it is told to stop. Resumes from its folder."""
    with exits(f"server-{index}"):
        loaded = load_config(config, parse_sets(settings or []), own_file=False)
        from paceline.rpc.auth import read_credentials
        from paceline.server.server import serve

        code = serve(
            loaded,
            index,
            folder,
            read_credentials(token_file, tls),
            chief,
            port,
            lane_port,
            metrics_port,
            health_port,
            report,
        )
        # Threads that wait in gRPC calls must not keep a stopped process alive.
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    run_command(main)
