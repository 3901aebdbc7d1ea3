"""OAuth 2.0: the protected resource metadata of a service (RFC 9728), and functions for clients to read it."""

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
"""The path of the metadata; the service's prefix follows it."""

_PLAIN = re.compile(r"[A-Za-z0-9\-._~]+")
_IN_A_CHALLENGE = ("client_id", "client_secret", "device_code_client_id", "device_code_client_secret")


@dataclass(frozen=True)
class _ResourceMetadata:
    """The protected resource metadata of a service."""

    resource: str
    """The URL of the service."""
    authorization_servers: tuple[str, ...]
    """The issuers whose tokens the service accepts, at least one."""
    scopes_supported: tuple[str, ...] = ()
    bearer_methods_supported: tuple[str, ...] = ("header",)
    resource_signing_alg_values_supported: tuple[str, ...] = ()
    resource_name: str | None = None
    resource_documentation: str | None = None
    resource_policy_uri: str | None = None
    resource_tos_uri: str | None = None
    client_id: str | None = None
    """The client ID for callers to use at these servers. This field and the following ones are not part of RFC 9728."""
    client_secret: str | None = None
    use_id_token_as_bearer: bool = False
    """Whether the bearer token is the ``id_token`` instead of the ``access_token``."""
    device_code_client_id: str | None = None
    device_code_client_secret: str | None = None


@dataclass(frozen=True)
class OAuthResourceMetadata(_ResourceMetadata):
    """The protected resource metadata that a service publishes, for the option ``oauth_resource_metadata``.

    The ``client_secret`` is public: it is for authorization servers that require one even from clients that cannot
    keep a secret.

    Raises:
        ValueError: If the resource is empty, there is no authorization server, or a client ID or secret has
            characters that are not URL-safe.

    ```python
    >>> from penstock.vgi import OAuthResourceMetadata
    >>> OAuthResourceMetadata("https://api.example/vgi", ("https://login.example",)).to_json_dict()
    {'resource': 'https://api.example/vgi', 'authorization_servers': ['https://login.example']}

    ```
    """

    def __post_init__(self) -> None:
        """Raise ValueError for fields that are invalid."""
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
        """Return the document: the two required fields, and all others that differ from their defaults."""
        said: dict[str, object] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("resource", "authorization_servers") or value != each.default:
                said[each.name] = list(value) if isinstance(value, tuple) else value
        return said

    def to_json(self) -> bytes:
        """Return the document as the JSON that the service publishes."""
        return json.dumps(self.to_json_dict(), separators=(",", ":")).encode()


@dataclass(frozen=True)
class OAuthResourceMetadataResponse(_ResourceMetadata):
    """The metadata received from a service; the fields are those of ``OAuthResourceMetadata``."""


def challenge(metadata: OAuthResourceMetadata, prefix: str) -> str:
    """Return the ``WWW-Authenticate`` of a service (RFC 9728, section 5.1)."""
    parts = urlsplit(metadata.resource)
    at = "" if prefix == "/" else prefix
    said = [f'Bearer resource_metadata="{parts.scheme}://{parts.netloc}{WELL_KNOWN}{at}"']
    for name in ("client_id", "client_secret", "use_id_token_as_bearer", *_IN_A_CHALLENGE[2:]):
        value = getattr(metadata, name)
        if value:
            said.append(f'{name}="{"true" if value is True else value}"')
    return ", ".join(said)


def _parameter(www_authenticate: str, name: str) -> str | None:
    # Match the whole name, because device_code_client_id ends with client_id too.
    found = re.search(rf'(?<![\w-]){name}="([^"]+)"', www_authenticate)
    return None if found is None else found[1]


def parse_resource_metadata_url(www_authenticate: str) -> str | None:
    """Return the URL of a service's metadata from the ``WWW-Authenticate`` of its 401 response, or None.

    ```python
    >>> from penstock.vgi import parse_resource_metadata_url
    >>> parse_resource_metadata_url('Bearer resource_metadata="https://api.example/.well-known/x"')
    'https://api.example/.well-known/x'

    ```
    """
    return _parameter(www_authenticate, "resource_metadata")


def parse_client_id(www_authenticate: str) -> str | None:
    """Return the ``client_id`` from a ``WWW-Authenticate``, or None."""
    return _parameter(www_authenticate, "client_id")


def parse_client_secret(www_authenticate: str) -> str | None:
    """Return the ``client_secret`` from a ``WWW-Authenticate``, or None."""
    return _parameter(www_authenticate, "client_secret")


def parse_use_id_token_as_bearer(www_authenticate: str) -> bool:
    """Return whether a ``WWW-Authenticate`` asks for the ``id_token`` as the bearer token."""
    return _parameter(www_authenticate, "use_id_token_as_bearer") == "true"


def parse_device_code_client_id(www_authenticate: str) -> str | None:
    """Return the ``device_code_client_id`` from a ``WWW-Authenticate``, or None."""
    return _parameter(www_authenticate, "device_code_client_id")


def parse_device_code_client_secret(www_authenticate: str) -> str | None:
    """Return the ``device_code_client_secret`` from a ``WWW-Authenticate``, or None."""
    return _parameter(www_authenticate, "device_code_client_secret")


def http_oauth_metadata(
    base_url: str | None = None, *, prefix: str | None = None, client: Any = None
) -> OAuthResourceMetadataResponse | None:
    """Fetch the protected resource metadata of a service.

    Args:
        base_url: The URL of the server, without the prefix; not needed with ``client``.
        prefix: The prefix of the service; by default that of ``client``, else none. Services of penstock answer
            without the prefix too.
        client: An ``httpx.Client`` with a base URL, or the result of ``make_sync_client``.

    Returns:
        The metadata, or None if the service publishes none (status 404).

    Raises:
        ValueError: If there is neither a base URL nor a client, or the request fails, or its answer is invalid.
    """
    if base_url is None and client is None:
        raise ValueError("base_url is required when client is not provided")
    at = getattr(client, "prefix", "") if prefix is None else prefix
    path = f"{WELL_KNOWN}{at}"
    return _get((base_url or "").rstrip("/") + path if client is None else path, client, missing=True)


def fetch_oauth_metadata(metadata_url: str, *, client: Any = None) -> OAuthResourceMetadataResponse:
    """Fetch the protected resource metadata at a URL.

    Args:
        metadata_url: The URL from a 401 response; see ``parse_resource_metadata_url``.
        client: An ``httpx.Client`` to send the request with.

    Raises:
        ValueError: If the request fails, or its answer is invalid.
    """
    found = _get(metadata_url, client, missing=False)
    assert found is not None  # noqa: S101 -- missing=False raises instead
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
