"""Code that the storages share: object names, and one core store per process."""

import os
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Self

from penstock import _core
from penstock.vgi.external import UploadUrl

__all__ = ["StorePool", "object_name", "upload", "upload_url"]


class StorePool:
    """The core's store of a storage. A forked process makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: tuple[int, _core.VgiStore] | None = None

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Support pickling, without the connections."""
        return type(self), ()

    def __eq__(self, other: object) -> bool:
        """Return whether the other object is a pool too: its cached store is not part of a storage's value."""
        return isinstance(other, type(self))

    __hash__ = None  # type: ignore[assignment]

    def get(self, uri: str, options: Mapping[str, str | None], expiry: int) -> "_core.VgiStore":
        if self._store is not None and self._store[0] != os.getpid():
            # The lock may have been held at the time of the fork.
            self.__init__()  # type: ignore[misc]
        with self._lock:
            if self._store is None:
                given = {name: value for name, value in options.items() if value is not None}
                self._store = (os.getpid(), _core.VgiStore(uri, given, expiry))
            return self._store[1]


def object_name(prefix: str, content_encoding: str | None = None) -> str:
    """Return a new object name, in the format of vgi_rpc."""
    return f"{prefix}{uuid.uuid4().hex}.arrow{'.zst' if content_encoding == 'zstd' else ''}"


def upload(store: "_core.VgiStore", prefix: str, data: bytes, content_encoding: str | None) -> str:
    """Store an object, and return the URL for fetching it."""
    return store.upload(object_name(prefix, content_encoding), bytes(data), content_encoding)


def upload_url(store: "_core.VgiStore", prefix: str, expiry: int) -> UploadUrl:
    """Return the URLs for uploading and fetching a new object."""
    expires_at = datetime.now(UTC) + timedelta(seconds=expiry)
    return UploadUrl(*store.upload_url(object_name(prefix)), expires_at)
