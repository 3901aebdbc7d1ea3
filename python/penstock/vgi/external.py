"""Large batches through an object store (section 12): who puts them there, who fetches them, and what may be fetched.

``ServerExternalConfig`` says where a server puts batches above a size; ``ClientExternalConfig`` says what a caller
fetches. Both go to ``external_location=``.
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
    """A batch could not be stored or fetched: its URL, its bytes or its size are not as they must be.

    The call or the stream is over; the connection serves the next one.
    """


@runtime_checkable
class ExternalStorage(Protocol):
    """Where large batches are put. Yours may be any object with this method, which several threads may call.

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
        """Store an IPC stream, coded as ``content_encoding`` says ("zstd" or None), and give the URL to fetch it.

        Nobody removes it: let the store expire what is old.
        """
        ...


@dataclass(frozen=True)
class UploadUrl:
    """Two URLs of one object that a caller may put somewhere.

    ```python
    >>> from datetime import UTC, datetime
    >>> from penstock.vgi import UploadUrl
    >>> UploadUrl("https://store/1?put", "https://store/1?get", datetime(2027, 1, 1, tzinfo=UTC)).expires_at.year
    2027

    ```
    """

    upload_url: str
    """Where it is put, by HTTP PUT."""
    download_url: str
    """Where it is fetched."""
    expires_at: datetime
    """Until when."""


@runtime_checkable
class UploadUrlProvider(Protocol):
    """Gives URLs to which callers may put what is too large for a request. Several threads may call it.

    ```python
    >>> from penstock.vgi import UploadUrlProvider
    >>> from penstock.vgi.s3 import S3Storage
    >>> isinstance(S3Storage("bucket"), UploadUrlProvider)
    True

    ```
    """

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:
        """Give the URLs of a new object."""
        ...


def https_only_validator(url: str) -> None:
    """Refuse URLs that are not https:// with a ValueError.

    As the validator of a configuration, where it is the default, it also means that no name may lead to a private
    address; ``FetchConfig.allow_private_addresses`` says otherwise.

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
    """How stored batches are compressed; one that would hardly be smaller is stored as it is.

    ```python
    >>> from penstock.vgi import Compression
    >>> Compression().algorithm
    'zstd'

    ```
    """

    algorithm: Literal["zstd"] = "zstd"
    """The coding; zstd is the only one."""
    level: int = 3
    """Its level, 1 to 22."""

    def __post_init__(self) -> None:
        """Refuse what is no coding or no level."""
        if self.algorithm != "zstd":
            raise ValueError(f"the algorithm is 'zstd', not {self.algorithm!r}")
        if not 1 <= self.level <= 22:
            raise ValueError(f"a level of zstd is 1 to 22, not {self.level}")


@dataclass(frozen=True)
class ServerExternalConfig:
    """What a server stores, and what it fetches for its callers.

    ```python
    >>> from penstock.vgi import Compression, ServerExternalConfig
    >>> from penstock.vgi.s3 import S3Storage
    >>> config = ServerExternalConfig(S3Storage("bucket"), 16 << 20, compression=Compression())
    >>> config.max_retries
    2

    ```
    """

    storage: ExternalStorage | None = None
    """Where large batches are put; None: they stay on the wire."""
    externalize_threshold_bytes: int = 1_048_576
    """From so many bytes of its columns on a batch is put there. A caller over HTTP who has this puts requests above
    it where the server says, if that takes uploads."""
    max_retries: int = 2
    """How often more a fetch is tried that failed in a way that may pass: twice at most."""
    retry_delay_seconds: float = 0.5
    """Seconds before each."""
    fetch_config: FetchConfig = field(default_factory=FetchConfig)
    """How something is fetched."""
    compression: Compression | None = None
    """How batches are compressed that are put there; None: not at all."""
    url_validator: Callable[[str], None] | None = https_only_validator
    """Raises ValueError for a URL that may not be used; None: all may."""


@dataclass(frozen=True)
class ClientExternalConfig:
    """What a caller fetches; where something is stored is the server's to say.

    ```python
    >>> from penstock.vgi import ClientExternalConfig, FetchConfig
    >>> ClientExternalConfig(fetch_config=FetchConfig(max_fetch_bytes=1 << 30)).max_retries
    2

    ```
    """

    max_retries: int = 2
    """How often more a fetch is tried that failed in a way that may pass: twice at most."""
    retry_delay_seconds: float = 0.5
    """Seconds before each."""
    fetch_config: FetchConfig = field(default_factory=FetchConfig)
    """How something is fetched."""
    url_validator: Callable[[str], None] | None = https_only_validator
    """Raises ValueError for a URL that may not be used; None: all may."""


ExternalLocationConfig = ServerExternalConfig
"""The name that both had before; a caller may have it too."""
