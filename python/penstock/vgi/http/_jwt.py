"""Authentication by JSON Web Tokens (RFC 7519). Its use requires the extra ``penstock[vgi-oauth]``."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.vgi.http._auth import Authenticate, Request, bearer_token
from penstock.vgi.http._fetch import FetchError, fetch_json
from penstock.vgi.rpc._common import AuthContext

__all__ = ["jwt_authenticate"]

_log = logging.getLogger("vgi_rpc.http")

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Asymmetric algorithms only: with HS256, anyone who can read the published keys could sign tokens."""
_AGE = 3600.0
"""Seconds after which keys are fetched again, so that a withdrawn key becomes invalid."""
_AGAIN = 10.0
"""The least seconds between two fetches because of unknown keys, which limits the cost of made-up key IDs."""


class _Keys:
    """The keys of an issuer: fetched for the first token, and again for an unknown key or once they are old."""

    def __init__(self, issuer: str, uri: str | None, read: Callable[[Any], Any]) -> None:
        self._issuer, self._uri, self._read = issuer, uri, read
        self._lock = threading.Lock()
        self._keys: Any = None
        self._at = 0.0

    def get(self, older_than: Any = None) -> Any:
        """Return the keys; with ``older_than``, fetch them again unless that was done recently."""
        # One thread fetches, and others wait for its result.
        with self._lock:
            age = time.monotonic() - self._at
            unknown = older_than is not None and self._keys is older_than and age >= _AGAIN
            if self._keys is None or age >= _AGE or unknown:
                self._keys = self._fetch()
                self._at = time.monotonic()
            return self._keys

    def _fetch(self) -> Any:
        if self._uri is None:
            said = fetch_json(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            uri = said.get("jwks_uri")
            if not isinstance(uri, str):
                raise FetchError(f"{self._issuer}: its configuration has no jwks_uri")
            self._uri = uri
        return self._read(fetch_json(self._uri))


def _joserfc() -> tuple[Any, Any, Any, Any]:
    try:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError
        from joserfc.jwk import KeySet
    except ImportError as error:
        raise ImportError('jwt_authenticate requires joserfc: pip install "penstock[vgi-oauth]"') from error
    return jwt, KeySet, InvalidKeyIdError, JoseError


def jwt_authenticate(
    *,
    issuer: str | tuple[str, ...],
    audience: str | tuple[str, ...],
    jwks_uri: str | None = None,
    claims_options: Mapping[str, Any] | None = None,
    principal_claim: str = "sub",
    domain: str = "jwt",
) -> Authenticate:
    """Return an authenticator for bearer tokens that are JWTs of an issuer for an audience.

    The issuer's keys are fetched for the first token and kept for an hour. They are fetched again for a token with an
    unknown key, at most every 10 seconds. Signatures may be RS, PS and ES with 256, 384 or 512 bits, and EdDSA. The
    claims ``exp``, ``nbf`` and ``iat`` are checked if a token has them.

    Args:
        issuer: The accepted issuer, or several.
        audience: The accepted audience, or several.
        jwks_uri: The URL of the keys; by default the one in the ``/.well-known/openid-configuration`` of the (first)
            issuer.
        claims_options: Further requirements for claims, in the format of joserfc, for example
            ``{"exp": {"essential": True}}``.
        principal_claim: The claim with the caller's name.
        domain: The ``domain`` of the AuthContext.

    Raises:
        ImportError: If joserfc is not installed; the extra ``penstock[vgi-oauth]`` installs it.
        ValueError: If an issuer or an audience is empty.
    """
    jwt, KeySet, InvalidKeyIdError, JoseError = _joserfc()  # noqa: N806 -- classes
    issuers = (issuer,) if isinstance(issuer, str) else tuple(issuer)
    audiences = (audience,) if isinstance(audience, str) else tuple(audience)
    if not issuers or not all(issuers):
        raise ValueError("issuer must not be empty")
    if not audiences or not all(audiences):
        raise ValueError("audience must not be empty")
    options: dict[str, Any] = {
        "iss": {"essential": True, "values": list(issuers)},
        "aud": {"essential": True, "values": list(audiences)},
        **(claims_options or {}),
    }
    keys = _Keys(issuers[0], jwks_uri, KeySet.import_key_set)

    def claims_of(token: str, known: Any) -> dict[str, Any]:
        decoded = jwt.decode(token, known, algorithms=_ALGORITHMS)
        jwt.JWTClaimsRegistry(**options).validate(decoded.claims)
        return dict(decoded.claims)

    def authenticate(request: Request) -> AuthContext:
        token = bearer_token(request)
        known = keys.get()
        try:
            try:
                claims = claims_of(token, known)
            except InvalidKeyIdError:
                claims = claims_of(token, keys.get(older_than=known))
        except (JoseError, ValueError, TypeError) as error:
            # The message must contain nothing of the token itself.
            reason = str(error) if isinstance(error, JoseError) else type(error).__name__
            raise ValueError(f"Invalid JWT: {reason}") from None
        return AuthContext(
            domain=domain, authenticated=True, principal=str(claims.get(principal_claim, "")), claims=claims
        )

    return authenticate
