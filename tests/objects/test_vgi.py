"""Batches of vgi in S3: what is put there, by URLs that are signed."""

import urllib.request
from typing import Protocol

import pyarrow as pa
import pytest

from penstock.vgi import Compression, ExternalLocationConfig, FetchConfig, RpcServer, http_connect, serve_pipe
from penstock.vgi.external import ExternalLocationError
from penstock.vgi.external_fetch import fetch_url
from penstock.vgi.http import HttpServer
from penstock.vgi.s3 import S3Storage

from .s3 import S3

BIG = "batch" * 2_000
EMPTY = pa.schema([])


class Service(Protocol):
    def echo(self, text: str) -> str: ...


class ServiceImpl:
    def echo(self, text: str) -> str:
        return text


def storage(s3: S3, **options: str) -> S3Storage:
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    return S3Storage("bucket", region_name="us-east-1", endpoint_url=s3.endpoint, storage=keys, **options)


@pytest.mark.parametrize("compression", [None, Compression()])
def test_results_lie_in_a_bucket(s3: S3, compression: Compression | None) -> None:
    config = ExternalLocationConfig(storage(s3), 4_000, compression=compression, url_validator=None)
    with serve_pipe(Service, ServiceImpl(), external_location=config) as service:
        assert service.echo(text=BIG) == BIG
    [key] = s3.list("vgi-rpc/")
    assert key.endswith(".arrow.zst" if compression else ".arrow")
    assert (len(s3.get(key)) < 1_000) == (compression is not None)
    # One byte of a URL that is signed for GET says how many there are: a HEAD would be refused.
    assert [method for method, path in s3.requests if "X-Amz-Signature" in path] == ["GET", "GET"]


def test_requests_lie_in_a_bucket(s3: S3) -> None:
    config = ExternalLocationConfig(url_validator=None)
    server = RpcServer(Service, ServiceImpl(), external_location=config)
    with (
        HttpServer(server, upload_url_provider=storage(s3, prefix="requests/"), max_request_bytes=5_000) as running,
        http_connect(Service, running.url, external_location=config, compression_level=None) as service,
    ):
        assert service.echo(text=BIG) == BIG
    assert len(s3.list("requests/")) == 1


def test_a_url_is_for_one_object_and_one_method(s3: S3) -> None:
    urls = storage(s3).generate_upload_url(EMPTY)
    kind = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(urls.upload_url, data=b"bytes", headers=kind, method="PUT")  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
    assert fetch_url(urls.download_url, FetchConfig()) == b"bytes"
    large = bytes(range(256)) * 100
    url = storage(s3).upload(large, EMPTY)
    assert fetch_url(url, FetchConfig(parallel_threshold_bytes=10_000, chunk_size_bytes=5_000)) == large


def test_a_store_that_refuses_is_said(s3: S3) -> None:
    missing = S3Storage(
        "no-such-bucket",
        region_name="us-east-1",
        endpoint_url=s3.endpoint,
        storage={"access_key_id": "key", "secret_access_key": "secret"},
    )
    with pytest.raises(ExternalLocationError, match="no-such-bucket"):
        missing.upload(b"x", EMPTY)
    with pytest.raises(ExternalLocationError, match="there is no storage option endpiont"):
        S3Storage("bucket", storage={"endpiont": "x"}).upload(b"x", EMPTY)
