"""The options of buffers, jobs, senders, consumers and triggers."""

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
"""The path of a file or folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits on the size and the life of jobs; each is checked before memory is allocated.

    >>> Limits(job=1 << 20).chunks
    4096
    """

    job: int = 50 << 20
    """The most bytes of a job's values, by default 50 MiB; the last 64 KiB are reserved for the final chunk."""
    chunks: int = 4_096
    """The most chunks of a job, including chunk 0; by default 4,096."""
    value: int = 256 << 10
    """The most bytes of a value; by default 256 KiB."""
    ttl_ms: int = 300_000
    """The life of a job in milliseconds, and the longest that a consumer may ask for; by default 300,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options that `Buffer` passes to the core."""

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
    """The options that `TriggerServer` passes to the core."""

    tls: bool
    cert: PathLike | None
    key: PathLike | None
    development: PathLike
    client_ca: PathLike | None
    max_body: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachOptions:
    """The options that `Job` passes to the core; they are pickled with it, so they have paths of files, not keys."""

    fingerprint: str | None = None
    ca: PathLike | None = None
    system_ca: bool = False
    cert: PathLike | None = None
    cert_key: PathLike | None = None
    allowed_hosts: list[str] | None = None
    retry: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options that `Sender` passes to the core."""

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
    """The options that `Consumer` passes to the core."""

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
    """Return the core's options; HTTP without TLS is only for loopback, behind a proxy."""
    if others.get("jwt_secret") == b"":
        raise PimpError("jwt_secret is empty", "misuse", "MISUSE")
    return ServeOptions(
        store=str(store),
        tls=_needs_tls(listen, behind_proxy),
        development=certificate_folder(state_folder),
        limits=limits or Limits(),
        **others,
    )


def trigger_options(listen: str, *, behind_proxy: bool, state_folder: PathLike | None, **others: Any) -> TriggerOptions:
    """Return the core's options of a trigger server, with TLS as for a buffer."""
    return TriggerOptions(tls=_needs_tls(listen, behind_proxy), development=certificate_folder(state_folder), **others)


def _needs_tls(listen: str, behind_proxy: bool) -> bool:
    if behind_proxy and not is_local(listen):
        raise PimpError(
            f"{listen} is not a loopback address, which plain HTTP behind a proxy requires", "misuse", "MISUSE"
        )
    return not behind_proxy


def reach_options(*, allowed_hosts: Sequence[str] | None, **others: Any) -> ReachOptions:
    """Return the core's options of a job."""
    if isinstance(allowed_hosts, str):
        raise PimpError("allowed_hosts must be a list of hosts", "misuse", "MISUSE")
    return ReachOptions(allowed_hosts=None if allowed_hosts is None else list(allowed_hosts), **others)


def write_options(
    *,
    encoding: Literal["auto", "identity", "base64"],
    meta: Mapping[str, object] | None,
    **others: Any,
) -> WriteOptions:
    """Return the core's options of a sender."""
    text = None if meta is None else json.dumps(dict(meta), ensure_ascii=False, allow_nan=False)
    return WriteOptions(encoding=encoding, meta=text, **others)


def milliseconds(name: str, seconds: float | None) -> int | None:
    """Return seconds as whole milliseconds, as the protocol needs them; reject 0 and less."""
    if seconds is None:
        return None
    if not seconds > 0:
        raise PimpError(f"{name} must be above 0, not {seconds}", "misuse", "MISUSE")
    return max(1, round(seconds * 1_000))
