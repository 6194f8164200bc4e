"""The error for servers that have come back without what they had kept."""

from collections.abc import Sequence

from paceline.core.errors import DataError


def lost(servers: Sequence[int]) -> DataError:
    """Names these servers (at least one): their slices are empty, though the run has trained."""
    if len(servers) == 1:
        index = servers[0]
        return DataError(
            f"Server {index} has no snapshot, though the run has trained: its part of the model is lost. Bring back its folder "
            f"(on Kubernetes: the volume of the claim checkpoints-RUN-paceline-server-{index}), or start the run over with "
            "empty folders (on Kubernetes: make teardown purge)."
        )
    names = ", ".join(map(str, servers))
    return DataError(
        f"Servers {names} have no snapshots, though the run has trained: their parts of the model are lost. Bring back their "
        "folders (on Kubernetes: the volumes of the claims checkpoints-RUN-paceline-server-N), or start the run over with "
        "empty folders (on Kubernetes: make teardown purge)."
    )
