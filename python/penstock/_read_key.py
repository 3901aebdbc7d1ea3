"""The key for reading a sink or a spool: from a file or the environment, never from an argument."""

import os
from pathlib import Path

__all__ = ["read_key"]

_SHORTEST = 16


def read_key(file: str | os.PathLike[str] | None) -> str | None:
    """Return the key in a file, else the one in ``PENSTOCK_KEY``; ``None`` if there is none.

    Raises:
        ValueError: The file cannot be read or is empty, or the key has fewer than 16 bytes. The message names the place
            of the key.
    """
    if file is None:
        where, key = "PENSTOCK_KEY in the environment", os.environ.get("PENSTOCK_KEY", "")
    else:
        where = os.fspath(file)
        try:
            key = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ValueError(f"{where} cannot be read: {error}") from None
        if not key:
            raise ValueError(f"{where} is empty")
    if key and len(key.encode()) < _SHORTEST:
        raise ValueError(f"the read key, {where}, has fewer than {_SHORTEST} bytes")
    return key or None
