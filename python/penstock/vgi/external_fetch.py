"""Fetching the objects at URLs, within limits of memory and time."""

import os
import threading
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import Self

from penstock import _core

__all__ = ["FetchConfig", "fetch_url"]

_Key = tuple[bool, str | None]


class _FetchPool:
    """The fetchers of one configuration, which keep their connections. A forked process makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._fetchers: dict[_Key, _core.VgiFetcher] = {}

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Support pickling, without the connections."""
        return type(self), ()

    def __eq__(self, other: object) -> bool:
        """Return whether the other object is a pool too: its fetchers are not part of a configuration's value."""
        return isinstance(other, type(self))

    __hash__ = None  # type: ignore[assignment]

    def get(self, config: "FetchConfig", private: bool, root: str | None) -> "_core.VgiFetcher":
        if self._pid != os.getpid():
            # The lock may have been held at the time of the fork.
            self.__init__()  # type: ignore[misc]
        with self._lock:
            found = self._fetchers.get((private, root))
            if found is None:
                found = self._fetchers[private, root] = _core.VgiFetcher(config, private, root)
            return found

    def close(self) -> None:
        if self._pid == os.getpid():
            with self._lock:
                for fetcher in self._fetchers.values():
                    fetcher.close()


@dataclass(frozen=True)
class FetchConfig:
    """The limits and timeouts of fetches. Connections are kept until ``close``, or the end of the ``with`` block.

    ```python
    >>> from penstock.vgi import FetchConfig
    >>> with FetchConfig(timeout_seconds=10.0, max_fetch_bytes=1 << 30) as config:
    ...     config.chunk_size_bytes
    8388608

    ```
    """

    parallel_threshold_bytes: int = 67_108_864
    """The size in bytes from which an object is fetched in parallel parts."""
    chunk_size_bytes: int = 8_388_608
    """The size of a part in bytes."""
    max_parallel_requests: int = 8
    """The most parts that are fetched in parallel."""
    timeout_seconds: float = 60.0
    """The timeout of one attempt in seconds."""
    max_fetch_bytes: int = 268_435_456
    """The most bytes of an object, both as stored and decompressed."""
    speculative_retry_multiplier: float = 2.0
    """A part is late, and requested a second time, after this multiple of the parts' median time; 0 means never."""
    max_speculative_hedges: int = 4
    """The most parts of an object that are requested a second time; 0 means all late ones."""
    allow_private_addresses: bool | None = None
    """Whether a URL may lead to this machine or its network; None allows it unless the validator is the default one."""
    _pool: _FetchPool = field(default_factory=_FetchPool, init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Raise ValueError for values out of range."""
        for name in ("chunk_size_bytes", "max_parallel_requests", "timeout_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")
        for name in (
            "parallel_threshold_bytes",
            "max_fetch_bytes",
            "speculative_retry_multiplier",
            "max_speculative_hedges",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} cannot be negative: {getattr(self, name)}")

    def fetcher(self, private: bool, root: str | PathLike[str] | None = None) -> "_core.VgiFetcher":
        """Return the core's fetcher.

        Args:
            private: Whether private addresses are allowed if ``allow_private_addresses`` is None.
            root: The folder below which ``file://`` URLs are allowed.
        """
        allowed = private if self.allow_private_addresses is None else self.allow_private_addresses
        return self._pool.get(self, allowed, None if root is None else os.fspath(root))

    def close(self) -> None:
        """Close the connections; later fetches open new ones."""
        self._pool.close()

    def __enter__(self) -> Self:
        """Return this configuration."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()


def fetch_url(url: str, config: FetchConfig) -> bytes:
    """Return the bytes of the object at a URL, decompressed.

    Since the URL is your own, it may lead to a private address unless ``allow_private_addresses`` is False.

    Raises:
        ExternalLocationError: If the object cannot be fetched, or is larger than ``max_fetch_bytes``.
    """
    return config.fetcher(private=True).fetch(url)
