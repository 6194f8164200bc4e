"""Which processes a run on Kubernetes needs now: a pure function of what exists, asked again and again (decision 82). No
clock, no cluster, no network: its caller observes, and sets the counts."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from paceline.core.errors import ConfigError, DataError, Stopped, TryAgain, UsageError

SERVER, SHARDER, WORKER, EVALUATOR = "server", "sharder", "worker", "evaluator"
PARTS = (SERVER, SHARDER, WORKER, EVALUATOR)
STATE, SAYS, WORKERS = "state", "says", "workers"
"""Keys of the run's ConfigMap: what the controller remembers, what it does in words, and how many workers a person wants."""
HOPELESS = (UsageError.exit_code, DataError.exit_code, ConfigError.exit_code)
"""Exit codes that the next start of the same template gives again."""
_AGAIN = (0, TryAgain.exit_code, Stopped.exit_code)
"""Exit codes that are no failures: finished, try again, stopped on request."""
ATTEMPTS, ATTEMPTS_OF_SCRIPT = 6, 3
"""How often a container starts again after other errors before its part is given up; a mistake in a script is made at every
start."""
_OVERDUE = "it was stopped after {hours:.4g} hours, its deadline by the annotation paceline.dev/deadline (seconds)"
ROOM = 60.0
"""Time for which a server may find no node before the other parts make room for it (seconds)."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended last."""

    code: int
    at: float
    """When (seconds since 1970, by Kubernetes' clock)."""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """One process."""

    template: str
    """The one that it was made from."""
    ready_since: float = math.inf
    """When it got ready (seconds since 1970); infinite while it is not."""
    starts: int = 0
    """How often its container was started again."""
    ended: Ended | None = None
    homeless: float = 0.0
    """Time for which no node has taken it (seconds)."""
    age: float = 0.0
    """Time since a node took it (seconds)."""

    @property
    def is_hopeless(self) -> bool:
        """Whether its container ends with an error that the next start gives again, and does not serve meanwhile."""
        return self.ended is not None and self.ended.code in HOPELESS and math.isinf(self.ready_since)


@dataclass(frozen=True, slots=True)
class Part:
    """A StatefulSet of the run."""

    replicas: int
    template: str
    """Kubernetes' name of the newest one; empty until it has seen that."""
    settings: str
    """The ConfigMap with the run's settings that the newest template mounts."""
    pods: tuple[Pod, ...] = ()
    deadline: float = math.inf
    """How old a pod that has an end gets before the part is given up (seconds)."""

    @property
    def own(self) -> tuple[Pod, ...]:
        """The pods that were made from the newest template."""
        return tuple(pod for pod in self.pods if pod.template == self.template)

    def serves_since(self, count: int) -> float:
        """When the last of `count` pods of the newest template got ready (seconds since 1970); infinite until then."""
        is_whole = len(self.pods) == len(self.own) == count
        return max((pod.ready_since for pod in self.pods), default=math.inf) if is_whole else math.inf


@dataclass(frozen=True, slots=True)
class Chief:
    """What server 0 says of the run."""

    is_finished: bool
    result: str = ""
    """The score of the final version in words, or that there is none."""
    reason: str = ""
    """Why the training ended."""
    version: int = 0
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """What run.yaml says."""

    servers: int
    workers: int
    epochs: int
    is_script: bool = False
    streams: bool = False
    """Whether the sharder goes on as a server of shards."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation."""

    parts: Mapping[str, Part]
    """Those that exist."""
    settings: str
    """The ConfigMap that `sizes` are of."""
    sizes: Sizes
    chief: Chief | None = None
    """None while it does not answer."""
    workers: int | None = None
    """How many shall be pods: fewer where others outside the cluster take seats, or as a person has asked while it trains."""
    in_queue: bool = False
    """Whether all pods must exist before one of them begins, as Kueue's pod groups must."""


