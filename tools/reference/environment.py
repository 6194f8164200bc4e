"""The variables of the environment, a section of the page of settings."""

import ast

from paceline.base import variables
from tools.reference.sources import ROOT

HEAD = """
## Variables of the environment

Every key above is a variable too: `PACELINE_` and the key in capitals, with two underscores where
the key has a dot. So `PACELINE_EPOCHS=3` is `epochs: 3`, and `PACELINE_POLICY__BOUND=5` is
`policy.bound: 5`. These variables are not settings:

| variable | meaning |
|---|---|
"""
OTHERS = """
Paceline also reads variables of other programs:

| variable | meaning |
|---|---|
| `CUDA_VISIBLE_DEVICES` | The GPUs that workers on this machine may use. |
| `SLURM_JOB_ID`, `SLURM_PROCID` | Slurm sets them; `paceline join` then finds its run in the same job. |
| `MLFLOW_EXPERIMENT_NAME` | The experiment for `--log mlflow`; default: paceline. |
| `WANDB_PROJECT`, `WANDB_DIR`, `WANDB_MODE` | Where `--log wandb` writes; default: paceline, the run's folder, offline. |
| `CXX` | The compiler that `compile: true` needs; default: g++. |
| `GRPC_VERBOSITY` | How much gRPC itself says; default: ERROR. |
| `PYSPARK_PYTHON` | The Python of Spark's executors; default: the one that runs Paceline. |
"""


def section() -> str:
    """Returns the section, as Markdown."""
    tree = ast.parse((ROOT / "paceline" / "base" / "variables.py").read_text(encoding="utf-8"))
    rows = [
        f"| `{getattr(variables, name)}` | {' '.join(text.split())} |"
        for before, after in zip(tree.body, tree.body[1:], strict=False)
        for name, text in _documented(before, after)
    ]
    return HEAD + "\n".join(rows) + "\n" + OTHERS


def _documented(before: ast.stmt, after: ast.stmt) -> list[tuple[str, str]]:
    match before, after:
        case ast.Assign([ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
            return [(name, text)]
    return []
