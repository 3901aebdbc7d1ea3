"""An S3 server for the tests: moto's, which shares no code with the clients that are tested.

It stands behind a little middleware that counts requests, and refuses those that a test wants refused.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

__all__ = ["S3", "s3"]

_BUCKET = "bucket"
_REFUSAL = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass
class S3:
    """A server with one bucket."""

    app: Callable[..., Iterable[bytes]]
    requests: list[tuple[str, str]] = field(default_factory=list)
    refuse: Callable[[str, str], bool] = lambda _method, _path: False
    watch: Callable[[str, str, int], None] = lambda _method, _path, _bytes: None
    """Called with each request, and how many bytes of the object its range has; 0 without one."""
    endpoint: str = ""
    client: Any = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix(f"/{_BUCKET}/") + query
        self.requests.append((method, path))
        first, _, last = environ.get("HTTP_RANGE", "").removeprefix("bytes=").partition("-")
        self.watch(method, path, int(last) - int(first) + 1 if first and last else 0)
        if self.refuse(method, path):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [_REFUSAL]
        return self.app(environ, start_response)

    @property
    def storage(self) -> dict[str, str]:
        """What every URI of it needs."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process of its own."""
        return {
            **os.environ,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def uri(self, prefix: str) -> str:
        """What a prefix is called."""
        return f"s3://{_BUCKET}/{prefix}"

    def put(self, key: str, data: bytes) -> None:
        """Put an object, by a client that is not ours."""
        self.client.put_object(Bucket=_BUCKET, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        """Read an object."""
        data: bytes = self.client.get_object(Bucket=_BUCKET, Key=key)["Body"].read()
        return data

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=_BUCKET, Key=key)

    def list(self, prefix: str = "") -> list[str]:
        """List what is there."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]


@pytest.fixture
def s3() -> Iterator[S3]:
    """Start a server with an empty bucket."""
    import boto3
    from moto.moto_server import werkzeug_app as moto
    from werkzeug.serving import make_server

    server = S3(moto.DomainDispatcherApplication(moto.create_backend_app))
    # Its own handler only silences the log.
    http = make_server("127.0.0.1", 0, server, threaded=True, request_handler=moto.MotoRequestHandler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    server.endpoint = f"http://127.0.0.1:{http.server_port}"
    identity = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
    server.client = boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", **identity)
    server.client.create_bucket(Bucket=_BUCKET)
    server.requests.clear()
    try:
        yield server
    finally:
        from moto.core.base_backend import BackendDict
        from moto.s3.models import s3_backends

        assert isinstance(s3_backends, BackendDict)
        s3_backends.reset()
        http.shutdown()
        thread.join()
        http.server_close()
