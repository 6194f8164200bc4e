"""`paceline set`: changes the policy of a run, or its bounds, while it trains."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.base.own_files import is_own
from paceline.core.errors import ServersGone, UsageError
from paceline.core.extension import Options
from paceline.core.policies.policy import build_policy, from_shorthand
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status.chief_status import Chief, RemoteChief
from paceline.launch.status.run_status import PAUSE, Connect, find_chief, patiently
from paceline.rpc.setting_values import policy_value
from paceline.settings.load_settings import parse_sets
from paceline.settings.own_extensions import OWN
from paceline.v1.switch_pb2 import Switch

PATIENCE = 30.0
"""Time that a run gets to be ready for a change, and then for its workers to reach the clock it names (seconds)."""


def set_policy(
    folder: RunFolder, settings: Sequence[str], connect: Connect = RemoteChief, patience: float = PATIENCE
) -> str:
    """Asks the chief for the change and waits until it has begun; what to tell the user."""
    wanted = _wanted(folder, settings)
    chief = find_chief(folder, connect)
    if chief is None:
        raise UsageError(f"Run '{folder.name}' has ended; a policy can only be changed while a run trains.")
    try:
        asked = time.monotonic()
        switch = patiently(lambda: chief.set_policy(wanted), asked + patience)
        return _begun(chief, switch, asked, patience)
    finally:
        chief.close()


def _wanted(folder: RunFolder, settings: Sequence[str]) -> dict[str, Any]:
    """The policy, whose file is tried out before the run gets a copy of it; where there is no such file, that of the run."""
    name = _name(settings)
    is_here = is_own(name) and Path(name).is_file()
    OWN.open(None if is_here else folder.path)
    wanted = read_policy(settings)
    if is_here:
        build_policy(Options(**wanted))
        folder.add_own(name)
    return wanted


def _name(settings: Sequence[str]) -> str:
    """Of the policy, before anything is looked up: '' where none is given."""
    policy = parse_sets(list(settings)).get("policy")
    if isinstance(policy, Mapping):
        return str(policy.get("name", ""))
    return str(policy or "").partition(":")[0]


def read_policy(settings: Sequence[str]) -> dict[str, Any]:
    """['policy.name=ssp', 'policy.bound=5'], or ['policy=ssp:5'], as name and options; UsageError for other keys."""
    found = parse_sets(list(settings))
    policy = found.pop("policy", None)
    if found or not policy:
        seen = ", ".join(found) or "nothing"
        raise UsageError(
            f"paceline set got {seen}; only the policy can change while a run trains. Give policy.name=ssp "
            "policy.bound=5, or policy=ssp:5."
        )
    return from_shorthand(policy) if isinstance(policy, str) else dict(policy)


def _begun(chief: Chief, switch: Switch, asked: float, patience: float) -> str:
    """Waits until every server trains under the new policy."""
    policy = described(policy_value(switch.policy))
    while time.monotonic() < asked + patience:
        status = chief.status()
        if status is None:
            raise ServersGone(f"The chief accepted the change to {policy}, but no longer answers.")
        if not status.switching:
            return f"{policy} trains from version {switch.version:,} on, after {time.monotonic() - asked:.1f} s."
        time.sleep(PAUSE)
    return (
        f"{policy} begins as soon as every worker has come to its last step under the old policy (a slow one has not)."
    )


def described(policy: Mapping[str, Any]) -> str:
    """'ssp (bound 5)'."""
    options = ", ".join(f"{key} {value}" for key, value in policy.items() if key != "name")
    return f"{policy['name']} ({options})" if options else str(policy["name"])
