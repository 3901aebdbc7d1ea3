"""The options of daemons, producers and workers, from arguments and from the configuration file."""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock._addresses import check_address, is_local
from penstock._state import state_dir
from penstock.errors import QuicxError
from penstock.quicx._limits import check_classes, check_number, check_type, check_types

__all__ = [
    "DEFAULT_ADDRESS",
    "SIZE_CLASSES",
    "PathLike",
    "Policy",
    "ReachOptions",
    "StartOptions",
    "read_config",
    "start_options",
]

DEFAULT_ADDRESS = "127.0.0.1:16381"
"""The default address of a daemon."""
SIZE_CLASSES = tuple(1 << power for power in range(4, 13))
"""The default size classes: the powers of two from 16 to 4,096 bytes."""

PathLike = str | Path
"""The path of a file or folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a daemon treats the tasks of a type.

    >>> Policy(retry_failed=True, attempts=3).delay
    1.0
    """

    task_timeout: float = 60.0
    """Seconds that a worker may hold a task without a heartbeat before it is delivered again; 0: indefinitely."""
    attempts: int = 5
    """The number of deliveries after which a task is dead, 1 to 65,535."""
    retry_failed: bool = False
    """Whether a task that failed is retried; otherwise a failure is final."""
    delay: float = 1.0
    """Seconds before the first retry."""
    back_off: float = 2.0
    """The factor by which the delay grows with each further attempt, up to an hour."""
    start_delay: float = 0.0
    """Seconds before the first delivery."""
    priority: int = 0
    """The priority of the type; types with a higher one are delivered first."""
    rate: float | None = None
    """The most deliveries in a second, of which a tenth may be made at once. By default there is no limit."""
    unique: bool = False
    """Whether a submit with the payload of a task that waits or runs is merged into that task, and gets its ID."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            QuicxError: Of kind "misuse"; the message names the field and its valid range.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "rate" or value is not None:
                check_number(field.name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """The options that `Daemon` passes to the core."""

    listen: str | None
    tls_listen: str | None
    cert: PathLike | None
    key: PathLike | None
    development: PathLike
    client_ca: PathLike | None
    socket: PathLike | None
    journal: PathLike | None
    pool_bytes: int
    size_classes: list[int]
    default: Policy
    policies: list[tuple[str, Policy]]
    allow_types: list[str] | None
    heartbeat_interval: float | None
    max_connections: int
    max_connections_per_address: int | None
    idle_timeout: float
    metrics: str | None


def start_options(
    *,
    size_classes: Iterable[int] | None,
    task_timeout: float,
    max_attempts: int,
    policies: Mapping[str, Policy] | None,
    allow_types: Iterable[str] | None,
    state_folder: PathLike | None,
    **others: Any,
) -> StartOptions:
    """Return the core's options for a caller's arguments.

    Raises:
        QuicxError: Of kind "misuse" for an invalid value; the message names the argument.
    """
    numbers = {"task_timeout": task_timeout, "max_attempts": max_attempts, **others}
    for name, value in numbers.items():
        if value is not None:
            check_number(name, value)
    allowed = None if allow_types is None else list(allow_types)
    if allowed is not None:
        check_types(allowed)
    classes = list(SIZE_CLASSES if size_classes is None else size_classes)
    check_classes(classes)
    folder = state_dir() if state_folder is None else Path(state_folder)
    return StartOptions(
        size_classes=classes,
        default=Policy(task_timeout=task_timeout, attempts=max_attempts),
        policies=list((policies or {}).items()),
        allow_types=allowed,
        development=folder / "certificate",
        **others,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachOptions:
    """The options that `Producer` and `Worker` pass to the core."""

    address: str = DEFAULT_ADDRESS
    socket: PathLike | None = None
    fingerprint: str | None = None
    ca: PathLike | None = None
    system_ca: bool = False
    cert: PathLike | None = None
    key: PathLike | None = None
    server_name: str | None = None
    timeout: float = 10.0
    plain: bool = False

    def check(self) -> "ReachOptions":
        """Return the options; reject those that send over a network without TLS, unless ``plain`` is set."""
        try:
            check_address(self.address)
        except ValueError as error:
            raise QuicxError(f"address {error}", "misuse") from None
        if self.socket is not None and self.address != DEFAULT_ADDRESS:
            raise QuicxError(
                f"the address {self.address} and the socket {self.socket} are mutually exclusive",
                "misuse",
            )
        trusted = self.fingerprint is not None or self.ca is not None or self.system_ca
        if trusted and self.plain:
            raise QuicxError("plain=True cannot be combined with fingerprint, ca or system_ca", "misuse")
        if not trusted and not self.plain and self.socket is None and not is_local(self.address):
            raise QuicxError(
                f"{self.address} is not on this machine: set fingerprint, ca or system_ca, or plain=True",
                "misuse",
            )
        return self


_TOP = {
    "listen": str,
    "tls-listen": str,
    "cert": str,
    "key": str,
    "client-ca": str,
    "socket": str,
    "pidfile": str,
    "journal": str,
    "metrics": str,
    "pool-bytes": int,
    "size-classes": list,
    "max-connections": int,
    "max-connections-per-address": int,
    "idle-timeout": float,
    "max-attempts": int,
    "task-timeout": float,
    "heartbeat-interval": float,
    "drain": float,
    "allow-types": list,
}
_LISTENING = {"listen", "tls-listen", "metrics"}
_POLICY = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(Policy)}
_POLICY_TYPES = {"attempts": int, "priority": int, "retry-failed": bool, "unique": bool}


def read_config(path: PathLike) -> dict[str, Any]:
    """Read a configuration file: options by their names, and a table ``[types.NAME]`` for each policy.

    Returns:
        Keyword arguments of `Daemon`, and ``drain`` and ``pidfile`` if they are set. The file's ``task-timeout`` and
        ``max-attempts`` are the defaults of the tables.

    Raises:
        QuicxError: If the file cannot be read, or a field is unknown, of the wrong type or invalid; the message names
            the file and the field as it is written.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise QuicxError(f"{path}: {error}", "misuse") from None
    types = table.pop("types", {})
    try:
        return _read(table, types)
    except QuicxError as error:
        raise QuicxError(f"{path}: {error}", "misuse") from None


