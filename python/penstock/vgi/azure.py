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
    """A storage of batches in a container of Azure Blob Storage.

    Objects are never removed: let the container expire them. URLs are signed, and valid for
    ``presign_expiry_seconds``. Credentials come from the environment, or from ``storage={"account_key": KEY}``.

    ```python
    >>> from penstock.vgi import ServerExternalConfig
    >>> from penstock.vgi.azure import AzureStorage
    >>> ServerExternalConfig(AzureStorage("batches", account="mine")).storage.container
    'batches'

    ```
    """

    container: str
    """The name of the container."""
    prefix: str = "vgi-rpc/"
    """The prefix of object names."""
    presign_expiry_seconds: int = 3600
    """Seconds for which a signed URL is valid."""
    account: str | None = None
    """The storage account; by default that of the environment."""
    endpoint_url: str | None = field(default=None, repr=False)
    """The URL of the store, if it is not Azure's."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Further options of the store, the same as those of sinks."""
    _pool: StorePool = field(default_factory=StorePool, init=False, repr=False, compare=False, hash=False)

    def _store(self) -> "_core.VgiStore":
        options = {"account_name": self.account, "endpoint": self.endpoint_url, **self.storage}
        return self._pool.get(f"az://{self.container}", options, self.presign_expiry_seconds)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Store an IPC stream, and return the URL for fetching it; raise ExternalLocationError if that fails."""
        return upload(self._store(), self.prefix, data, content_encoding)

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- UploadUrlProvider has it
        """Return the URLs for uploading and fetching a new object."""
        return upload_url(self._store(), self.prefix, self.presign_expiry_seconds)
