"""All messages that a caller may send, as the descriptors of `protos/` have them."""

import importlib
import pkgutil
from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, ServiceDescriptor

import paceline.v1


def services() -> Iterator[ServiceDescriptor]:
    for module in pkgutil.iter_modules(paceline.v1.__path__, "paceline.v1."):
        if module.name.endswith("_pb2"):
            yield from importlib.import_module(module.name).DESCRIPTOR.services_by_name.values()


def requests() -> dict[str, Descriptor]:
    """By name, the requests of all services and the messages in them; what a map has for its entries is none."""
    waiting = [method.input_type for service in services() for method in service.methods]
    found: dict[str, Descriptor] = {}
    while waiting:
        message = waiting.pop()
        if message.name not in found:
            waiting += [field.message_type for field in message.fields if field.message_type]
            if not message.GetOptions().map_entry:
                found[message.name] = message
    return found
