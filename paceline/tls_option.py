"""The option by which every process is told of its keys; light, so that help shows at once."""

from pathlib import Path
from typing import Annotated

import typer

Tls = Annotated[
    Path | None,
    typer.Option(
        "--tls",
        metavar="DIR",
        envvar="PACELINE_TLS",  # settings.TLS, which is not light
        help="Folder with ca.crt, tls.crt and tls.key: mutual TLS between all processes; else plain text.",
    ),
]
