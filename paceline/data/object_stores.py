"""Object stores: what the errors of fsspec's packages for them mean, each as one sentence with the fix. The packages are not
imported here: their errors are known by the names of their classes."""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from paceline.core.errors import ConfigError, DataError, PacelineError, StoreGone

PAGE = "docs/run/object-stores.md"


class Store(NamedTuple):
    """One kind of store: what people call it, and the variables that its package reads."""

    name: str
    keys: str
    anonymous: str
    endpoint: str


_S3 = Store("S3", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "FSSPEC_S3_ANON=true", "AWS_ENDPOINT_URL")
_GOOGLE = Store(
    "Google Cloud Storage", "GOOGLE_APPLICATION_CREDENTIALS", "FSSPEC_GS_TOKEN=anon", "STORAGE_EMULATOR_HOST"
)
_AZURE = Store(
    "Azure",
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ANON=true",
    "FSSPEC_ABFS_ACCOUNT_HOST",
)
STORES = {"s3": _S3, "s3a": _S3, "gs": _GOOGLE, "gcs": _GOOGLE, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE}
"""By the scheme of a URL."""
_NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
    "DefaultCredentialsError",
    "ClientAuthenticationError",
}
_NOT_REACHED = {
    "ConnectionError",
    "TimeoutError",
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "HTTPClientError",
    "ClientConnectionError",
    "ServiceRequestError",
    "ServiceResponseError",
}
_AWAY, _BUSY = {"500", "502", "503", "504"}, (errno.EBUSY, errno.EIO)
"""What a store that is away for a moment answers, and what s3fs makes of that."""
_SLOW = 120
"""How long S3 may take to answer (seconds). The time counts from the first byte of a part that is sent, and s3fs waits 15."""
_LOUD = ("gcsfs", "azure")
"""Packages that print the traceback of each try, and raise the last one's error anyway."""


def store_of(path: object) -> Store | None:
    """The kind of store that a URL is of; None for any other path."""
    scheme, sign, _ = str(path).partition("://")
    return STORES.get(scheme) if sign else None


def slow_line_options(url: object) -> dict[str, Any]:
    """Options for fsspec with a URL, so that a slow line may carry the least that the store takes at a time."""
    if store_of(url) is not _S3:
        return {}
    from fsspec.config import conf

    own = {name: value for kind in ("s3", "s3a") for name, value in conf.get(kind, {}).get("config_kwargs", {}).items()}
    return {"config_kwargs": {"read_timeout": _SLOW, **own}}


def look(url: object, files: Any, key: str) -> None:
    """Asks the store once for what a URL names: `key` among the `files` of fsspec. DataError where its bucket does not exist;
    no file of that name in it is no error. Raises the store's own errors, for `told`."""
    store = store_of(url)
    if store is None:
        return
    for package in _LOUD:
        logging.getLogger(package).setLevel(logging.CRITICAL)
    try:
        files.info(key)
    except FileNotFoundError:
        if not _has_bucket(files, key):
            raise DataError(
                f"There is no bucket {_bucket(url)!r} in {store.name}{_address(store)}: {url} was asked for. Correct the "
                "URL or the endpoint, or make the bucket."
            ) from None


def store_error(path: object, error: BaseException, right: str = "read") -> PacelineError | None:
    """The error to raise where `error` says that a store's credentials lack or do not suffice, or that it does not answer;
    None where it says something else. `right`: what was to be done with its objects."""
    store = store_of(path)
    if store is None:
        return None
    kinds = {kind.__name__ for each in _chain(error) for kind in type(each).__mro__}
    codes = {str(getattr(each, name, "")) for each in _chain(error) for name in ("code", "status_code")}
    said = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    bucket = f"the bucket {_bucket(path)!r} of {store.name}{_address(store)}"
    if "PermissionError" in kinds or "403" in codes or said.startswith("Forbidden"):
        return ConfigError(
            f"The credentials do not suffice for {bucket}: {path} was asked for ({said}). Let them list the bucket and "
            f"{right} its objects, or give others ({store.keys})."
        )
    if kinds & _NO_CREDENTIALS or "401" in codes or "account_name with credentials" in said:
        return ConfigError(
            f"No credentials for {bucket}: {path} was asked for ({said}). Set {store.keys} for the process that reads it, "
            f"or {store.anonymous} where anybody may read; on Kubernetes by the component object-store ({PAGE})."
        )
    if kinds & _NOT_REACHED or codes & _AWAY or getattr(error, "errno", None) in _BUSY:
        return StoreGone(
            f"Can't reach {bucket}: {path} was asked for ({said}). Correct {store.endpoint} if that is not the address; on "
            f"Kubernetes, does a network policy let the pod out to this port? The component object-store does ({PAGE})."
        )
    return None


def _has_bucket(files: Any, key: str) -> bool:
    """Also where only its content may be read."""
    try:
        with suppress(PermissionError):
            files.info(key.partition("/")[0])
    except FileNotFoundError:
        return False
    return True


def _bucket(path: object) -> str:
    return str(path).partition("://")[2].partition("/")[0]


def _address(store: Store) -> str:
    """Where it was looked for."""
    address = os.environ.get(store.endpoint)
    return f" at {address} ({store.endpoint})" if address else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
