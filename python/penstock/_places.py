"""Places: what a URI names, read and written through ``pyarrow.fs``.

A key is taken as it stands: nothing after the bucket's name is escaped. Credentials come from the environment, as each
provider's own tools take them; options by the names below override it. The Rust core knows the same names
(``storage.rs``), so one mapping serves documents, receipts and sinks alike.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem, NativeFile

__all__ = ["Place", "check_storage", "is_uri", "local_path"]

_OPTIONS = {
    "s3": ("endpoint", "region", "access_key_id", "secret_access_key", "session_token", "anonymous"),
    "gs": ("endpoint", "anonymous"),
    "abfs": ("endpoint", "account_name", "account_key"),
    "hdfs": (),
}
_STORES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
    "hdfs": "hdfs",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_REQUEST_SECONDS, _CONNECT_SECONDS = 60, 10


def is_uri(text: str) -> bool:
    """Whether it names something in a store, not a local file."""
    scheme, separator, _ = text.partition("://")
    return separator != "" and scheme.lower() in _STORES


def local_path(text: str) -> str:
    """Give the local path that a path or a ``file:`` URI names.

    Raises:
        ValueError: It is a URI of another scheme or of another host.
    """
    scheme = _SCHEME.match(text)
    if scheme is None or (scheme[1].lower() != "file" and not text[scheme.end() :].startswith("//")):
        return text
    if scheme[1].lower() != "file":
        stores = "" if is_uri(text) else f", and URIs of {', '.join(_OPTIONS)}"
        raise ValueError(f"{text}: only local paths and file: URIs{stores} can be read here")
    # A "?" or "#" in the name of a file is escaped in a URI, so splitting loses nothing.
    uri = urlsplit(text)
    if uri.netloc not in ("", "localhost"):
        raise ValueError(f"{text}: a file: URI of another host cannot be read")
    return os.fsdecode(unquote_to_bytes(uri.path))


def check_storage(storage: Mapping[str, str] | None, *uris: str | None) -> dict[str, str]:
    """Give the options as a dictionary of their own.

    Raises:
        ValueError: One of the URIs that are in a store has no such option, or no bucket.
    """
    options = dict(storage or {})
    for uri in uris:
        if uri is None or not is_uri(uri):
            continue
        scheme, _, rest = uri.partition("://")
        if not rest.partition("/")[0] and _STORES[scheme.lower()] != "hdfs":
            raise ValueError(f"{uri}: it names no bucket")
        known = _OPTIONS[_STORES[scheme.lower()]]
        for name, value in options.items():
            if name not in known:
                raise ValueError(
                    f"{uri}: there is no storage option {name} for it; there are {', '.join(known) or 'none'}"
                )
            if not isinstance(value, str):
                raise ValueError(f"the storage option {name} must be a string, not {value!r}")
    return options


@dataclass(frozen=True)
class Place:
    """A prefix, or an object, in a store."""

    uri: str
    filesystem: "FileSystem"
    path: str

    @classmethod
    def open(cls, uri: str, storage: Mapping[str, str] | None = None) -> "Place":
        """Take what a URI names; nothing is asked of the store yet.

        Raises:
            ValueError: The URI or an option is none.
            OSError: The store's library does not take it.
        """
        options = check_storage(storage, uri)
        scheme, _, rest = uri.partition("://")
        authority, _, key = rest.partition("/")
        # A process keeps its file systems, but those of the process that it was forked off are useless in it.
        filesystem = _filesystem(os.getpid(), _STORES[scheme.lower()], authority, tuple(sorted(options.items())))
        match _STORES[scheme.lower()]:
            case "hdfs":
                path = f"/{key}"
            case "abfs":
                path = f"{authority.partition('@')[0]}/{key}"
            case _:
                path = f"{authority}/{key}"
        return cls(uri.rstrip("/"), filesystem, path.rstrip("/"))

    def __truediv__(self, name: str) -> "Place":
        """Give what lies below by this name."""
        return Place(f"{self.uri}/{name}", self.filesystem, f"{self.path}/{name}")

    @property
    def name(self) -> str:
        """The last component."""
        return self.path.rpartition("/")[2]

    def info(self) -> "FileInfo":
        """Ask the store what it is; ``OSError`` where it does not answer."""
        return self.filesystem.get_file_info(self.path)

    def exists(self) -> bool:
        """Whether it is an object."""
        from pyarrow.fs import FileType

        return bool(self.info().type == FileType.File)

    def is_folder(self) -> bool:
        """Whether anything lies below it."""
        from pyarrow.fs import FileType

        return bool(self.info().type == FileType.Directory)

    def files(self, *, recursive: bool) -> "Iterator[FileInfo]":
        """Give what lies below, in the order of the names; folders too unless ``recursive``."""
        from pyarrow.fs import FileSelector, FileType

        found = self.filesystem.get_file_info(FileSelector(self.path, allow_not_found=True, recursive=recursive))
        return iter(
            sorted((each for each in found if not recursive or each.type == FileType.File), key=lambda each: each.path)
        )

    def below(self, info: "FileInfo") -> "Place":
        """Give what `files` has found."""
        name: str = info.path[len(self.path) + 1 :]
        return self / name

    def open_file(self) -> "NativeFile":
        """Open it for reading anywhere; ``OSError`` where it cannot be read."""
        return self.filesystem.open_input_file(self.path)

    def write(self, data: bytes) -> None:
        """Put it there as a whole, or raise ``OSError``."""
        with self.filesystem.open_output_stream(self.path) as stream:
            stream.write(data)


@lru_cache(maxsize=16)
def _filesystem(_process: int, store: str, authority: str, options: tuple[tuple[str, str], ...]) -> "FileSystem":
    given = dict(options)
    match store:
        case "s3":
            return _amazon(given)
        case "gs":
            return _google(given)
        case "abfs":
            return _azure(authority, given)
        case _:
            from pyarrow.fs import HadoopFileSystem

            host, _, port = authority.rpartition(":") if ":" in authority else (authority, "", "0")
            return HadoopFileSystem(host or "default", int(port))


def _amazon(options: dict[str, str]) -> "FileSystem":
    from pyarrow.fs import S3FileSystem

    endpoint = options.get("endpoint") or _first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    arguments: dict[str, Any] = _endpoint(endpoint, "endpoint_override", "scheme")
    if options.get("anonymous") == "true":
        arguments["anonymous"] = True
    elif "access_key_id" in options:
        arguments |= {"access_key": options["access_key_id"], "secret_key": options.get("secret_access_key")}
        arguments["session_token"] = options.get("session_token")
    region = options.get("region") or _first("AWS_REGION", "AWS_DEFAULT_REGION")
    return S3FileSystem(
        region=region,
        request_timeout=_REQUEST_SECONDS,
        connect_timeout=_CONNECT_SECONDS,
        # One request for what is small.
        allow_delayed_open=True,
        **arguments,
    )


def _google(options: dict[str, str]) -> "FileSystem":
    from pyarrow.fs import GcsFileSystem

    arguments: dict[str, Any] = _endpoint(options.get("endpoint"), "endpoint_override", "scheme")
    return GcsFileSystem(anonymous=options.get("anonymous") == "true", **arguments)


def _azure(authority: str, options: dict[str, str]) -> "FileSystem":
    from pyarrow.fs import AzureFileSystem

    host = authority.partition("@")[2]
    account = options.get("account_name") or host.partition(".")[0] or _first("AZURE_STORAGE_ACCOUNT_NAME")
    key = options.get("account_key") or _first("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY")
    arguments: dict[str, Any] = _endpoint(options.get("endpoint"), "blob_storage_authority", "blob_storage_scheme")
    if arguments:
        arguments["dfs_storage_authority"] = arguments["blob_storage_authority"]
        arguments["dfs_storage_scheme"] = arguments["blob_storage_scheme"]
    if not account:
        raise ValueError(f"abfs://{authority}: no account: name it in the URI, or as the storage option account_name")
    return AzureFileSystem(account, account_key=key, **arguments)


def _endpoint(endpoint: str | None, authority: str, scheme: str) -> dict[str, Any]:
    if not endpoint:
        return {}
    found, separator, rest = endpoint.partition("://")
    return {scheme: found, authority: rest.rstrip("/")} if separator else {authority: endpoint}


def _first(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)
