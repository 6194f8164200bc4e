"""The arguments of a server."""

from pathlib import Path

from pydantic import Field

from paceline.processes.command_line import Port, ProcessArguments
from paceline.rpc.roles import Role


class ToldServer(ProcessArguments):
    """The arguments of a server."""

    folder: Path = Field(description="Folder for snapshots and state; the same one resumes.")
    index: int = Field(0, description="Number of this server; 0 is the chief.")
    chief: str = Field("", description="host:port of server 0, for the other servers.")
    port: Port = Field(0, description="gRPC port; 0 for any free one.")
    lane_port: Port = Field(0, description="Port of the lane; 0 for any free one.")
    health_port: Port = Field(0, description="gRPC health port; 0 for any free one.")

    @property
    def role(self) -> Role:
        return "server"

    @property
    def name(self) -> str:
        return f"server-{self.index}"
