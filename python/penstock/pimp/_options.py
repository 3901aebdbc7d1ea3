"""What buffers, jobs, senders and consumers are told."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock._addresses import is_local
from penstock._state import certificate_folder
from penstock.errors import PimpError

__all__ = [
    "Limits",
    "PathLike",
    "ReachOptions",
    "ReadOptions",
    "ServeOptions",
    "TriggerOptions",
    "WriteOptions",
    "milliseconds",
    "reach_options",
    "serve_options",
    "trigger_options",
    "write_options",
]

PathLike = str | Path
"""The name of a file or folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large jobs may be (decision 3); each is checked before memory is taken.

    >>> Limits(job=1 << 20).chunks
    4096
    """

    job: int = 50 << 20
    """Bytes of a job's values, the last 64 KiB for its final chunk only."""
    chunks: int = 4_096
    """Chunks of a job, with chunk 0."""
    value: int = 256 << 10
    """Bytes of a value."""
    ttl_ms: int = 300_000
    """Milliseconds that a job lives, and the most that a consumer may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `Buffer` tells the core."""

    store: str
    tls: bool
    cert: PathLike | None
    key: PathLike | None
    development: PathLike
    client_ca: PathLike | None
    jwt_secret: bytes | None
    allow_origin: str | None
    limits: Limits
    max_connections: int
    max_connections_per_address: int | None
    metrics: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """What `TriggerServer` tells the core."""

    tls: bool
    cert: PathLike | None
    key: PathLike | None
    development: PathLike
    client_ca: PathLike | None
    max_body: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachOptions:
    """What `Job` tells the core. It is pickled with a job, so it holds names of files and no keys."""

    fingerprint: str | None = None
    ca: PathLike | None = None
    system_ca: bool = False
    cert: PathLike | None = None
    cert_key: PathLike | None = None
    allowed_hosts: list[str] | None = None
    retry: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What `Sender` tells the core."""

    content_type: str | None
    encoding: str
    gzip: bool
    content_length: int | None
    meta: str | None
    chunk_bytes: int
    max_chunks_per_batch: int
    flush_interval: float | None
    stall_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What `Consumer` tells the core."""

    wait: float
    poll_interval: float
    max_poll_interval: float
    stall_timeout: float
    max_bytes: int


def serve_options(
    listen: str,
    *,
    store: PathLike,
    behind_proxy: bool,
    limits: Limits | None,
    state_folder: PathLike | None,
    **others: Any,
) -> ServeOptions:
    """Make what the core is told of what a caller said; plain HTTP is for loopback behind a proxy (decision 12)."""
    if others.get("jwt_secret") == b"":
        raise PimpError("jwt_secret is empty: whoever likes could sign with it", "misuse", "MISUSE")
    return ServeOptions(
        store=str(store),
        tls=_needs_tls(listen, behind_proxy),
        development=certificate_folder(state_folder),
        limits=limits or Limits(),
        **others,
    )


def trigger_options(listen: str, *, behind_proxy: bool, state_folder: PathLike | None, **others: Any) -> TriggerOptions:
    """Make what the core is told of what a caller said; as for a buffer."""
    return TriggerOptions(tls=_needs_tls(listen, behind_proxy), development=certificate_folder(state_folder), **others)


def _needs_tls(listen: str, behind_proxy: bool) -> bool:
    if behind_proxy and not is_local(listen):
        raise PimpError(f"{listen} is not loopback: plain HTTP, behind a proxy, is for that only", "misuse", "MISUSE")
    return not behind_proxy


def reach_options(*, allowed_hosts: Sequence[str] | None, **others: Any) -> ReachOptions:
    """Make what the core is told of what a caller said."""
    if isinstance(allowed_hosts, str):
        raise PimpError("allowed_hosts is a list of hosts", "misuse", "MISUSE")
    return ReachOptions(allowed_hosts=None if allowed_hosts is None else list(allowed_hosts), **others)


def write_options(
    *,
    encoding: Literal["auto", "identity", "base64"],
    meta: Mapping[str, object] | None,
    **others: Any,
) -> WriteOptions:
    """Make what the core is told of what a caller said."""
    text = None if meta is None else json.dumps(dict(meta), ensure_ascii=False, allow_nan=False)
    return WriteOptions(encoding=encoding, meta=text, **others)


def milliseconds(name: str, seconds: float | None) -> int | None:
    """Give whole milliseconds, as the protocol has them."""
    if seconds is None:
        return None
    if not seconds > 0:
        raise PimpError(f"{name} is {seconds}, and must be above 0", "misuse", "MISUSE")
    return max(1, round(seconds * 1_000))
