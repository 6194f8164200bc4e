"""The folder of a run: what a later `paceline run`, `status` or `stop` needs to find again."""

import fcntl
import json
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from pydantic import ValidationError

from paceline.base.bounded import MOST_KEY, read_text
from paceline.base.own_files import is_own
from paceline.base.private import make_private
from paceline.core.errors import ConfigError, DiskError, ServersGone, UsageError
from paceline.core.registry import explain
from paceline.core.settings.config import RUN, Config
from paceline.core.stored_format import check_format
from paceline.data.shard_arrays import sync
from paceline.data.whole_file import replacing
from paceline.launch.folder.stored_checkpoints import has_checkpoints, refuse_others, remove_checkpoints
from paceline.rpc.agreed_settings import has_more_epochs
from paceline.settings.load_settings import differences, read_yaml, write_yaml
from paceline.settings.own_extensions import KEPT, by_name, own_names
from paceline.tasks.data_path import refuse_missing_data

if TYPE_CHECKING:
    from paceline.rpc.auth import Credentials

FORMAT = 1
"""Of a run's folder: the names of its files and what run.json says. A folder that names none has the first one."""
MOST_FACTS = 16 << 20
"""Largest run.json, and line of metrics.jsonl, that is read (bytes)."""
_NEWEST = 1 << 20
"""Bytes of metrics.jsonl that have the newest statuses."""
RUNS = Path("runs")
"""Under the working folder; each run has one folder in it."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names the files of one run."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def first_settings(self) -> Path:
        """The settings that a script's run was begun with; what the script asks for lies below them."""
        return self.path / "given.yaml"

    @property
    def token(self) -> Path:
        """The run's secret, which makes tokens for all others."""
        return self.path / "token"

    def token_of(self, name: str) -> Path:
        """The token of one process."""
        return self.path / "tokens" / name

    @property
    def reader_token(self) -> Path:
        """The token of those who may only ask for predictions (`paceline serve`)."""
        return self.path / "reader-token"

    @property
    def shards(self) -> Path:
        return self.path / "shards"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def task(self, named: str) -> str:
        """The task that trained this run, as `load_task` takes it; `named`: as the settings name it. A file of the user's is
        taken from its place while it is unchanged there, since it may import its neighbours; otherwise the copy in this
        folder counts, wherever the folder has been moved to."""
        kept, own = self.kept_task(named), Path(named)
        return named if not kept.is_file() or _holds(own, kept.read_bytes()) else str(kept)

    def kept_task(self, named: str) -> Path:
        """Where the copy of a user's task file is."""
        return self.path / "task" / Path(named).name

    def keep_task(self, named: str) -> str | None:
        """Copies a user's task file into this folder, before the run goes on by it; what to tell people where it is another
        one than before. DiskError where it can't be written."""
        return self._keep(self.kept_task(named), named)

    def keep_own(self, files: Iterable[Path]) -> list[str]:
        """The same for the users' files of policies, codecs and the like: the run's processes take these copies, so that one
        that is started again has the others' code. ConfigError where two have the same name."""
        kept = [(self.path / KEPT / name, str(file)) for name, file in by_name(files).items()]
        return [told for place, file in kept if (told := self._keep(place, file))]

    def add_own(self, name: str) -> None:
        """Brings a user's file to a run that is going on. ConfigError where its processes may have loaded another one."""
        kept, own = self.path / KEPT / Path(name).name, Path(name)
        if own.is_file() and kept.is_file() and not _holds(kept, own.read_bytes()):
            raise ConfigError(
                f"{name} differs from the file that run '{self.name}' keeps as {kept}, which its processes may "
                "have loaded. Give the file another name."
            )
        if self.config.exists():
            self.keep_own([own])

    def _keep(self, kept: Path, named: str) -> str | None:
        own = Path(named)
        if own.suffix != ".py" or not own.is_file() or _holds(kept, own.read_bytes()):
            return None
        is_other = kept.exists()
        try:
            make_private(kept.parent)
            temporary = kept.with_name(f".{kept.name}")
            shutil.copyfile(own, temporary)
            temporary.replace(kept)
        except OSError as error:
            raise DiskError(f"Can't copy {own} to {kept}: {error.strerror}. Is the disk full?") from error
        return f"{named} has changed since this run began; it goes on with the file as it is now." if is_other else None

    def settings(self) -> Config:
        """The run's settings. ConfigError where they can't be read."""
        try:
            return Config.model_validate(read_yaml(self.config))
        except ValidationError as error:
            wrong = " ".join(explain(error, Config))
            todo = "Correct the file, or take the release that has written it; begin another run with another name (--run)."
            raise ConfigError(f"Can't read {self.config}: {wrong} {todo}") from error

    def rewrite(self, settings: Mapping[str, Any]) -> None:
        """Puts these in place of the run's settings. DiskError where they can't be written."""
        with replacing(self.config, "the settings") as temporary:
            temporary.write_text(yaml.safe_dump(dict(settings), sort_keys=False))

    def set_servers(self, servers: int) -> None:
        """Gives the run's settings another number of servers. Hold its lock. OSError where they can't be written."""
        if self.first_settings.exists():
            _keep_given(self, {**read_yaml(self.first_settings), "servers": servers})
        _keep(self, _with_servers(self.settings(), servers))

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def server(self, index: int) -> Path:
        return self.path / f"server-{index}"

    def how_to_go_on(self, servers: int) -> str:
        """What to do with a run that has ended early, in one sentence. `servers`: how many it has."""
        if not servers:
            return "Without servers nobody keeps the models: start it over with --fresh."
        has_snapshot = any(self.path.glob("server-*/snapshot-*.json"))
        kept = (
            "goes on from its last snapshot" if has_snapshot else "has no snapshot yet, and starts from the beginning,"
        )
        return f"It {kept} with: {self.again}"

    @property
    def again(self) -> str:
        """What resumes it."""
        settings: dict[str, Any] = {}
        with suppress(ConfigError):  # what is described may be that they can't be read
            settings = read_yaml(self.config)
        if (settings.get("data") or {}).get("source") == "script" and not is_own(str(settings.get("task"))):
            return f"the same call of paceline.train or paceline.launch, and folder={str(self.path)!r} in it"
        options = f" {options}" if (options := self.facts().get("options")) else ""
        return f"paceline run {shlex.quote(str(self.config))}{options}"

    def ports(self, name: str) -> Path:
        """Where a server, worker or the evaluator says on which ports it listens, that of its metrics too."""
        return self.path / name / "ports.json" if name.startswith("server-") else self.path / "ports" / f"{name}.json"

    def copies(self, name: str = "") -> Path:
        """Where a worker or the evaluator keeps what it has fetched of the shards (data.source: server); '': all of them."""
        return self.path / "copies" / name

    @property
    def residuals(self) -> Path:
        """Where workers keep what their pushes have left out (see docs/choose/codecs.md)."""
        return self.path / "residuals"

    def facts(self) -> dict[str, Any]:
        """run.json: addresses and pids while it runs, outcome afterwards; empty where there is none yet."""
        try:
            found = json.loads(read_text(self.path / "run.json", MOST_FACTS))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def has_trained(self) -> bool:
        """Whether an earlier launch has left anything, also if run.json is lost."""
        return (
            bool(self.facts()) or any(self.path.glob("server-*/snapshot-*")) or any(self.models.glob("*.safetensors"))
        )

    @staticmethod
    def of_its_end(facts: dict[str, Any]) -> dict[str, Any]:
        """What run.json says of a run that has ended; nothing while it goes on, for the rest is of an earlier launch."""
        return facts if facts.get("exit_code") is not None else {}

    def checked(self) -> Self:
        """Itself; TooNew where a newer release has written this folder, DataError where its form is no number."""
        found = self.facts().get("format", FORMAT)
        check_format(str(self.path), found, FORMAT, "begin another run")
        return self

    def write_facts(self, **facts: Any) -> None:
        """Adds to run.json; readers see the old or the new one. OSError where that can't be done."""
        whole = self.facts() | {"format": FORMAT} | facts
        temporary = self.path / f".run.json.{os.getpid()}"
        try:
            temporary.write_text(json.dumps(whole, indent=1) + "\n")
            sync(temporary)
            temporary.replace(self.path / "run.json")
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def last_status(self) -> dict[str, Any]:
        """The newest line of metrics.jsonl: scores and workers' figures are in it; empty where there is none yet."""
        try:
            with self.metrics.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_FACTS))
                whole = [line for line in file.read(MOST_FACTS).splitlines(keepends=True) if line.endswith(b"\n")]
            found = json.loads(whole[-1]) if whole else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def newest_statuses(self) -> list[dict[str, Any]]:
        """The last lines of metrics.jsonl, oldest first: about the last half a minute; none where it can't be read."""
        try:
            with self.metrics.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - _NEWEST)
                file.seek(start)
                lines = file.read().decode(errors="replace").splitlines(keepends=True)[1 if start else 0 :]
            found = [json.loads(line) for line in lines if line.endswith("\n")]
        except (OSError, ValueError):
            return []
        return [each for each in found if isinstance(each, dict)]

    def final_metrics(self) -> dict[str, float]:
        """The final version's loss and metrics on each part of the data, like 'test_accuracy'; empty while not scored."""
        scores = self.last_status().get("scores") or []
        return dict(scores[-1]["metrics"]) if scores and scores[-1]["final"] else {}

    def read_secret(self) -> str:
        """What the file of the run's secret holds. ConfigError."""
        try:
            return read_text(self.token, MOST_KEY)
        except (OSError, UnicodeDecodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or "it is no text in UTF-8"
            raise ConfigError(
                f"Can't read the secret of run '{self.name}' ({self.token}): {why}. Did this account start the run?"
            ) from error

    def credentials(self) -> "Credentials":
        """Those of who holds the run's secret."""
        from paceline.rpc.auth import Credentials

        return Credentials(self.read_secret(), self._keys(), "admin", "", self.name, self.token)

    def _keys(self) -> Path | None:
        """Those that an admin of the run shows; None without TLS."""
        if not (tls := self.facts().get("tls")):
            return None
        from paceline.rpc.tls import own_folder

        return own_folder(Path(tls), "admin")

    def gone(self) -> ServersGone:
        """What to say when the run has not ended and nobody answers."""
        facts = self.facts()
        said = f"Run '{self.name}' has not ended, but its chief ({facts.get('chief') or 'not started yet'}) does not answer."
        if self.is_driven:
            return ServersGone(
                f"{said} It is starting or busy, since process {facts.get('launcher', '?')} drives the run; ask again. Logs: "
                f"{self.path}/logs"
            )
        return ServersGone(f"{said} If `paceline run` has ended, resume the run with: {self.again}")

    def locked(self) -> AbstractContextManager[None]:
        """Only one launcher drives a run; ConfigError for the second one."""
        return held(self.path, self._busy)

    def check_name(self, before: str) -> None:
        """ConfigError where the run was called otherwise `before`, and its servers have files, which have that name."""
        if before != self.name and any(self.path.glob("server-*/term.json")):
            raise ConfigError(
                f"{self.path} was run '{before}', and the files of its servers say so. To resume it, call the folder {before} "
                "again; it may lie anywhere."
            )

    @property
    def is_driven(self) -> bool:
        """Whether a launcher is at it just now; not where this user can't write there, or nobody can."""
        try:
            with self.locked():
                return False
        except ConfigError:
            return True
        except (DiskError, OSError):
            return False

    def _busy(self) -> str:
        return (
            f"Run '{self.name}' is going on already (process {self.facts().get('launcher', '?')}). Watch it with: "
            f"paceline status {self.name} --watch"
        )


@contextmanager
def held(folder: Path, busy: Callable[[], str]) -> Iterator[None]:
    """The folder is this process's own until the block ends; ConfigError with what `busy` says where it is another's, DiskError
    where its file system has no locks."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(busy()) from error
        except OSError as error:
            raise DiskError(
                f"{folder} can't be locked: {error.strerror}. Take a folder on a file system with locks, or mount this one "
                "with them (Lustre: -o flock)."
            ) from error
        yield


def open_run(
    config: Config, fresh: bool = False, runs: Path = RUNS, given: Mapping[str, Any] | None = None
) -> tuple[RunFolder, Config]:
    """The folder that the config's `run` names, new or to be resumed, and the config with its name in it. ConfigError
    where the folder holds another run; `fresh` empties it first. Before that, what the task says of a new run's missing data.
    `given`: of a script's run all that was said, since its config holds defaults, too, until the script has described it."""
    is_named, name = config.run is not None, config.run or new_name(config, runs)
    config = config.model_copy(update={"run": name})
    folder = RunFolder(runs / name)
    try:
        if is_named and folder.path.exists():
            _check_is_run(folder)
        if fresh or not is_named or not folder.config.exists():
            refuse_missing_data(config)
            if config.is_script and given is None:
                given = _given_before(folder, config)
        if is_named and fresh and folder.config.exists():
            _check_code_is_elsewhere(folder, config)
            with folder.locked():
                remove_checkpoints(config)
                shutil.rmtree(folder.path)
        elif is_named and fresh:
            remove_checkpoints(config)
        elif is_named and not folder.config.exists():
            has_checkpoints(config)  # a store that can't be used is refused before anything is made
        elif not is_named:
            refuse_others(config)
        if is_named and folder.config.exists():
            kept = folder.checked()
            config, given = _in_its_policy(kept, config, given)
            config, given = _with_its_servers(kept, config, given)
            servers = _other_servers(kept, config)
            has_more = given is None and has_more_epochs(kept.settings(), _with_servers(config, servers))
            _check_same(folder, config, given, has_more, servers)
            if has_more:
                _extend(folder, config)
            elif servers:
                config = _move(folder, config)
            elif given is None and (before := kept.settings()).score_timeout != config.score_timeout:
                with folder.locked():
                    _keep(folder, before.model_copy(update={"score_timeout": config.score_timeout}))
        if not is_named:
            folder, config = _claimed(config, runs)
        _fill(folder, config, given)
    except OSError as error:
        raise DiskError(
            f"Can't use the run folder {folder.path}: {error.strerror}. Is the disk full, or may this user not "
            "write there?"
        ) from error
    return folder, config


def _claimed(config: Config, runs: Path) -> tuple[RunFolder, Config]:
    """A new folder, which no other run that begins in the same second gets, and the config with its name."""
    make_private(runs)
    while True:
        folder = RunFolder(runs / new_name(config, runs))
        with suppress(FileExistsError):
            folder.path.mkdir(mode=0o700)
            return folder, config.model_copy(update={"run": folder.name})


def new_name(config: Config, runs: Path = RUNS) -> str:
    """task-policy-date-time, with a number where that is taken."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(config.task).stem.lower()).strip("-") or "task"
    policy = re.sub(r"[^a-z0-9]+", "-", Path(config.policy.name).stem.lower()).strip("-")[:20]
    base = f"{stem[:30].strip('-')}-{policy}-{time.strftime('%Y%m%d-%H%M%S')}".replace("_", "-")
    name, number = base, 1
    while (runs / name).exists():
        number += 1
        name = f"{base}-{number}"
    return name


def find_run(name: str | None, runs: Path = RUNS) -> RunFolder:
    """The run of that name (or path of its folder), otherwise the newest one; UsageError lists those that exist, TooNew: a
    newer release has written it."""
    if name is not None and RUN.fullmatch(name) and (runs / name / "config.yaml").is_file():
        return RunFolder(runs / name).checked()
    if name is not None and (Path(name) / "config.yaml").is_file():
        return RunFolder(Path(name)).checked()
    known = all_runs(runs)
    if name is not None:
        there = ", ".join(folder.path.name for folder in known[:5]) or "none"
        seen = f"{name} is no folder of a run (it has no config.yaml), and there" if Path(name).is_dir() else "There"
        raise UsageError(f"{seen} is no run '{name}' in {runs.resolve()}. Newest ones: {there}.")
    if not known:
        raise UsageError(f"There are no runs in {runs.resolve()} yet. Start one: paceline run digits")
    return known[0].checked()


def all_runs(runs: Path = RUNS) -> list[RunFolder]:
    """The newest first."""
    files = sorted(runs.glob("*/config.yaml"), key=lambda file: file.stat().st_mtime, reverse=True)
    return [RunFolder(file.parent) for file in files]


def _given_before(folder: RunFolder, config: Config) -> dict[str, Any]:
    """What a script's run was begun with, and on top what `config` changes. ConfigError where nobody has launched it."""
    if not folder.first_settings.exists():
        raise ConfigError(
            f"data.source is script, so {config.task} is a script that trains by itself. Start it with: paceline launch "
            f"{config.task}"
        )
    if not is_own(config.task):
        raise ConfigError(
            f"Run '{folder.name}' trained objects of your Python ({config.task}), which this command has not. Call "
            "paceline.train again, with another folder."
        )
    before, now = folder.settings().model_dump(mode="json"), config.model_dump(mode="json")
    return read_yaml(folder.first_settings) | {key: value for key, value in now.items() if value != before[key]}


def _in_its_policy(
    folder: RunFolder, config: Config, given: Mapping[str, Any] | None
) -> tuple[Config, Mapping[str, Any] | None]:
    """Where no policy is asked for, a run keeps that of its beginning, though another may be usual by now."""
    if "policy" in config.model_fields_set:
        return config, given
    begun = folder.settings().policy
    if begun == config.policy:
        return config, given
    policy = begun.model_dump(mode="json")
    if given is not None:
        given = {**given, "policy": policy}
        with folder.locked():
            _keep_given(folder, {**read_yaml(folder.first_settings), "policy": policy})
    return config.model_copy(update={"policy": begun}), given


def _check_code_is_elsewhere(folder: RunFolder, config: Config) -> None:
    """ConfigError where the folder has the only copy that is left of a file of the user's."""
    task = Path(config.task).resolve()
    kept = [task] if is_own(config.task) and folder.path.resolve() in task.parents else []
    kept += [folder.path / KEPT / Path(name).name for name in own_names(config).values() if not Path(name).is_file()]
    if lost := [str(file) for file in kept if file.is_file()]:
        raise ConfigError(
            f"--fresh would delete {' and '.join(lost)}, and no other copy is left. Copy the files to another folder, and "
            "start a new run with them."
        )


def _check_is_run(folder: RunFolder) -> None:
    begun = (folder.first_settings.name,)  # the disk was full when it was made
    strange = not folder.path.is_dir() or any(
        not file.name.startswith(".") and file.name not in begun for file in folder.path.iterdir()
    )
    if strange and not folder.config.exists():
        raise ConfigError(f"{folder.path} exists, but is not the folder of a run; move it, or give --run another name.")


def _with_its_servers(
    folder: RunFolder, config: Config, given: Mapping[str, Any] | None
) -> tuple[Config, Mapping[str, Any] | None]:
    """Where no number of servers is asked for, a run keeps its own."""
    before = folder.settings().servers
    if "servers" in config.model_fields_set or config.servers == before:
        return config, given
    return config.model_copy(update={"servers": before}), None if given is None else {**given, "servers": before}


def _other_servers(folder: RunFolder, config: Config) -> int:
    """Returns the number of servers that the run had, where it shall go on with another one; otherwise 0."""
    before = folder.settings().servers
    return before if config.servers and before != config.servers else 0


def _with_servers(config: Config, servers: int) -> Config:
    return config.model_copy(update={"servers": servers}) if servers else config


def _move(folder: RunFolder, config: Config) -> Config:
    """The run gets another number of servers, for which the launcher cuts the model again; one that is finished keeps its own.
    Returns the config with the number that counts."""
    if folder.facts().get("finished"):
        return _with_servers(config, folder.settings().servers)
    with folder.locked():
        folder.set_servers(config.servers)
    return config


def _check_same(
    folder: RunFolder, config: Config, given: Mapping[str, Any] | None, has_more: bool, servers: int
) -> None:
    """`has_more`: epochs may differ; `servers`: so may their number, which was this (0: not)."""
    if given is None:
        before, now = folder.settings().model_dump(mode="json"), config.model_dump(mode="json")
        if has_more:
            del before["epochs"], now["epochs"]
        before["score_timeout"] = now["score_timeout"]  # how long the score may take does not change the run
    else:
        before, now = (
            read_yaml(folder.first_settings) if folder.first_settings.exists() else {},
            {**given, "run": folder.name},
        )
    without: dict[str, Any] = {"loggers": ()}  # who listens does not, either
    if servers:
        without["servers"] = servers
    found = differences({**before, **without}, {**now, **without})
    if found:
        listed = "".join(f"\n    {line}" for line in found)
        raise ConfigError(
            f"Run '{folder.name}' was started with other settings:{listed}\nTo resume it, give the old settings. "
            "To keep both, give another name (--run). To start it over, add --fresh."
        )


def _extend(folder: RunFolder, config: Config) -> None:
    """The run keeps its settings with more epochs, and is not finished any more."""
    folder.check_name(str(folder.facts().get("called", folder.name)))
    with folder.locked():
        folder.write_facts(finished=False, exit_code=None)  # first: a finished run would refuse them the second time
        _keep(folder, config)


def _fill(folder: RunFolder, config: Config, given: Mapping[str, Any] | None) -> None:
    make_private(folder.path)
    if given is not None and not folder.first_settings.exists():
        _keep_given(folder, {**given, "run": folder.name})
    if not folder.config.exists():
        _keep(folder, config)
    if not folder.token.exists():
        write_secret_word(folder.token)


def _keep_given(folder: RunFolder, given: Mapping[str, Any]) -> None:
    temporary = folder.path / ".given.yaml"
    temporary.write_text(yaml.safe_dump(dict(given), sort_keys=False))
    temporary.replace(folder.first_settings)


def _keep(folder: RunFolder, config: Config) -> None:
    temporary = folder.path / ".config.yaml"
    write_yaml(config, temporary)
    temporary.replace(folder.config)


def write_secret_word(path: Path) -> None:
    """A new long random word, which this user alone can read. OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _holds(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content
