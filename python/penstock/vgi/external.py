"""Large batches through an object store: storing, fetching, and the rules for URLs (vgi-rpc, section 12).

``ServerExternalConfig`` configures where a server stores large batches; ``ClientExternalConfig`` configures what a
client fetches. Pass either as ``external_location=``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.vgi.external_fetch import FetchConfig
from penstock.vgi.rpc._common import RpcError

__all__ = [
    "ClientExternalConfig",
    "Compression",
    "ExternalLocationConfig",
    "ExternalLocationError",
    "ExternalStorage",
    "FetchConfig",
    "ServerExternalConfig",
    "UploadUrl",
    "UploadUrlProvider",
    "https_only_validator",
]


class ExternalLocationError(RpcError, RuntimeError, ValueError):
    """A batch that could not be stored or fetched, for example because its URL is not allowed or it is too large.

    Its call or stream has ended; the connection serves the next one.
    """


@runtime_checkable
class ExternalStorage(Protocol):
    """A storage of large batches: any object with this method, which several threads may call at the same time.

    ```python
    >>> import pyarrow as pa
    >>> from penstock.vgi import ExternalStorage
    >>> class Shelf:
    ...     def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:
    ...         return "https://shelf.example/1"
    >>> isinstance(Shelf(), ExternalStorage)
    True

    ```
    """

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:
        """Store an IPC stream, and return the URL for fetching it.

        Stored objects are never removed: let the store expire them.

        Args:
            data: The bytes of the stream, compressed if there is a ``content_encoding``.
            schema: The schema of the batch.
            content_encoding: "zstd", or None for an uncompressed stream.
        """
        ...


@dataclass(frozen=True)
class UploadUrl:
    """The URLs of an object that a caller may upload.

    ```python
    >>> from datetime import UTC, datetime
    >>> from penstock.vgi import UploadUrl
    >>> UploadUrl("https://store/1?put", "https://store/1?get", datetime(2027, 1, 1, tzinfo=UTC)).expires_at.year
    2027

    ```
    """

    upload_url: str
    """The URL for uploading the object, by HTTP PUT."""
    download_url: str
    """The URL for fetching it."""
    expires_at: datetime
    """The time until which the URLs are valid."""


@runtime_checkable
class UploadUrlProvider(Protocol):
    """A provider of URLs to which callers upload requests that are too large. Several threads may call it.

    ```python
    >>> from penstock.vgi import UploadUrlProvider
    >>> from penstock.vgi.s3 import S3Storage
    >>> isinstance(S3Storage("bucket"), UploadUrlProvider)
    True

    ```
    """

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:
        """Return the URLs for uploading and fetching a new object."""
        ...


def https_only_validator(url: str) -> None:
    """Raise ValueError for a URL that is not https://.

    As the validator of a configuration, which is the default, it also means that no host may resolve to a private
    address, unless ``FetchConfig.allow_private_addresses`` allows that.

    ```python
    >>> from penstock.vgi import https_only_validator
    >>> https_only_validator("http://host/object")
    Traceback (most recent call last):
    ValueError: URL scheme 'http' not allowed (only 'https' is permitted)

    ```
    """
    scheme = urlsplit(url).scheme
    if scheme != "https":
        raise ValueError(f"URL scheme '{scheme}' not allowed (only 'https' is permitted)")


@dataclass(frozen=True)
class Compression:
    """The compression of stored batches. A batch that would hardly shrink is stored uncompressed.

    ```python
    >>> from penstock.vgi import Compression
    >>> Compression().algorithm
    'zstd'

    ```
    """

    algorithm: Literal["zstd"] = "zstd"
    """The algorithm; "zstd" is the only one."""
    level: int = 3
    """The level of zstd, 1 to 22."""

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown algorithm or level."""
        if self.algorithm != "zstd":
            raise ValueError(f"the algorithm must be 'zstd', not {self.algorithm!r}")
        if not 1 <= self.level <= 22:
            raise ValueError(f"a zstd level must be from 1 to 22, not {self.level}")


@dataclass(frozen=True)
class ServerExternalConfig:
    """The configuration of a server's external batches: which it stores, and which of its callers' it fetches.

    ```python
    >>> from penstock.vgi import Compression, ServerExternalConfig
    >>> from penstock.vgi.s3 import S3Storage
    >>> config = ServerExternalConfig(S3Storage("bucket"), 16 << 20, compression=Compression())
    >>> config.max_retries
    2

    ```
    """

    storage: ExternalStorage | None = None
    """The storage of large batches; with None, the default, they stay on the wire."""
    externalize_threshold_bytes: int = 1_048_576
    """The size from which a batch is stored, in bytes of its columns. A client over HTTP with this configuration
    uploads requests above this size, if the server provides upload URLs."""
    max_retries: int = 2
    """The most retries of a fetch after a transient failure; at most 2 are made."""
    retry_delay_seconds: float = 0.5
    """Seconds before each retry."""
    fetch_config: FetchConfig = field(default_factory=FetchConfig)
    """The limits and timeouts of a fetch."""
    compression: Compression | None = None
    """The compression of stored batches; with None, the default, they are not compressed."""
    url_validator: Callable[[str], None] | None = https_only_validator
    """A function that raises ValueError for a URL that may not be used; with None every URL may be used."""


@dataclass(frozen=True)
class ClientExternalConfig:
    """The configuration of the external batches that a client fetches.

    ```python
    >>> from penstock.vgi import ClientExternalConfig, FetchConfig
    >>> ClientExternalConfig(fetch_config=FetchConfig(max_fetch_bytes=1 << 30)).max_retries
    2

    ```
    """

    max_retries: int = 2
    """The most retries of a fetch after a transient failure; at most 2 are made."""
    retry_delay_seconds: float = 0.5
    """Seconds before each retry."""
    fetch_config: FetchConfig = field(default_factory=FetchConfig)
    """The limits and timeouts of a fetch."""
    url_validator: Callable[[str], None] | None = https_only_validator
    """A function that raises ValueError for a URL that may not be used; with None every URL may be used."""


ExternalLocationConfig = ServerExternalConfig
"""The former name of both configurations; clients accept it too."""
