"""The ports that the launcher has processes of this machine listen on."""

from collections.abc import Iterator

from paceline.core.errors import ConfigError
from paceline.core.settings.ports import port_range
from paceline.rpc.listening import EVERYWHERE, listening_socket


class FreePorts:
    """Those of the setting `ports`, each given once; 0, any free one, where that is empty."""

    def __init__(self, ports: str) -> None:
        self._ports = ports
        self._left: Iterator[int] = iter(port_range(ports))

    def take(self) -> int:
        """The next one that nobody listens on. ConfigError: there is none left."""
        if not self._ports:
            return 0
        for port in self._left:
            if is_free(port):
                return port
        raise ConfigError(
            f"ports={self._ports}: no port of this range is free on this machine. Each server needs two ports, "
            "each worker and each shard server one. Set a wider range, like ports=7100-7199."
        )


def is_free(port: int) -> bool:
    """Whether nobody listens there."""
    try:
        with listening_socket(EVERYWHERE, port, backlog=1):
            return True
    except OSError:
        return False
