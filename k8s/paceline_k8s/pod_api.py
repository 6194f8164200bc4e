"""The cluster's API, asked from within a pod with the pod's own account."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, TryAgain
from paceline_k8s.kubectl import NotThere

_NOT_FOUND, _TOO_MANY, _SERVER_ERROR = 404, 429, 500
"""HTTP statuses: of what does not exist, and of an API that does not refuse, but can't answer now; the last and all above."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ADDRESS = "https://kubernetes.default.svc"


class PodApi:
    """Objects of the pod's namespace."""

    def __init__(self, account: Path = ACCOUNT, address: str = ADDRESS) -> None:
        """`account`: the folder with token, namespace and ca.crt that Kubernetes puts into the pod."""
        self._account = account
        self._address = address

    def get(self, group: str, path: str) -> dict[str, Any]:
        """An object or a list. `group`: like 'apis/apps/v1'; `path`: in the namespace, like 'statefulsets/NAME'.
        NotThere; TryAgain where the API does not answer, or can't just now; ConfigError where it refuses."""
        return self._call("GET", group, path, None)

    def patch(self, group: str, path: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Merges the change into the object, which is returned as it is then. Errors as of `get`."""
        return self._call("PATCH", group, path, json.dumps(change).encode())

    def _call(self, method: str, group: str, path: str, body: bytes | None) -> dict[str, Any]:
        try:
            namespace, token = ((self._account / name).read_text().strip() for name in ("namespace", "token"))
        except OSError as error:
            raise ConfigError(
                f"This pod has no service account ({error}). Deploy its manifests without changes."
            ) from error
        authority = self._account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority)) if authority.exists() else None
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        url = f"{self._address}/{group}/namespaces/{namespace}/{path}"
        try:
            request = urllib.request.Request(url, data=body, method=method, headers=headers)
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise NotThere(
                    f"There is no {path} in namespace {namespace}. Apply all manifests of the run."
                ) from error
            if error.code == _TOO_MANY or error.code >= _SERVER_ERROR:
                raise TryAgain(f"The cluster's API answers {error.code} {error.reason}; it may be busy.") from error
            raise ConfigError(
                f"The cluster refuses to {method.lower()} {path} ({error.code} {error.reason}). Deploy the manifests of this "
                "pod with their Role."
            ) from error
        except OSError as error:
            raise TryAgain(f"The cluster's API does not answer: {error}.") from error
