"""Which policies and numbers of workers and servers a plan looks at: those that the user names, or a few around the run's
settings. Each is one that `paceline run` takes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.core.errors import ConfigError, UsageError
from paceline.core.policies.policy import build_policy, is_served
from paceline.core.settings.config import Config, Options
from paceline_studies.planning.readers import Reader

AROUND = ("bsp", "asp", "shat")
"""Next to the run's own policy: the tightest, the loosest, and one that never waits, but mixes weights by staleness."""
WITHOUT_SERVERS = ("allreduce", "adpsgd")
"""The same for runs without servers."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run."""

    policy: str
    """As `--policy` takes it."""
    is_own: bool
    """Whether the run's settings name it, so that no `--policy` is needed."""
    config: Config

    @property
    def workers(self) -> int:
        return self.config.workers

    @property
    def servers(self) -> int:
        return self.config.servers


@dataclass(frozen=True)
class ChosenSizes:
    """What the user named; empty: a few around the run's settings."""

    workers: Sequence[int] = ()
    servers: Sequence[int] = ()
    policies: Sequence[str] = ()

    @classmethod
    def of(cls, workers: str | None, servers: str | None, policies: str | None) -> "ChosenSizes":
        """From the words of a command line. UsageError where they can't be read."""
        parts = [] if policies is None else [each.strip() for each in re.split(r",(?![^{]*\})", policies)]
        if not all(parts):
            raise UsageError(f"--policy {policies}: expected one or more policies, like bsp,ssp:3.")
        return cls(_numbers("--workers", workers, 1), _numbers("--servers", servers, 0), tuple(dict.fromkeys(parts)))

    def own(self, read: Reader) -> Config:
        """The settings that all ways are around. ConfigError where they can't be read."""
        return read(next(iter(self.workers), None), None, None)

    def first(self, read: Reader) -> Config:
        """The settings with the first of each that was named. ConfigError where they can't run."""
        workers, servers = (next(iter(each), None) for each in (self.workers, self.servers))
        return read(workers, servers, next(iter(self.policies), None))


def _numbers(option: str, text: str | None, least: int) -> tuple[int, ...]:
    """'2,4,8' as numbers, each once."""
    if text is None:
        return ()
    try:
        found = tuple(dict.fromkeys(int(each) for each in text.split(",")))
    except ValueError:
        found = ()
    if not found or min(found) < least:
        raise UsageError(f"{option} {text}: expected whole numbers of {least} or more, like 4 or 2,4,8.")
    return found


def choices(asked: ChosenSizes, config: Config, read: Reader) -> tuple[list[Choice], list[str]]:
    """All ways that are asked for, and why others can't run. ConfigError where none can. `config`: the run's own settings."""
    found: dict[tuple[str, int, int], Choice] = {}
    refused: list[str] = []
    for workers, servers, policy in _combinations(asked, config):
        is_own = not asked.policies and policy == shorthand(config)
        try:
            way = read(workers, servers, None if is_own else policy)
        except ConfigError as error:
            refused.append(f"{policy} with {workers} workers and {servers} servers: {error}")
            continue
        name = shorthand(way) if is_own else policy  # one that is not named may depend on the servers
        found.setdefault((name, workers, servers), Choice(name, is_own, way))
    if not found:
        raise ConfigError(refused[0])
    return list(found.values()), refused if asked.policies else []


def _combinations(asked: ChosenSizes, config: Config) -> Iterator[tuple[int, int, str]]:
    """Workers, servers and policy of each."""
    own, many = shorthand(config), config.workers
    servers = asked.servers or sorted({1, config.servers} if config.servers else {0})
    around = [own, *(AROUND if any(servers) else ()), *(WITHOUT_SERVERS if 0 in servers else ())]
    known = (config.policy.name, begins_as(config))
    policies = asked.policies or [each for each in dict.fromkeys(around) if each == own or each not in known]
    for workers in asked.workers or sorted({1, max(1, many // 2), many, min(1024, 2 * many)}):
        for policy in policies if workers > 1 or asked.policies else [own]:
            with_servers = [each for each in servers if each] or servers
            for count in with_servers if _is_served(policy) else [0]:
                yield workers, count, policy


def begins_as(config: Config) -> str:
    """Returns which policy of those around it a policy that changes by itself begins as; '' of any other."""
    own = build_policy(config.policy)
    bases = (name for name in AROUND if isinstance(own, type(build_policy(Options(name=name)))))
    return next(bases, "") if own.alternatives else ""


def _is_served(policy: str) -> bool:
    return is_served(Options(name=policy.partition(":")[0]))


def shorthand(config: Config) -> str:
    """The policy as `--policy` takes it, if it has a short form for its options."""
    name, options = config.policy.name, config.policy.options
    key = build_policy(config.policy).shorthand
    return f"{name}:{options[key]}" if key is not None and key in options else name
