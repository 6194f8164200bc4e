"""The GPUs that processes of this machine see, without loading torch for it."""

import re
from collections.abc import Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
DEVICES = Path("/dev")
_DEVICE = re.compile(r"nvidia(\d+)")


def visible_gpus(environment: Mapping[str, str], devices: Path) -> list[str]:
    """Their numbers, or what stands for them in the variable. `devices`: /dev."""
    visible = environment.get(VISIBLE)
    if visible is not None:
        return [one.strip() for one in visible.split(",") if one.strip() and one.strip() != "-1"]
    found = (_DEVICE.fullmatch(each.name) for each in devices.glob("nvidia*"))
    return sorted((each[1] for each in found if each), key=int)