@dataclass(frozen=True, slots=True)
class Result:
    """How the run has ended."""

    epochs: int
    """Those of run.yaml: with more of them the run goes on."""
    sentence: str
    reason: str = ""
    version: int = 0
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a part is not started again until its manifests change."""

    template: str
    code: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Memory:
    """All that is remembered from one observation to the next. Without it a run does nothing wrong: its servers come back to
    say that it is finished, and what failed fails once more."""

    result: Result | None = None
    failed: Mapping[str, Failed] = field(default_factory=dict)
    """By part."""
    sharded: str = ""
    """The sharder's template of which a process has ended well."""
    is_open: bool = False
    """Whether the servers have served, so that workers and evaluator may run."""

    def text(self) -> str:
        """As JSON, which `of` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> "Memory":
        """From `text`; what this release can't read counts as nothing kept."""
        try:
            found = json.loads(text)
            result = None if found["result"] is None else Result(**found["result"])
            failed = {part: Failed(**each) for part, each in found["failed"].items()}
            return cls(result, failed, str(found["sharded"]), bool(found["is_open"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()


class Wanted(NamedTuple):
    """What to do."""

    counts: dict[str, int]
    """Of the parts that exist."""
    kept: Memory
    does: str
    """What the run does, in a sentence or two."""

    @property
    def says(self) -> str:
        """The same after the parts that have failed."""
        return " ".join([*_failures(self.kept), self.does])


def wanted(seen: Seen, kept: Memory) -> Wanted:
    """Returns how many processes of each part are needed now, what to remember, and what to say."""
    if others := sorted({part.settings for part in seen.parts.values()} - {seen.settings}):
        counts = {name: part.replicas for name, part in seen.parts.items()}
        return Wanted(counts, kept, f"Other parts have other settings ({', '.join(others)}): an apply is under way.")

    kept = _after_the_end(seen, kept)
    if kept.result is not None:
        return Wanted(dict.fromkeys(seen.parts, 0), kept, _farewell(kept.result))

    kept = replace(kept, is_open=_is_open(seen, kept), sharded=_sharded(seen, kept), failed=_failed(seen, kept))
    asked = {
        SERVER: seen.sizes.servers,
        SHARDER: int(seen.sizes.streams or not _has_shards(seen, kept)),
        WORKER: seen.sizes.workers if seen.workers is None else seen.workers,
        EVALUATOR: 1,
    }
    counts = {name: asked[name] if _may_run(name, seen, kept) else 0 for name in seen.parts}
    return Wanted(counts, kept, " ".join(_sentences(seen, kept, counts)))


def _after_the_end(seen: Seen, kept: Memory) -> Memory:
    """With the result of a run that has just finished, without that of one that was given more epochs. Only servers that all
    have the newest settings tell the end: others finish at their own epochs."""
    if kept.result is not None and seen.sizes.epochs > kept.result.epochs:
        kept = replace(kept, result=None)
    chief, servers = seen.chief, seen.parts.get(SERVER)
    if kept.result is not None or chief is None or servers is None or not chief.is_finished:
        return kept
    if math.isinf(servers.serves_since(seen.sizes.servers)):
        return kept
    # the evaluator has written the model: the chief is finished only once the final score has come, or will not come
    return Memory(Result(seen.sizes.epochs, chief.result, chief.reason, chief.version, chief.exit_code))


def _is_open(seen: Seen, kept: Memory) -> bool:
    """Whether workers and evaluator may run: from when all servers serve until one of them finds no room or no way to start.
    A server that only starts again is waited for by those that run."""
    servers = seen.parts.get(SERVER)
    if seen.in_queue or servers is None:
        return seen.in_queue or kept.is_open
    if not math.isinf(servers.serves_since(seen.sizes.servers)):
        return True
    is_stuck = any(pod.homeless > ROOM or pod.is_hopeless for pod in servers.pods)
    return kept.is_open and not is_stuck


def _sharded(seen: Seen, kept: Memory) -> str:
    """The sharder's template of which a process has ended well; that of an earlier observation while there is no newer one."""
    sharder = seen.parts.get(SHARDER)
    ends = [pod.ended for pod in sharder.own if pod.ended] if sharder else []
    return sharder.template if sharder and any(end.code == 0 for end in ends) else kept.sharded


def _has_shards(seen: Seen, kept: Memory) -> bool:
    """Whether nothing has to be sharded before workers begin."""
    sharder = seen.parts.get(SHARDER)
    return sharder is None or seen.sizes.streams or (kept.sharded == sharder.template and bool(kept.sharded))


def _failed(seen: Seen, kept: Memory) -> dict[str, Failed]:
    """What is not to be started again, of the templates that are the newest ones now. What ended before all servers had the
    newest settings and served proves nothing: it may have met the older ones."""
    servers = seen.parts.get(SERVER)
    since = servers.serves_since(seen.sizes.servers) if servers else math.inf
    found = {}
    for name in (SHARDER, WORKER, EVALUATOR):
        part = seen.parts.get(name)
        before = kept.failed.get(name)
        if part is None:
            continue
        if before is not None and part.template in (before.template, ""):
            found[name] = before
        elif new := _failure(part, seen, -math.inf if name == SHARDER else since):
            found[name] = new
    return found


def _failure(part: Part, seen: Seen, since: float) -> Failed | None:
    """An error that the next start gives again, one that all processes of the part have given too often, or a deadline."""
    ends = [pod.ended for pod in part.own if pod.ended is not None and pod.ended.at > since]
    hopeless = next((end for end in ends if end.code in HOPELESS), None)
    most = ATTEMPTS_OF_SCRIPT if seen.sizes.is_script else ATTEMPTS
    is_worn = len(ends) == len(part.pods) > 0 and all(end.code not in _AGAIN for end in ends)
    if is_worn and all(pod.starts >= most for pod in part.own):
        hopeless = hopeless or ends[0]
    is_through = seen.sizes.streams or any(end.code == 0 for end in ends)
    if hopeless is None and not is_through and any(pod.age > part.deadline for pod in part.own):
        hopeless = Ended(Stopped.exit_code, math.inf, _OVERDUE.format(hours=part.deadline / 3600))
    return Failed(part.template, hopeless.code, hopeless.sentence) if hopeless else None


def _may_run(name: str, seen: Seen, kept: Memory) -> bool:
    """Whether the part has any process: servers always, all others unless they have failed, workers and evaluator only
    behind the servers. The first of these also wait for shards; those that run have some."""
    if name == SERVER:
        return True
    if name in kept.failed:
        return False
    if name == SHARDER:
        return True
    has_begun = seen.parts[name].replicas > 0
    return kept.is_open and (has_begun or seen.in_queue or _has_shards(seen, kept))


def _farewell(result: Result) -> str:
    why = f" ({result.reason.rstrip('.')})" if result.reason else ""
    more = f"To go on, set `epochs` in run.yaml above {result.epochs} and apply it."
    return f"The run is finished{why}: {result.sentence}. {more}"


def _sentences(seen: Seen, kept: Memory, counts: Mapping[str, int]) -> Iterator[str]:
    """What runs, or what it waits for."""
    servers = seen.parts.get(SERVER)
    if missing := [name for name in (SERVER, WORKER, EVALUATOR) if name not in seen.parts]:
        yield f"There is no StatefulSet of the {' and the '.join(missing)}: apply all manifests."
    if servers and math.isinf(servers.serves_since(seen.sizes.servers)):
        yield _on_servers(servers, kept)
    elif counts.get(WORKER):
        trains = f"The run trains, with {counts[WORKER]} worker{'s' if counts[WORKER] > 1 else ''}."
        again = f"{trains} The sharder's manifests have changed, so it makes sure of its shards."
        yield trains if _has_shards(seen, kept) else again if kept.sharded else "Shards are being made."
    elif WORKER in seen.parts and not kept.failed:
        yield "Workers wait for the shards."


def _failures(kept: Memory) -> Iterator[str]:
    """The parts that are not started again, and why."""
    for name, failed in kept.failed.items():
        ended = f"The {name} ended with exit code {failed.code}: {failed.sentence.rstrip('.') or 'it said nothing'}."
        yield f"{ended} It is started again when its manifests change, or by kubectl rollout restart."


def _on_servers(servers: Part, kept: Memory) -> str:
    """What keeps servers from serving."""
    if end := next((pod.ended for pod in servers.pods if pod.is_hopeless and pod.ended), None):
        return f"A server ended with exit code {end.code}: {end.sentence.rstrip('.')}. The others wait."
    if any(pod.homeless > ROOM for pod in servers.pods):
        return "No node has room for a server, so the others have made room and wait for it."
    return "Servers start again, and the others wait for them." if kept.is_open else "Servers start."


def count_of(kept: Any) -> int | None:
    """Returns the number of workers that a person has asked for, from the text that says so; None where it says no number."""
    text = str(kept or "")
    return int(text) if text.isdecimal() else None
