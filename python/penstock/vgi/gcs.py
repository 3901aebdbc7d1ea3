"""Batches in Google Cloud Storage."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock import _core
from penstock.vgi._storage import StorePool, upload, upload_url
from penstock.vgi.external import UploadUrl

__all__ = ["GCSStorage"]


@dataclass(frozen=True)
class GCSStorage:
    """A storage of batches in a bucket of Google Cloud Storage.

    Objects are never removed: let the bucket expire them. URLs are signed, and valid for ``presign_expiry_seconds``.
    Credentials come from the environment; they must be a service account's, which signs the URLs.

    ```python
    >>> from penstock.vgi import ServerExternalConfig
    >>> from penstock.vgi.gcs import GCSStorage
    >>> ServerExternalConfig(GCSStorage("batches")).storage.bucket
    'batches'

    ```
    """

    bucket: str
    """The name of the bucket."""
    prefix: str = "vgi-rpc/"
    """The prefix of object names."""
    presign_expiry_seconds: int = 3600
    """Seconds for which a signed URL is valid."""
    project: str | None = None
    """The bucket's project, for your own records; it is not needed to find the bucket."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Further options of the store, the same as those of sinks."""
    _pool: StorePool = field(default_factory=StorePool, init=False, repr=False, compare=False, hash=False)

    def _store(self) -> "_core.VgiStore":
        options = {**self.storage}
        return self._pool.get(f"gs://{self.bucket}", options, self.presign_expiry_seconds)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Store an IPC stream, and return the URL for fetching it; raise ExternalLocationError if that fails."""
        return upload(self._store(), self.prefix, data, content_encoding)

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- UploadUrlProvider has it
        """Return the URLs for uploading and fetching a new object."""
        return upload_url(self._store(), self.prefix, self.presign_expiry_seconds)
