"""The arguments of a worker, the evaluator, a training script and the check before a run."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from paceline.core.errors import UsageError
from paceline.processes.command_line import Arguments, Port, ProcessArguments
from paceline.rpc.auth import Credentials
from paceline.rpc.listening import LOOPBACK, reaches
from paceline.rpc.roles import Role

FINAL_THREADS: int = Field(
    0,
    description="CPU threads for torch at the final score, when no worker trains any more; 0: those of --threads.",
)


class ToldCompute(Arguments):
    """The arguments of every process that computes on shards."""

    shards: Path = Field(description="Folder that the sharder wrote.")
    device: str = Field(
        "auto",
        description="cpu, cuda, cuda:1 or auto: the first visible GPU, or else the CPU. Several processes may share one.",
    )
    threads: int = Field(1, description="CPU threads for torch; 1 gives the same bits everywhere.")


class ToldClient(ToldCompute, ProcessArguments):
    """The arguments of every process that computes and talks to servers."""

    shards: Path = Field(
        description="Folder that the sharder wrote; with --shard-server or data.shards_at one for copies."
    )
    servers: str = Field(description="host:port of every server in order, with commas; {} stands for 0, 1, ...")
    shard_server: str = Field("", description="host:port of `sharder serve`, for data.source=server.")


class ToldWorker(ToldClient):
    """The arguments of a worker."""

    rank: Annotated[int, Field(ge=0, le=1023)] = Field(0, description="Number of this worker; its name is worker-RANK.")
    device: str = Field(
        "auto",
        description="cpu, cuda, cuda:1 or auto: the GPUs that are visible in turn, by rank. Several workers may share one.",
    )
    peer_host: str = Field(LOOPBACK, description="Host or IP under which others reach this worker's local model.")
    host: str = Field("", description="What to call this worker's machine in the run's status; empty: it is not said.")
    peer_port: Port = Field(0, description="Port for that; 0 for any free one.")
    residuals: Path | None = Field(
        None,
        description="Folder for what this worker needs when it is started again: what pushes left out, and where its "
        "script's schedulers are.",
    )

    @property
    def role(self) -> Role:
        return "worker"

    @property
    def name(self) -> str:
        return f"worker-{self.rank}"

    def credentials(self) -> Credentials:
        """UsageError, too: others are to call it by an address at which it does not listen."""
        if reaches(self.peer_host) and not reaches(self.bind):
            raise UsageError(
                f"--peer-host {self.peer_host}, but this worker listens on {self.bind}, so no other machine could read its "
                "model. Add --bind ::, and --tls DIR or --plain-text."
            )
        return super().credentials()


class ToldLaunched(ToldWorker):
    """The arguments of a script that brings its own model and data: the keys of PACELINE_CONNECT for `paceline launch`."""

    config: Path = Field(description="YAML file with the run's settings.")
    shards: Path = Field(Path(), description="Not read: the script brings the data.")
    models: Path | None = Field(None, description="Folder for the last and the best model.")
    evaluates: bool = Field(False, description="Whether this process scores versions and does not train.")
    final_threads: int = FINAL_THREADS
    objects: int | None = Field(
        None,
        description="Inherited descriptor of what is trained, where no script says it (paceline.train of live objects).",
    )

    @property
    def role(self) -> Role:
        return "evaluator" if self.evaluates else super().role

    @property
    def name(self) -> str:
        return "evaluator" if self.evaluates else super().name


class ToldEvaluator(ToldClient):
    """The arguments of the evaluator."""

    models: Path = Field(description="Folder for the last and the best model.")
    final_threads: int = FINAL_THREADS

    @property
    def role(self) -> Role:
        return "evaluator"

    @property
    def name(self) -> str:
        return "evaluator"


class ToldCheck(ToldCompute):
    """The arguments of the check before a run."""

    config: Path = Field(description="YAML file with the run's settings.")
