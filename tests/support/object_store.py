"""A real S3 server on this machine (moto), as long as a block lasts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.request import Request, urlopen

import boto3
import pytest
import s3fs
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
NOBODY = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "",
    "AWS_SHARED_CREDENTIALS_FILE": "",
    "NO_PROXY": "*",
}
"""Variables with which no credentials are found but those that a test gives."""


class ObjectStore:
    """The server: its address, what is put into it, and who is let in."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._files = s3fs.S3FileSystem(
            endpoint_url=url, key="key", secret="secret", skip_instance_cache=True, use_listings_cache=False
        )

    def set_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes it the store that this process, and those that it starts, find with its keys."""
        for name, value in {**NOBODY, **KEYS, "AWS_ENDPOINT_URL": self.url}.items():
            monkeypatch.setenv(name, value)

    def put(self, bucket: str, files: Mapping[str, bytes]) -> None:
        """Makes the bucket, with these files."""
        self._files.mkdir(bucket)
        for name, content in files.items():
            self._files.pipe(f"{bucket}/{name}", content)

    def names(self, bucket: str) -> list[str]:
        """All files in it."""
        return sorted(name.partition("/")[2] for name in self._files.find(bucket))

    def content(self, bucket: str, name: str) -> bytes:
        """What a file in it holds."""
        return bytes(self._files.cat_file(f"{bucket}/{name}"))

    def replace(self, bucket: str, name: str, content: bytes) -> None:
        """Puts another content under a name."""
        self._files.pipe_file(f"{bucket}/{name}", content)

    def remove(self, bucket: str, name: str) -> None:
        """Removes a file."""
        self._files.rm_file(f"{bucket}/{name}")

    def user(self) -> dict[str, str]:
        """The variables of a user without any rights; from now on the server lets in only users that it knows."""
        options = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        users = boto3.client("iam", endpoint_url=self.url, **options)
        users.create_user(UserName="nobody")
        key = users.create_access_key(UserName="nobody")["AccessKey"]
        self.let_in_everybody(False)
        return KEYS | {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def let_in_everybody(self, everybody: bool = True) -> None:
        """Whether it looks at credentials: moto does after this many calls."""
        asked = Request(
            f"{self.url}/moto-api/reset-auth", b"inf" if everybody else b"0", {"Content-Type": "text/plain"}
        )
        with urlopen(asked, timeout=10):
            pass


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """One with nothing in it; it lets in everybody that brings some keys."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    s3fs.S3FileSystem.clear_instance_cache()  # those made before know another server's address
    _, port = server.get_host_and_port()
    url = f"http://127.0.0.1:{port}"
    try:
        with urlopen(Request(f"{url}/moto-api/reset", b""), timeout=60):  # moto's stores outlast its servers
            yield ObjectStore(url)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()
