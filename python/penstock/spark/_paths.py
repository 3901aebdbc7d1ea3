"""Document paths in options and columns: local paths, ``file:`` URIs, and URIs of object stores."""

from pathlib import Path

from penstock._places import is_uri, local_path
from penstock.errors import SparkError

__all__ = ["from_column", "from_option", "to_column"]


def from_option(text: str) -> str:
    """Return the local path that an option names.

    Raises:
        SparkError: The text is a URI with another scheme or host.
    """
    try:
        return local_path(text)
    except ValueError as error:
        raise SparkError(str(error)) from None


def from_column(text: str) -> str:
    """Return the local path that a row names, or the unchanged URI of an object store.

    Raises:
        OSError: The text is a URI with another scheme or host.
    """
    try:
        return text if is_uri(text) else local_path(text)
    except ValueError as error:
        raise OSError(str(error)) from None


def to_column(path: str) -> str:
    """Return a path in the form for a row: unchanged, or as a ``file:`` URI if it is not valid UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return Path(path).as_uri()
    return path
