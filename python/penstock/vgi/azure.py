"""Batches in Azure Blob Storage."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock import _core
from penstock.vgi._storage import StorePool, upload, upload_url
from penstock.vgi.external import UploadUrl

__all__ = ["AzureStorage"]


@dataclass(frozen=True)
class AzureStorage:
    """Puts batches into a container of Azure.

    Objects are not removed: let the container expire them. URLs are signed, and hold for ``presign_expiry_seconds``.
    Credentials are those of the environment; ``storage={"account_key": KEY}`` is one of its own.

    ```python
    >>> from penstock.vgi import ServerExternalConfig
    >>> from penstock.vgi.azure import AzureStorage
    >>> ServerExternalConfig(AzureStorage("batches", account="mine")).storage.container
    'batches'

    ```
    """

    container: str
    """The container."""
    prefix: str = "vgi-rpc/"
    """What stands before the names of objects."""
    presign_expiry_seconds: int = 3600
    """Seconds that a URL holds."""
    account: str | None = None
    """The storage account; by default that of the environment."""
    endpoint_url: str | None = field(default=None, repr=False)
    """Where the store is, if it is not Azure's."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Further options of the store, as sinks take them."""
    _pool: StorePool = field(default_factory=StorePool, init=False, repr=False, compare=False, hash=False)

    def _store(self) -> "_core.VgiStore":
        options = {"account_name": self.account, "endpoint": self.endpoint_url, **self.storage}
        return self._pool.get(f"az://{self.container}", options, self.presign_expiry_seconds)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Put an IPC stream there, and give a URL by which it is fetched; ExternalLocationError where that fails."""
        return upload(self._store(), self.prefix, data, content_encoding)

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- it is who asks that has it
        """Give the URLs of a new object."""
        return upload_url(self._store(), self.prefix, self.presign_expiry_seconds)
