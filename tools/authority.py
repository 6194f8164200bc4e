"""A certificate authority to throw away, for tests and benchmarks of TLS."""

from datetime import datetime
from pathlib import Path

import trustme

from paceline.rpc.roles import ANY_PROCESS
from paceline.rpc.tls import AUTHORITY, CERTIFICATE, KEY

HERE = ("localhost", "127.0.0.1")


class Authority:
    """Signs certificates for servers and clients."""

    def __init__(self) -> None:
        self._authority = trustme.CA()

    def write(self, folder: Path, *names: str, until: datetime | None = None, name: str | None = ANY_PROCESS) -> Path:
        """Writes the files that `--tls` takes into a folder; without names the certificate is for this machine. `name`: whose
        it is (CN)."""
        found = self._authority.issue_cert(*(names or HERE), not_after=until, common_name=name)
        folder.mkdir(parents=True, exist_ok=True)
        self._authority.cert_pem.write_to_path(folder / AUTHORITY)
        found.cert_chain_pems[0].write_to_path(folder / CERTIFICATE)
        found.private_key_pem.write_to_path(folder / KEY)
        return folder
