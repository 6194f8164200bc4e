"""The page of exit codes: which error ends a process with which, and what helps then."""

from paceline.core.errors import PacelineError, error_classes

HEAD = """# Errors and exit codes

Made by `make pages` from the code. An error says what was seen, what was expected and what to do; a
script or a queue sees only the exit code. The class is what Python raises: a `PacelineError` of
`paceline.core.errors`.

## Exit codes

| code | class | meaning |
|---|---|---|
"""
AFTER = """
## What helps

| code | the same command again | where to look |
|---|---|---|
| 64, 78 | fails again, until the command or the setting is corrected | [settings](docs/reference/settings.md) |
| 65 | fails again, until the data or the snapshot is back | [resume a run](docs/failures/resume.md) |
| 69 | helps once the servers or the store answer again | [when something dies](docs/failures/promises-and-failures.md) |
| 70 | may help; processes of different releases meet it again | [releases](docs/understand/releases.md#older-and-newer-peers) |
| 71 | fails again, until it needs less memory or gets more | [plan a run](docs/choose/plan.md) |
| 73 | helps once the disk has room | [when something dies](docs/failures/promises-and-failures.md) |
| 74, 76, 77 | says the same again, since the run has finished | [own scripts](docs/start/script-details.md) |
| 75 | helps later; workers wait by themselves | |
| 130, 143 | starts another run; `paceline run runs/NAME/config.yaml` resumes it | [resume a run](docs/failures/resume.md) |

On Kubernetes 64, 65 and 78 end all processes of a part but the servers. After 75 and 143 they are
started again at no cost, and after any other code until all of them have failed too often
([when a pod dies](docs/run/kubernetes.md#when-a-pod-dies)).
"""


def page() -> str:
    """The whole page; its links are from the repository's root."""
    ours = PacelineError.__module__  # a class of one program or test is known only where that is loaded
    kinds = [kind for _, kind in sorted(error_classes().items()) if kind.__module__ == ours]
    rows = [
        (0, "| 0 | | The run is done. |"),
        *((kind.exit_code, f"| {kind.exit_code} | `{kind.__name__}` | {_summary(kind)} |") for kind in kinds),
        (130, "| 130 | | Ctrl-C ended it. |"),
    ]
    return HEAD + "\n".join(row for _, row in sorted(rows, key=lambda row: row[0])) + "\n" + AFTER


def _summary(kind: type[PacelineError]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())
