"""Paths of documents as they are in options and columns: local paths, ``file:`` URIs, and URIs of stores."""

from pathlib import Path

from penstock._places import is_uri, local_path
from penstock.errors import SparkError

__all__ = ["from_column", "from_option", "to_column"]


def from_option(text: str) -> str:
    """The local path that an option names.

    Raises:
        SparkError: It is a URI of another scheme or of another host.
    """
    try:
        return local_path(text)
    except ValueError as error:
        raise SparkError(str(error)) from None


def from_column(text: str) -> str:
    """The local path that a row names, or the URI of a store as it is.

    Raises:
        OSError: It is a URI of another scheme or of another host.
    """
    try:
        return text if is_uri(text) else local_path(text)
    except ValueError as error:
        raise OSError(str(error)) from None


def to_column(path: str) -> str:
    """A path as a row names it: itself, or a ``file:`` URI where Arrow cannot hold it or it looks like a URI."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return Path(path).as_uri()
    return path
