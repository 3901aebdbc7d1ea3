"""Descriptors for servers whose sockets are Python's; those of the core see to it themselves."""

from penstock import _core

__all__ = ["provide_descriptors"]


def provide_descriptors(what: str, connections: int) -> int:
    """Raise the limit of descriptors to what ``connections`` need, beside what is open and 32 for other files.

    Returns:
        How many connections there can be; where they are fewer than asked for, the log says so.

    Raises:
        OSError: There could be none.
    """
    return _core.provide_descriptors(what, connections)
