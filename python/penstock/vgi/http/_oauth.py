"""OAuth 2.0: what a service says of who may call it (RFC 9728), and what callers read of it."""

import json
import re
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.vgi.http._fetch import FetchError, fetch_json

__all__ = [
    "WELL_KNOWN",
    "OAuthResourceMetadata",
    "OAuthResourceMetadataResponse",
    "challenge",
    "fetch_oauth_metadata",
    "http_oauth_metadata",
    "parse_client_id",
    "parse_client_secret",
    "parse_device_code_client_id",
    "parse_device_code_client_secret",
    "parse_resource_metadata_url",
    "parse_use_id_token_as_bearer",
]

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""Where the metadata is, before the service's prefix."""

_PLAIN = re.compile(r"[A-Za-z0-9\-._~]+")
_IN_A_CHALLENGE = ("client_id", "client_secret", "device_code_client_id", "device_code_client_secret")


@dataclass(frozen=True)
class _ResourceMetadata:
    """What is said of who may call a service."""

    resource: str
    """The URL of the service."""
    authorization_servers: tuple[str, ...]
    """The issuers whose tokens are good here, at least one."""
    scopes_supported: tuple[str, ...] = ()
    bearer_methods_supported: tuple[str, ...] = ("header",)
    resource_signing_alg_values_supported: tuple[str, ...] = ()
    resource_name: str | None = None
    resource_documentation: str | None = None
    resource_policy_uri: str | None = None
    resource_tos_uri: str | None = None
    client_id: str | None = None
    """Who callers say that they are, at those servers. It is no field of RFC 9728, nor are those that follow."""
    client_secret: str | None = None
    use_id_token_as_bearer: bool = False
    """Whether the token that counts is the ``id_token``, in place of the ``access_token``."""
    device_code_client_id: str | None = None
    device_code_client_secret: str | None = None


@dataclass(frozen=True)
class OAuthResourceMetadata(_ResourceMetadata):
    """What a service says of who may call it, for ``oauth_resource_metadata=``.

    ValueError for an empty resource, for no server, and for names that a header could not carry. What stands in
    ``client_secret`` is told to everybody: it is for servers that want one of callers who cannot keep a secret.

    ```python
    >>> from penstock.vgi import OAuthResourceMetadata
    >>> OAuthResourceMetadata("https://api.example/vgi", ("https://login.example",)).to_json_dict()
    {'resource': 'https://api.example/vgi', 'authorization_servers': ['https://login.example']}

    ```
    """

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.resource:
            raise ValueError("OAuthResourceMetadata.resource must not be empty")
        if not self.authorization_servers:
            raise ValueError("OAuthResourceMetadata.authorization_servers must contain at least one entry")
        for name in _IN_A_CHALLENGE:
            value = getattr(self, name)
            if value is not None and not _PLAIN.fullmatch(value):
                raise ValueError(
                    f"OAuthResourceMetadata.{name} must contain only URL-safe characters: letters, digits, -, ., _, ~"
                )

    def to_json_dict(self) -> dict[str, object]:
        """Give the document: the two fields that are required, and others where they are not the defaults."""
        said: dict[str, object] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("resource", "authorization_servers") or value != each.default:
                said[each.name] = list(value) if isinstance(value, tuple) else value
        return said

    def to_json(self) -> bytes:
        """Give the document as the service answers with it."""
        return json.dumps(self.to_json_dict(), separators=(",", ":")).encode()


@dataclass(frozen=True)
class OAuthResourceMetadataResponse(_ResourceMetadata):
    """What a service said; the fields are those of ``OAuthResourceMetadata``."""


def challenge(metadata: OAuthResourceMetadata, prefix: str) -> str:
    """Give the ``WWW-Authenticate`` of a service (RFC 9728, 5.1)."""
    parts = urlsplit(metadata.resource)
    at = "" if prefix == "/" else prefix
    said = [f'Bearer resource_metadata="{parts.scheme}://{parts.netloc}{WELL_KNOWN}{at}"']
    for name in ("client_id", "client_secret", "use_id_token_as_bearer", *_IN_A_CHALLENGE[2:]):
        value = getattr(metadata, name)
        if value:
            said.append(f'{name}="{"true" if value is True else value}"')
    return ", ".join(said)


