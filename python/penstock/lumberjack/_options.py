"""The options of receivers and senders."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock._addresses import is_local
from penstock.errors import LumberjackError

__all__ = ["Limits", "PathLike", "ReceiveOptions", "SendOptions", "needs_tls"]

PathLike = str | Path
"""The path of a file or folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits for frames and events of writers; each is checked before memory is allocated.

    >>> Limits(window=4096).window
    4096
    """

    compressed: int = 32 << 20
    """The most bytes of a compressed frame; by default 32 MiB."""
    inflated: int = 256 << 20
    """The most bytes of a compressed frame after inflation; by default 256 MiB."""
    ratio: int = 1_000
    """The highest ratio of inflated to compressed bytes; by default 1,000."""
    key: int = 64 << 10
    """The most bytes of a key; by default 64 KiB."""
    value: int = 16 << 20
    """The most bytes of a value or a JSON document; by default 16 MiB."""
    pairs: int = 65_536
    """The most pairs of an event; by default 65,536."""
    event: int = 64 << 20
    """The most bytes of an event of pairs; by default 64 MiB."""
    window: int = 65_536
    """The most events of a window; by default 65,536."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions:
    """The options that `Receiver` passes to the core."""

    tls: bool
    cert: PathLike | None
    key: PathLike | None
    development: PathLike
    client_ca: PathLike | None
    client_certificates: Literal["required", "optional"]
    max_connections: int
    max_connections_per_address: int | None
    max_bytes: int
    max_age: float | None
    frame_timeout: float
    idle_timeout: float | None
    keepalive: float
    repeat_ack: bool
    pause: float
    limits: Limits
    metrics: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """The options that `Sender` passes to the core."""

    hosts: list[str]
    balance: bool = False
    fingerprint: str | None = None
    ca: PathLike | None = None
    system_ca: bool = False
    cert: PathLike | None = None
    key: PathLike | None = None
    server_name: str | None = None
    protocol: int = 1
    sequence: str = "window"
    window: int = 2_048
    in_flight: int = 2
    compress: int = 3
    ack_timeout: float = 30.0
    retry: float | None = None
    plain: bool = field(default=False)

    def check(self) -> "SendOptions":
        """Return the options; reject those that send over a network without TLS, unless ``plain`` is set."""
        trusted = self.fingerprint is not None or self.ca is not None or self.system_ca
        if trusted and self.plain:
            raise LumberjackError("plain=True cannot be combined with fingerprint, ca or system_ca", "misuse")
        far = [host for host in self.hosts if not is_local(host)]
        if not trusted and not self.plain and far:
            raise LumberjackError(
                f"{far[0]} is not on this machine: set fingerprint, ca or system_ca, or plain=True",
                "misuse",
            )
        return self


def host_list(hosts: str | Sequence[str]) -> list[str]:
    """Return the hosts as a list."""
    return [hosts] if isinstance(hosts, str) else list(hosts)


def needs_tls(listen: str, tls: bool | None, cert: PathLike | None, client_ca: PathLike | None) -> bool:
    """Return whether to use TLS: by default outside loopback, and with any certificate."""
    if tls is not None:
        return tls
    return cert is not None or client_ca is not None or not is_local(listen)
