"""What all processes of one launch have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.folder.run_tokens import given_token
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.this_machine.processors import threads_each


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Settings of the run, as far as they are known when it is launched, and of this machine."""

    config: Config
    folder: RunFolder
    device: str
    """What workers and evaluator compute on."""
    shards: Path
    """Folder of the shards, which may be another run's."""
    objects: int | None = None
    """The descriptor of what is trained (paceline/processes/packing.py), where that is no task and no script."""
    bind: str = ""
    """Where processes listen, if not on this machine alone."""
    workers_here: int | None = None
    """Workers that share this machine's cores; None: all."""

    @property
    def threads(self) -> int:
        """CPU threads of each process that computes."""
        return threads_each(self.config.workers if self.workers_here is None else self.workers_here)

    @property
    def environment(self) -> Mapping[str, str]:
        """What processes see, if nothing is added for them."""
        return child_environment(self.threads)

    def arguments(self, name: str) -> dict[str, Any]:
        """The arguments that all processes of the run share; the named one also gets where to report."""
        folder, config = self.folder, self.folder.config
        if self.config.is_script and folder.first_settings.exists():
            config = folder.first_settings
        found = {"config": config, "token_file": given_token(folder, name), "report": folder.ports(name)}
        return found | ({"bind": self.bind} if self.bind else {})
