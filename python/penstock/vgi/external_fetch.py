"""Fetching what URLs lead to, within limits of memory and time."""

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
    """The fetchers of one configuration, which keep their connections. A fork makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._fetchers: dict[_Key, _core.VgiFetcher] = {}

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Survive a pickle, without the connections."""
        return type(self), ()

    def __eq__(self, other: object) -> bool:
        """Be equal to any other: what is kept for later is no part of a value."""
        return isinstance(other, type(self))

    __hash__ = None  # type: ignore[assignment]

    def get(self, config: "FetchConfig", private: bool, root: str | None) -> "_core.VgiFetcher":
        if self._pid != os.getpid():
            # The lock may have been held when the process was forked.
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
    """How something is fetched. Its connections are kept until ``close``, or the end of its ``with`` block.

    ```python
    >>> from penstock.vgi import FetchConfig
    >>> with FetchConfig(timeout_seconds=10.0, max_fetch_bytes=1 << 30) as config:
    ...     config.chunk_size_bytes
    8388608

    ```
    """

    parallel_threshold_bytes: int = 67_108_864
    """From so many bytes on an object is fetched in parts that come side by side."""
    chunk_size_bytes: int = 8_388_608
    """Bytes of a part."""
    max_parallel_requests: int = 8
    """Parts that come side by side."""
    timeout_seconds: float = 60.0
    """Seconds that one try may take."""
    max_fetch_bytes: int = 268_435_456
    """Bytes that an object may have, as it is stored and as it is inflated."""
    speculative_retry_multiplier: float = 2.0
    """A part that takes so many times what half of them took is asked for once more; 0 is never."""
    max_speculative_hedges: int = 4
    """Parts of an object that are asked for once more; 0 is all that are late."""
    allow_private_addresses: bool | None = None
    """Whether a URL may lead to this machine or into its network; None: where the validator is not the default one."""
    _pool: _FetchPool = field(default_factory=_FetchPool, init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
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
        """Give the core's part; ``private`` is for a configuration that does not say."""
        allowed = private if self.allow_private_addresses is None else self.allow_private_addresses
        return self._pool.get(self, allowed, None if root is None else os.fspath(root))

    def close(self) -> None:
        """Let go of the connections; whoever fetches again makes others."""
        self._pool.close()

    def __enter__(self) -> Self:
        """Give this configuration."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def fetch_url(url: str, config: FetchConfig) -> bytes:
    """Give what is at a URL, inflated; ExternalLocationError where it cannot be had, or is larger than it may be.

    It is you who says the URL: private addresses are fetched unless ``allow_private_addresses`` is False.
    """
    return config.fetcher(private=True).fetch(url)
