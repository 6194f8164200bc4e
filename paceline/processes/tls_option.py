"""The option that tells every process of its keys; light, so that help shows at once."""

from pathlib import Path
from typing import Annotated

import typer

Tls = Annotated[
    Path | None,
    typer.Option(
        "--tls",
        metavar="DIR",
        envvar="PACELINE_TLS",  # settings.TLS, which is not light
        help="Folder with ca.crt, tls.crt and tls.key for mutual TLS between all processes; default: no encryption.",
    ),
]
