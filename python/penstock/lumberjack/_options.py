"""What receivers and senders are told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock._addresses import is_local
from penstock.errors import LumberjackError

__all__ = ["Limits", "PathLike", "ReceiveOptions", "SendOptions", "needs_tls"]

PathLike = str | Path
"""The name of a file or folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a writer may ask for (decision 7); each is checked before memory is taken.

    >>> Limits(window=4096).window
    4096
    """

    compressed: int = 32 << 20
    """Bytes of a compressed frame."""
    inflated: int = 256 << 20
    """Bytes that it may inflate to."""
    ratio: int = 1_000
    """How many times its length it may inflate to."""
    key: int = 64 << 10
    """Bytes of a key."""
    value: int = 16 << 20
    """Bytes of a value, or of a JSON document."""
    pairs: int = 65_536
    """Pairs of an event."""
    event: int = 64 << 20
    """Bytes of an event of pairs."""
    window: int = 65_536
    """Events of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions:
    """What `Receiver` tells the core."""

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
    """What `Sender` tells the core."""

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
        """Refuse what would send events in plain text over a network, unless that was asked for."""
        trusted = self.fingerprint is not None or self.ca is not None or self.system_ca
        if trusted and self.plain:
            raise LumberjackError("plain=True and somebody to trust: one or the other", "misuse")
        far = [host for host in self.hosts if not is_local(host)]
        if not trusted and not self.plain and far:
            raise LumberjackError(
                f"{far[0]} is not on this machine, so say whom to trust: fingerprint, ca or system_ca; or plain=True",
                "misuse",
            )
        return self


def host_list(hosts: str | Sequence[str]) -> list[str]:
    """Give a list of hosts, whichever way they were given."""
    return [hosts] if isinstance(hosts, str) else list(hosts)


def needs_tls(listen: str, tls: bool | None, cert: PathLike | None, client_ca: PathLike | None) -> bool:
    """TLS is the default outside loopback (decision 10), and wherever there is a certificate."""
    if tls is not None:
        return tls
    return cert is not None or client_ca is not None or not is_local(listen)
