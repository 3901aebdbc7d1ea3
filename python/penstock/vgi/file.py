"""Batches in a folder, for development: ``file://`` URLs between processes of one machine."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path

import pyarrow as pa

from penstock.vgi._storage import object_name
from penstock.vgi.external import UploadUrl

__all__ = ["FileStorage"]

_FOR_EVER = timedelta(days=365)


@dataclass(frozen=True)
class FileStorage:
    """A storage of batches in a folder.

    An end of a connection with this storage in its configuration fetches ``file://`` URLs below the folder, and no
    others.

    ```python
    >>> import tempfile
    >>> from penstock.vgi import ExternalLocationConfig
    >>> from penstock.vgi.file import FileStorage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     config = ExternalLocationConfig(FileStorage(folder), externalize_threshold_bytes=1 << 20)

    ```
    """

    folder: str | PathLike[str]
    """The folder, which must exist."""

    def _new(self, content_encoding: str | None = None) -> Path:
        return Path(self.folder).resolve() / object_name("", content_encoding)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Write an IPC stream to a new file, and return its URL."""
        path = self._new(content_encoding)
        path.write_bytes(data)
        return path.as_uri()

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- UploadUrlProvider has it
        """Return the URLs for uploading and fetching a new file, which are the same."""
        url = self._new().as_uri()
        return UploadUrl(url, url, datetime.now(UTC) + _FOR_EVER)
