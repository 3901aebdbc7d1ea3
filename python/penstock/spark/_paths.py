"""Paths of documents as they are in options and columns: local paths, or ``file:`` URIs."""

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from penstock.errors import SparkError

__all__ = ["from_column", "from_option", "to_column"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def from_option(text: str) -> str:
    """The local path that an option names.

    Raises:
        SparkError: It is a URI of another scheme.
    """
    try:
        return from_column(text)
    except OSError as error:
        raise SparkError(str(error)) from None


def from_column(text: str) -> str:
    """The local path that a row names.

    Raises:
        OSError: It is a URI of another scheme or of another host.
    """
    scheme = _SCHEME.match(text)
    if scheme is None or (scheme[1].lower() != "file" and not text[scheme.end() :].startswith("//")):
        return text
    if scheme[1].lower() != "file":
        raise OSError(f"{text}: only local paths and file: URIs can be read; mount the store, or copy the files")
    # A "?" or "#" in the name of a file is escaped in a URI, so splitting loses nothing.
    uri = urlsplit(text)
    if uri.netloc not in ("", "localhost"):
        raise OSError(f"{text}: a file: URI of another host cannot be read")
    return os.fsdecode(unquote_to_bytes(uri.path))


def to_column(path: str) -> str:
    """A path as a row names it: itself, or a ``file:`` URI where Arrow cannot hold it or it looks like a URI."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return Path(path).as_uri()
    return path
