"""Batches in a folder, for development: ``file://`` between processes of one machine."""

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
    """Puts batches into a folder. Who has it in its configuration fetches ``file://`` below that folder, and no other.

    ```python
    >>> import tempfile
    >>> from penstock.vgi import ExternalLocationConfig
    >>> from penstock.vgi.file import FileStorage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     config = ExternalLocationConfig(FileStorage(folder), externalize_threshold_bytes=1 << 20)

    ```
    """

    folder: str | PathLike[str]
    """The folder, which exists."""

    def _new(self, content_encoding: str | None = None) -> Path:
        return Path(self.folder).resolve() / object_name("", content_encoding)

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:  # noqa: ARG002
        """Write an IPC stream, and give its URL."""
        path = self._new(content_encoding)
        path.write_bytes(data)
        return path.as_uri()

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:  # noqa: ARG002 -- it is who asks that has it
        """Give the URLs of a new file, which are the same."""
        url = self._new().as_uri()
        return UploadUrl(url, url, datetime.now(UTC) + _FOR_EVER)
