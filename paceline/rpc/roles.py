"""Who may do what in a run: the roles that a token can have, and which calls each of them opens."""

from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from paceline.core.errors import PermissionDenied

if TYPE_CHECKING:  # it needs cryptography, which a command line does not
    from paceline.rpc.tokens import Claims

Role = Literal["worker", "evaluator", "server", "reader", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
_OPEN: tuple[tuple[str, tuple[Role, ...]], ...] = (
    ("Join Seat Heartbeat Validated Leave GoBack", ("worker",)),
    ("Describe", ("worker", "evaluator")),
    ("Resume Initialise PushPull Push PushPullSparse ExchangeSparse", ("worker",)),
    ("Deliver Welcome", ("worker",)),
    ("Manifest Fetch Counts", ("worker", "evaluator")),
    ("Pull", ("worker", "evaluator", "reader")),
    ("PullLocal", ("worker", "evaluator", "reader")),
    ("Evaluate", ("worker", "evaluator")),  # a worker only takes the model where nobody scores
    ("FollowView", ("server",)),
    ("Status", ("worker", "evaluator", "server", "reader")),
    ("Stop SetPolicy", ()),
)
MAY = {method: frozenset(roles) for methods, roles in _OPEN for method in methods.split()}
"""By call: the roles it is open to. An admin may do everything; a call that is not named here is open to admins alone."""


class Caller(NamedTuple):
    """Who calls."""

    role: Role
    name: str
    claims: "Claims | None" = None
    """What its token says."""
    key: str = ""
    """The public key of the secret that has signed it."""


ANYONE = Caller("admin", "")
"""Who calls where nobody is asked."""
_CALLER: ContextVar[Caller] = ContextVar("caller", default=ANYONE)


def answer(caller: Caller) -> None:
    """This thread answers this caller from now on, until the next call."""
    _CALLER.set(caller)


def caller() -> Caller:
    """Whose call this thread answers."""
    return _CALLER.get()


def admit(caller: Caller, method: str) -> None:
    """PermissionDenied where a role does not open the call."""
    may = MAY.get(method, frozenset())
    if caller.role != "admin" and caller.role not in may:
        raise PermissionDenied(
            f"{method} is not for the token of {_who(caller)}: it takes one with the role "
            f"{' or '.join([*sorted(may), 'admin'])}. The holder of the run's secret makes one: paceline token --role."
        )


def speak_for(name: str) -> None:
    """PermissionDenied where the caller is a worker or a server, and this is not its own name."""
    one = caller()
    if one.role in ("worker", "server") and not fnmatchcase(name, one.name):
        raise PermissionDenied(
            f"The token of {_who(one)} can't speak for {name}. Start each process with its own token: paceline token "
            f"--role {one.role} --name {name}."
        )


def _who(one: Caller) -> str:
    return (
        f"{one.name} ({one.role})"
        if one.name and one.name != one.role
        else f"a{'n' if one.role[0] in 'ae' else ''} {one.role}"
    )
