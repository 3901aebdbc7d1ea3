"""Batches in Amazon S3 and compatible stores."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock import _core
from penstock.vgi._storage import StorePool, upload, upload_url
from penstock.vgi.external import UploadUrl

__all__ = ["S3Storage"]


@dataclass(frozen=True)
class S3Storage:
    """A storage of batches in an S3 bucket.

    Objects are never removed: let the bucket expire them. URLs are signed, and valid for ``presign_expiry_seconds``.
    Credentials come from the environment, as for the tools of AWS.

    ```python
    >>> from penstock.vgi import ServerExternalConfig
    >>> from penstock.vgi.s3 import S3Storage
    >>> ServerExternalConfig(S3Storage("batches", region_name="eu-west-1")).storage.bucket
    'batches'

    ```
    """

    bucket: str
    """The name of the bucket."""
    prefix: str = "vgi-rpc/"
    """The prefix of object names."""
    presign_expiry_seconds: int = 3600
    """Seconds for which a signed URL is valid."""
    region_name: str | None = None
    """The region; by default that of the environment."""
    endpoint_url: str | None = field(default=None, repr=False)
    """The URL of the store, if it is not Amazon's."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Further options of the store, the same as those of sinks."""
    _pool: StorePool = field(default_factory=StorePool, init=False, repr=False, compare=False, hash=False)

    def _store(self) -> "_core.VgiStore":
        options = {"region": self.region_name, "endpoint": self.endpoint_url, **self.storage}
        return self._pool.get(f"s3://{self.bucket}", options, self.presign_expiry_seconds)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Store an IPC stream, and return the URL for fetching it; raise ExternalLocationError if that fails."""
        return upload(self._store(), self.prefix, data, content_encoding)

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- UploadUrlProvider has it
        """Return the URLs for uploading and fetching a new object."""
        return upload_url(self._store(), self.prefix, self.presign_expiry_seconds)
