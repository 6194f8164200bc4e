"""Libraries that only an extra of the installation brings: which one, and the one sentence for where one is missing.

Any module may import them anywhere; code that ends a process or raises to a user asks this module about the error."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.core.errors import ConfigError

EXTRAS = {
    "torch": "worker",
    "tensorboard": "tensorboard",
    "scipy": "sparse",
    "sklearn": "sharder",
    "threadpoolctl": "sharder",
    "joblib": "sharder",
    "pyarrow": "sharder",
    "PIL": "sharder",
    "fsspec": "sharder",
    "upath": "sharder",
    "s3fs": "object-store",
    "gcsfs": "object-store",
    "adlfs": "object-store",
    "pyspark": "spark",
    "py4j": "spark",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "matplotlib": "report",
    "lightning": "lightning",
    "transformers": "transformers",
    "accelerate": "transformers",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "h11": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""By the name that is imported: the extra of pyproject.toml."""
_CALLED = {"sklearn": "scikit-learn", "PIL": "pillow", "upath": "universal-pathlib"}
"""What pip calls them, where that is another name."""
_IMAGES = " In containers the image paceline-worker has it, paceline-worker-slim does not (docs/run/images.md)."


def lacking(error: BaseException | None, purpose: str = "This") -> str | None:
    """'This needs scikit-learn, which is not installed here: pip install 'paceline[sharder]'.', where the error, or one
    that it came from, is that a library of an extra is missing; otherwise None. `purpose`: what needs it."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and (found := (error.name or "").partition(".")[0]) in EXTRAS:
            return lacks(found, purpose)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def lacks(library: str, purpose: str = "This") -> str:
    """The sentence for one library, by the name that is imported."""
    install = f"pip install 'paceline[{EXTRAS[library]}]'."
    called = _CALLED.get(library, library)
    return f"{purpose} needs {called}, which is not installed here: {install}{_IMAGES if library == 'torch' else ''}"


@contextmanager
def needing(purpose: str) -> Iterator[None]:
    """Makes of a library of an extra that lacks a ConfigError that says what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if told := lacking(error, purpose):
            raise ConfigError(told) from error
        raise


def is_installed(library: str) -> bool:
    """Whether it is installed."""
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # somebody hides it
        return False
