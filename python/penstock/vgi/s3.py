"""Batches in Amazon S3, and in what speaks as it does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock import _core
from penstock.vgi._storage import StorePool, upload, upload_url
from penstock.vgi.external import UploadUrl

__all__ = ["S3Storage"]


@dataclass(frozen=True)
class S3Storage:
    """Puts batches into a bucket of S3.

    Objects are not removed: let the bucket expire them. URLs are signed, and hold for ``presign_expiry_seconds``.
    Credentials are those of the environment, as the tools of AWS take them.

    ```python
    >>> from penstock.vgi import ServerExternalConfig
    >>> from penstock.vgi.s3 import S3Storage
    >>> ServerExternalConfig(S3Storage("batches", region_name="eu-west-1")).storage.bucket
    'batches'

    ```
    """

    bucket: str
    """The bucket."""
    prefix: str = "vgi-rpc/"
    """What stands before the names of objects."""
    presign_expiry_seconds: int = 3600
    """Seconds that a URL holds."""
    region_name: str | None = None
    """The region; by default that of the environment."""
    endpoint_url: str | None = field(default=None, repr=False)
    """Where the store is, if it is not Amazon's."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Further options of the store, as sinks take them."""
    _pool: StorePool = field(default_factory=StorePool, init=False, repr=False, compare=False, hash=False)

    def _store(self) -> "_core.VgiStore":
        options = {"region": self.region_name, "endpoint": self.endpoint_url, **self.storage}
        return self._pool.get(f"s3://{self.bucket}", options, self.presign_expiry_seconds)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Put an IPC stream there, and give a URL by which it is fetched; ExternalLocationError where that fails."""
        return upload(self._store(), self.prefix, data, content_encoding)

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- it is who asks that has it
        """Give the URLs of a new object."""
        return upload_url(self._store(), self.prefix, self.presign_expiry_seconds)
