"""Objects and prefixes that a URI names in an object store, read and written through ``pyarrow.fs``.

Keys are used literally: nothing after the bucket's name is unescaped. Credentials come from the environment variables
that each provider's own tools use, unless options with the names below override them. The Rust core uses the same names
(``storage.rs``), so one mapping serves documents, receipts and sinks.
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
    """Return whether a str is the URI of a store, not a local path."""
    scheme, separator, _ = text.partition("://")
    return separator != "" and scheme.lower() in _STORES


def local_path(text: str) -> str:
    """Return the local path that a path or a ``file:`` URI names.

    Raises:
        ValueError: ``text`` is a URI of another scheme or of another host.
    """
    scheme = _SCHEME.match(text)
    if scheme is None or (scheme[1].lower() != "file" and not text[scheme.end() :].startswith("//")):
        return text
    if scheme[1].lower() != "file":
        stores = "" if is_uri(text) else f", and URIs of {', '.join(_OPTIONS)}"
        raise ValueError(f"{text}: only local paths and file: URIs{stores} can be read here")
    # A URI escapes "?" and "#" in the name of a file, so splitting loses nothing.
    uri = urlsplit(text)
    if uri.netloc not in ("", "localhost"):
        raise ValueError(f"{text}: a file: URI of another host cannot be read")
    return os.fsdecode(unquote_to_bytes(uri.path))


def check_storage(storage: Mapping[str, str] | None, *uris: str | None) -> dict[str, str]:
    """Return the options as a new dict, after checking them against the URIs.

    Raises:
        ValueError: A URI of a store names no bucket, or its kind of store lacks one of the options.
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
    """A prefix or an object in a store."""

    uri: str
    filesystem: "FileSystem"
    path: str

    @classmethod
    def open(cls, uri: str, storage: Mapping[str, str] | None = None) -> "Place":
        """Return the place that a URI names; no request is sent yet.

        Raises:
            ValueError: The URI or an option is invalid.
            OSError: The store's library rejects them.
        """
        options = check_storage(storage, uri)
        scheme, _, rest = uri.partition("://")
        authority, _, key = rest.partition("/")
        # File systems are cached for each process, because they do not survive a fork.
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
        """Return the place below this one with a given name."""
        return Place(f"{self.uri}/{name}", self.filesystem, f"{self.path}/{name}")

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]

    def info(self) -> "FileInfo":
        """Request the object's metadata; raise ``OSError`` if the store does not answer."""
        return self.filesystem.get_file_info(self.path)

    def exists(self) -> bool:
        """Return whether it is an object."""
        from pyarrow.fs import FileType

        return bool(self.info().type == FileType.File)

    def is_folder(self) -> bool:
        """Return whether there is anything below it."""
        from pyarrow.fs import FileType

        return bool(self.info().type == FileType.Directory)

    def files(self, *, recursive: bool) -> "Iterator[FileInfo]":
        """Yield the entries below it in order of path; folders too, unless ``recursive``."""
        from pyarrow.fs import FileSelector, FileType

        found = self.filesystem.get_file_info(FileSelector(self.path, allow_not_found=True, recursive=recursive))
        return iter(
            sorted((each for each in found if not recursive or each.type == FileType.File), key=lambda each: each.path)
        )

    def below(self, info: "FileInfo") -> "Place":
        """Return the place of an entry that `files` has yielded."""
        name: str = info.path[len(self.path) + 1 :]
        return self / name

    def open_file(self) -> "NativeFile":
        """Open the object for reading with random access; raise ``OSError`` if it cannot be read."""
        return self.filesystem.open_input_file(self.path)

    def write(self, data: bytes) -> None:
        """Write the object as a whole, or raise ``OSError``."""
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
        # Small objects then need only one request.
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
        raise ValueError(f"abfs://{authority}: no account: set it in the URI, or as the storage option account_name")
    return AzureFileSystem(account, account_key=key, **arguments)


def _endpoint(endpoint: str | None, authority: str, scheme: str) -> dict[str, Any]:
    if not endpoint:
        return {}
    found, separator, rest = endpoint.partition("://")
    return {scheme: found, authority: rest.rstrip("/")} if separator else {authority: endpoint}


def _first(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)
