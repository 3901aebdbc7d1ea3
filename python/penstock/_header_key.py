"""The keys that seal headers (PipeStream, section 10.6): from a file or the environment, never from an argument."""

import os
import re
from pathlib import Path

__all__ = ["header_key"]

_LINE = re.compile(r"[0-9A-Fa-f]{64}")
_MOST = 16


def header_key(file: str | os.PathLike[str] | None) -> str | None:
    """Return the keys in a file, else those in ``PENSTOCK_HEADER_KEY``; ``None`` if there are none.

    Each line is a key of 64 hex digits. The first one seals headers; all of them open headers.

    Raises:
        ValueError: The file cannot be read or is empty, or a line is not a key. The message names the place, but
            contains no key.
    """
    if file is None:
        where, text = "PENSTOCK_HEADER_KEY in the environment", os.environ.get("PENSTOCK_HEADER_KEY", "")
        if not text:
            return None
    else:
        where = os.fspath(file)
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ValueError(f"{where} cannot be read: {error}") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not 1 <= len(lines) <= _MOST:
        raise ValueError(f"{where} has {len(lines)} header keys; it must have 1 to {_MOST}, one per line")
    for number, line in lines:
        if not _LINE.fullmatch(line):
            raise ValueError(
                f"line {number} of {where} is not 64 hex digits: `openssl rand -hex 32` makes a header key"
            )
    return "\n".join(line for _, line in lines)
