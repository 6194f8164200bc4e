"""Options of `paceline shard` and of the sharder's own program; light, so that help shows at once."""

from typing import Annotated

import typer

Out = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|URL",
        help="Folder for the shards, or a URL like s3://bucket/folder; created if missing; default: data.shards_at.",
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Replace existing shards.")]
Literal = Annotated[bool, typer.Option("--literal", help="Deal exactly as the paper [Sharding] describes it.")]