def _parameter(www_authenticate: str, name: str) -> str | None:
    # The name as a whole: client_id is the end of device_code_client_id too.
    found = re.search(rf'(?<![\w-]){name}="([^"]+)"', www_authenticate)
    return None if found is None else found[1]


def parse_resource_metadata_url(www_authenticate: str) -> str | None:
    """Give where a service's metadata is, out of the ``WWW-Authenticate`` of its 401.

    ```python
    >>> from penstock.vgi import parse_resource_metadata_url
    >>> parse_resource_metadata_url('Bearer resource_metadata="https://api.example/.well-known/x"')
    'https://api.example/.well-known/x'

    ```
    """
    return _parameter(www_authenticate, "resource_metadata")


def parse_client_id(www_authenticate: str) -> str | None:
    """Give the ``client_id`` out of a ``WWW-Authenticate``."""
    return _parameter(www_authenticate, "client_id")


def parse_client_secret(www_authenticate: str) -> str | None:
    """Give the ``client_secret`` out of a ``WWW-Authenticate``."""
    return _parameter(www_authenticate, "client_secret")


def parse_use_id_token_as_bearer(www_authenticate: str) -> bool:
    """Tell whether a ``WWW-Authenticate`` wants the ``id_token``."""
    return _parameter(www_authenticate, "use_id_token_as_bearer") == "true"


def parse_device_code_client_id(www_authenticate: str) -> str | None:
    """Give the ``device_code_client_id`` out of a ``WWW-Authenticate``."""
    return _parameter(www_authenticate, "device_code_client_id")


def parse_device_code_client_secret(www_authenticate: str) -> str | None:
    """Give the ``device_code_client_secret`` out of a ``WWW-Authenticate``."""
    return _parameter(www_authenticate, "device_code_client_secret")


def http_oauth_metadata(
    base_url: str | None = None, *, prefix: str | None = None, client: Any = None
) -> OAuthResourceMetadataResponse | None:
    """Ask a service who may call it; None where it does not say.

    ``client`` is an ``httpx.Client`` or what ``make_sync_client`` gives. Without ``prefix`` it is the client's, else
    the service is asked at the root, which every service of ours answers at as well. ValueError for another answer.
    """
    if base_url is None and client is None:
        raise ValueError("base_url is required when client is not provided")
    at = getattr(client, "prefix", "") if prefix is None else prefix
    path = f"{WELL_KNOWN}{at}"
    return _get((base_url or "").rstrip("/") + path if client is None else path, client, missing=True)


def fetch_oauth_metadata(metadata_url: str, *, client: Any = None) -> OAuthResourceMetadataResponse:
    """Get the metadata from where a 401 says that it is (``parse_resource_metadata_url``); ValueError if it is not."""
    found = _get(metadata_url, client, missing=False)
    assert found is not None  # noqa: S101 -- it is an error to be missing
    return found


def _get(url: str, client: Any, *, missing: bool) -> OAuthResourceMetadataResponse | None:
    failed = f"Failed to fetch OAuth metadata from {url}"
    if client is not None:
        answer = client.get(url)
        if answer.status_code == 404 and missing:
            return None
        if answer.status_code != 200:
            raise ValueError(f"{failed}: HTTP {answer.status_code}")
        try:
            return _read(json.loads(answer.content))
        except TypeError as error:
            raise ValueError(f"{failed}: {error}") from error
    try:
        return _read(fetch_json(url))
    except FetchError as error:
        if error.status == 404 and missing:
            return None
        raise ValueError(f"{failed}: {error}") from error


def _read(said: dict[str, Any]) -> OAuthResourceMetadataResponse:
    values: dict[str, Any] = {}
    for each in fields(OAuthResourceMetadataResponse):
        if each.name not in said:
            if each.name in ("resource", "authorization_servers"):
                raise ValueError(f"OAuth metadata response missing required field {each.name!r}")
            continue
        value = said[each.name]
        values[each.name] = tuple(value) if isinstance(value, list) else value
    return OAuthResourceMetadataResponse(**values)
