"""What a server of shards is told."""

from pathlib import Path

from pydantic import Field

from paceline.command_line import Port, ToldProcess


class ToldShardServer(ToldProcess):
    """What `python -m paceline.sharder serve` is told."""

    out: Path = Field(description="Folder of the shards; they are written first where they are not there.")
    port: Port = Field(0, description="gRPC port; 0 for any free one.")
    health_port: Port = Field(0, description="gRPC health port; 0 for any free one.")
