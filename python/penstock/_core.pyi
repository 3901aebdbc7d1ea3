"""The Rust core of penstock, as stubtest checks it."""

from typing import Final, Literal

__all__ = ["__version__", "init_logging"]

__version__: Final[str]

def init_logging(level: str, format: Literal["text", "json"]) -> None:  # noqa: A002
    """Send the logs of the Rust side to stderr; the first call of a process decides."""
