"""The exception tree of Paceline: each error is one gRPC status and one process exit code, and its text says what was
seen, what was expected and what to do."""

import errno

OUT_OF_MEMORY = ("can't allocate memory", "Cannot allocate memory", "out of memory", "bad_alloc")
"""The messages of torch, the kernel, CUDA and C++ when memory has run out."""


class PacelineError(Exception):
    """The base of all Paceline errors.

    `status` is the gRPC status name, `exit_code` the process's.
    """

    status = "INTERNAL"
    exit_code = 70


class UsageError(PacelineError):
    """A command line that can't be understood."""

    status = "INVALID_ARGUMENT"
    exit_code = 64


class NotFound(UsageError):
    """What a call names does not exist."""

    status = "NOT_FOUND"


class DataError(PacelineError):
    """Input data, shards or a checkpoint are missing, damaged or don't match."""

    status = "FAILED_PRECONDITION"
    exit_code = 65


class TooNew(DataError):
    """A newer release wrote this file or folder; nothing was changed."""


class ServersGone(PacelineError):
    """A server or the chief gave no answer for `deadline` seconds."""

    status = "UNAVAILABLE"
    exit_code = 69


class StoreGone(ServersGone):
    """An object store did not answer."""


class OutOfMemory(PacelineError):
    """Memory ran out, of the machine, the container or the GPU."""

    status = "RESOURCE_EXHAUSTED"
    exit_code = 71


class DiskError(PacelineError):
    """A file or folder can't be written."""

    status = "INTERNAL"
    exit_code = 73


class TryAgain(PacelineError):
    """Not now: the same call may succeed later."""

    status = "UNAVAILABLE"
    exit_code = 75


class PoolFull(TryAgain):
    """All seats of the run are taken; the worker waits for one."""

    status = "RESOURCE_EXHAUSTED"


class NotYet(TryAgain):
    """The slice can't take this push before its next view, its first weights or its recovery; nothing was changed."""


class Overloaded(TryAgain):
    """A bounded queue or byte budget is full; the client backs off and repeats."""

    status = "RESOURCE_EXHAUSTED"


class ConfigError(PacelineError):
    """A setting is wrong, or two processes of one run have different ones."""

    status = "FAILED_PRECONDITION"
    exit_code = 78


class NoData(ConfigError):
    """A task needs data, and none was named."""


class OtherProtocol(ConfigError):
    """Two processes of one run have releases that can't work together."""


class PlanMismatch(ConfigError):
    """Two processes cut the model differently."""


class Fenced(PacelineError):
    """A newer process of this name has taken over; this one must stop, and needs no new start."""

    status = "ABORTED"
    exit_code = 0


class Unauthenticated(ConfigError):
    """The token is missing or wrong."""

    status = "UNAUTHENTICATED"


class PermissionDenied(ConfigError):
    """The token is right but may not do this."""

    status = "PERMISSION_DENIED"


class BadPush(PacelineError):
    """A push with impossible sizes, values or order; nothing was changed."""

    status = "INVALID_ARGUMENT"


class Gap(PacelineError):
    """The server does not know this push (it restarted, or never got it): send the whole push again."""

    status = "OUT_OF_RANGE"


class Behind(PacelineError):
    """A server has come back without pushes that their worker does not retain: it has to compute them again."""

    status = "OUT_OF_RANGE"


class VersionGone(PacelineError):
    """The version asked for is no longer kept."""

    status = "OUT_OF_RANGE"


class Diverged(PacelineError):
    """A run has ended because it could learn no more; its last version was scored, but may be of no use."""

    exit_code = 76


class Incomplete(PacelineError):
    """A run has finished without a worker that could not go on; its model is kept, but may have had less to learn from."""

    exit_code = 74


class ScriptFailed(PacelineError):
    """A script failed after its training; the run has finished, and its model is kept."""

    exit_code = 77


class Stopped(PacelineError):
    """The process got a signal to stop (SIGTERM)."""

    status = "CANCELLED"
    exit_code = 143


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error means that memory ran out, as Python, the kernel, C++ or torch report it."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in OUT_OF_MEMORY)


def out_of_memory(error: BaseException, who: str) -> OutOfMemory:
    """The error to raise when memory ran out; `who` asked for the memory."""
    said = (str(error).splitlines() or [""])[0]
    return OutOfMemory(
        f"Memory ran out in {who}: {type(error).__name__}{': ' if said else ''}{said}. Take fewer workers, a smaller "
        "batch_size or a smaller model, or a machine with more memory."
    )


def error_classes() -> dict[str, type[PacelineError]]:
    """Every error class by name, so that the other end of a call can raise the same one."""
    found: dict[str, type[PacelineError]] = {}
    waiting: list[type[PacelineError]] = [PacelineError]
    while waiting:
        kind = waiting.pop()
        found[kind.__name__] = kind
        waiting += kind.__subclasses__()
    return found


def error_of(exit_code: int) -> type[PacelineError]:
    """The class with that exit code; PacelineError if there is none."""
    kinds = {kind.exit_code: kind for kind in PacelineError.__subclasses__() if "exit_code" in vars(kind)}
    return kinds.get(exit_code, PacelineError)


def in_brief(error: PacelineError) -> PacelineError:
    """The error without its traceback and causes, which help only developers; a bug keeps them."""
    if type(error) is not PacelineError:
        error.__cause__ = None
        error.__suppress_context__ = True
        return error.with_traceback(None)
    return error
