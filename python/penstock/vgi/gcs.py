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
    """Puts batches into a bucket of Google Cloud Storage.

    Objects are not removed: let the bucket expire them. URLs are signed, and hold for ``presign_expiry_seconds``.
    Credentials are those of the environment: a service account, which signs the URLs.

    ```python
    >>> from penstock.vgi import ServerExternalConfig
    >>> from penstock.vgi.gcs import GCSStorage
    >>> ServerExternalConfig(GCSStorage("batches")).storage.bucket
    'batches'

    ```
    """

    bucket: str
    """The bucket."""
    prefix: str = "vgi-rpc/"
    """What stands before the names of objects."""
    presign_expiry_seconds: int = 3600
    """Seconds that a URL holds."""
    project: str | None = None
    """The bucket's project, for your own records: a bucket is found without."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Further options of the store, as sinks take them."""
    _pool: StorePool = field(default_factory=StorePool, init=False, repr=False, compare=False, hash=False)

    def _store(self) -> "_core.VgiStore":
        options = {**self.storage}
        return self._pool.get(f"gs://{self.bucket}", options, self.presign_expiry_seconds)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Put an IPC stream there, and give a URL by which it is fetched; ExternalLocationError where that fails."""
        return upload(self._store(), self.prefix, data, content_encoding)

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- it is who asks that has it
        """Give the URLs of a new object."""
        return upload_url(self._store(), self.prefix, self.presign_expiry_seconds)
