"""The valid values of options, which are the same for arguments, policies and the configuration file."""

from collections.abc import Sequence
from math import isfinite

from penstock.errors import QuicxError

__all__ = ["check_classes", "check_number", "check_type", "check_types"]

_CENTURY = 100 * 365 * 86_400
"""Seconds; a longer duration is a mistake, because "indefinitely" is 0."""
_SECONDS = (0, _CENTURY)
_RANGES: dict[str, tuple[float, float]] = {
    "pool_bytes": (1, 1 << 62),
    "max_connections": (1, 1 << 31),
    "max_connections_per_address": (1, 1 << 31),
    "idle_timeout": _SECONDS,
    "max_attempts": (1, 65_535),
    "attempts": (1, 65_535),
    "priority": (-(1 << 31), (1 << 31) - 1),
    "back_off": (1, 1e9),
    "task_timeout": _SECONDS,
    "heartbeat_interval": _SECONDS,
    "heartbeat": _SECONDS,
    "drain": _SECONDS,
    "delay": _SECONDS,
    "start_delay": _SECONDS,
}
_LARGEST_CLASS = 1 << 20


def check_number(name: str, value: object, shown: str | None = None) -> None:
    """Reject an invalid number for the argument ``name``; ``shown`` is the name that the user wrote.

    Raises:
        QuicxError: Of kind "misuse", with that name and the valid range.
    """
    if name not in _RANGES and name != "rate":
        return
    shown = shown or name
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuicxError(f"{shown} must be a number, not {value!r}", "misuse")
    if name == "rate":
        if not isfinite(value) or value <= 0:
            raise QuicxError(f"{shown} must be a number above 0, not {value!r}", "misuse")
        return
    low, high = _RANGES[name]
    # Negated, because both comparisons are false for NaN.
    if not low <= value <= high:
        raise QuicxError(f"{shown} must be from {low:,} to {high:,}, not {value!r}", "misuse")


def check_type(name: object, shown: str) -> None:
    """Reject an invalid type of tasks."""
    if not isinstance(name, str) or not 1 <= len(name.encode("utf-8", "surrogatepass")) <= 255:
        raise QuicxError(f"{shown}: a task type must have 1 to 255 bytes of UTF-8, not {name!r}", "misuse")


def check_types(names: Sequence[object], shown: str = "allow_types") -> None:
    """Reject a list of accepted types that is empty or has an invalid type."""
    if not names:
        raise QuicxError(f"{shown} is empty, so no task would be accepted: omit it to accept all types", "misuse")
    for name in names:
        check_type(name, shown)


def check_classes(sizes: Sequence[object], shown: str = "size_classes") -> None:
    """Reject size classes that the pool cannot have."""
    before = 0
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not before < size <= _LARGEST_CLASS or size % 16:
            raise QuicxError(
                f"{shown} must be ascending multiples of 16, up to {_LARGEST_CLASS:,}; {size!r} is not valid", "misuse"
            )
        before = size
    if not sizes:
        raise QuicxError(f"{shown} is empty", "misuse")
