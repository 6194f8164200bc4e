"""The arguments of a server of shards."""

from pathlib import Path

from pydantic import Field

from paceline.processes.command_line import Port, ProcessArguments


class ToldShardServer(ProcessArguments):
    """The arguments of `python -m paceline.sharder serve`."""

    out: Path = Field(description="Folder of the shards; they are written first if they are missing.")
    port: Port = Field(0, description="gRPC port; 0 for any free one.")
    chief: str = Field("", description="Address of server 0, from which it learns the keys of a new secret.")
    health_port: Port = Field(0, description="gRPC health port; 0 for any free one.")

    @property
    def name(self) -> str:
        return "sharder"
