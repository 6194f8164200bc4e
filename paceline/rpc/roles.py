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
    ("Join Seat LeaseBatches Heartbeat Validated Leave GoBack", ("worker",)),
    ("Describe", ("worker", "evaluator")),
    ("Resume Initialise PushPull Push Ask PushPullSparse ExchangeSparse AskSparse", ("worker",)),
    ("Deliver Welcome", ("worker",)),
    ("Manifest Fetch Counts", ("worker", "evaluator")),
    ("Pull", ("worker", "evaluator", "reader")),
    ("PullLocal", ("worker", "evaluator", "reader")),
    ("Evaluate", ("worker", "evaluator")),  # a worker only takes the model where nobody scores
    ("FollowView", ("server",)),
    ("ReportServer", ("server",)),
    ("Status", ("worker", "evaluator", "server", "reader")),
    ("Stop", ("worker", "evaluator")),  # of a training script: its own rules may end the run
    ("SetPolicy", ()),
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


ANY_PROCESS = "paceline"
"""The name in a certificate that all processes of a run share."""
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
            f"{' or '.join([*sorted(may), 'admin'])}. The holder of the run's secret makes one: paceline keys token --role."
        )


def admit_certificate(caller: Caller, name: str | None) -> None:
    """PermissionDenied where a token comes with a certificate of somebody else. `name`: the certificate's, None without TLS."""
    if name is None or caller.claims is None:
        return
    if fault := fault_of_certificate(name, caller.role, caller.name):
        raise PermissionDenied(fault)


def fault_of_certificate(name: str, role: Role, of: str) -> str:
    """Why a certificate with this name in it is not one of the process `of` of this role, and what to do; '' where it is."""
    if name in (role, ANY_PROCESS) or (name and fnmatchcase(name, of)):
        return ""
    who = _who(Caller(role, of))
    make = f"paceline keys certs DIR {of if of and '*' not in of else role}"
    if not name:
        return f"The certificate of {who} names nobody: its subject has no CN. Make one that does: {make}."
    return (
        f"The certificate is that of {name!r}, the process is {who}. Give it its own folder of keys ({make}), or give all "
        f"processes one certificate whose CN is {ANY_PROCESS}."
    )


def speak_for(name: str) -> None:
    """PermissionDenied where the caller is a worker or a server, and this is not its own name."""
    one = caller()
    if one.role in ("worker", "server") and not fnmatchcase(name, one.name):
        raise PermissionDenied(
            f"The token of {_who(one)} can't speak for {name}. Start each process with its own token: paceline keys token "
            f"--role {one.role} --name {name}."
        )


def _who(one: Caller) -> str:
    return (
        f"{one.name} ({one.role})"
        if one.name and one.name != one.role
        else f"a{'n' if one.role[0] in 'ae' else ''} {one.role}"
    )
