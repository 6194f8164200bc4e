"""What the head tells a process on another machine, as the process takes it and as a message; its host knows the rest."""

from collections.abc import Mapping
from typing import Any

from paceline.rpc.enums import value_of
from paceline.v1 import host_service_pb2 as pb

_NUMBERS = {"worker": "rank", "server": "index"}
"""What the number of a process is called among its arguments."""


def arguments_message(role: str, arguments: Mapping[str, Any]) -> pb.ProcessArguments:
    """Returns the arguments of a process with that role as a message."""
    servers = arguments.get("servers")
    return pb.ProcessArguments(
        number=arguments[_NUMBERS[role]],
        servers=servers.split(",") if servers else [],
        shard_server=arguments.get("shard_server", ""),
        chief=arguments.get("chief", ""),
    )


def arguments_value(order: pb.ChildOrder) -> dict[str, Any]:
    """Returns the arguments that an order names, without those that are empty."""
    found = order.arguments
    named = {"servers": ",".join(found.servers), "shard_server": found.shard_server, "chief": found.chief}
    return {name: value for name, value in named.items() if value} | {_NUMBERS[value_of(order, "role")]: found.number}