def _read(table: Mapping[str, Any], types: object) -> dict[str, Any]:
    found = {_argument(name): _typed(name, name, value, _TOP.get(name)) for name, value in table.items()}
    if not isinstance(types, dict):
        raise QuicxError("types must be a table of tables, [types.NAME]", "misuse")
    base = {"task-timeout": found.get("task_timeout", 60.0), "attempts": found.get("max_attempts", 5)}
    found["policies"] = {name: _policy(name, base, fields) for name, fields in types.items()}
    return found


def _argument(name: str) -> str:
    return name.replace("-", "_")


def _policy(name: str, base: Mapping[str, Any], fields: object) -> Policy:
    check_type(name, "types")
    if not isinstance(fields, dict):
        raise QuicxError(f"types.{name} must be a table, [types.{name}], not {fields!r}", "misuse")
    known: dict[str, Any] = {}
    for key, value in {**base, **fields}.items():
        wanted = _POLICY_TYPES.get(key, float) if key in _POLICY else None
        known[_argument(key)] = _typed(key, f"types.{name}.{key}", value, wanted)
    return Policy(**known)


def _typed(option: str, shown: str, value: object, wanted: type | None) -> Any:
    """Return the value of an option; reject one that is invalid or of the wrong type."""
    if wanted is None:
        raise QuicxError(f"unknown option {shown}", "misuse")
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise QuicxError(f"{shown} must be of type {wanted.__name__}, not {value!r}", "misuse")
    check_number(_argument(option), value, shown)
    if isinstance(value, str) and not value:
        raise QuicxError(f"{shown} is empty", "misuse")
    if isinstance(value, str) and option in _LISTENING:
        try:
            check_address(value, lowest_port=0)
        except ValueError as error:
            raise QuicxError(f"{shown} {error}", "misuse") from None
    if isinstance(value, list):
        (check_types if option == "allow-types" else check_classes)(value, shown)
    return value
