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
_PAUSE = 5.0
"""Seconds after a failed fetch within which tokens that need another one fail without it.

A fetch from an issuer that does not answer lasts 10 seconds, for which all tokens that need one wait.
"""


class _Keys:
    """The keys of an issuer: fetched for the first token, and again for an unknown key or once they are old."""

    def __init__(self, issuer: str, uri: str | None, read: Callable[[Any], Any]) -> None:
        self._issuer, self._uri, self._read = issuer, uri, read
        self._lock = threading.Lock()
        self._kept: tuple[Any, float] | None = None
        """The keys, and when they were fetched."""
        self._failed: tuple[str, float] | None = None
        """The reason why the last fetch failed, and when; None if it succeeded."""

    def get(self, older_than: Any = None) -> Any:
        """Return the keys; with ``older_than``, fetch them again unless that was done recently.

        Raises:
            FetchError: If the keys cannot be fetched, or could not be fetched within the last seconds.
        """
        # Tokens with known keys do not wait for a fetch.
        kept = self._kept
        if older_than is None and kept is not None and time.monotonic() - kept[1] < _AGE:
            return kept[0]
        # One thread fetches, and others wait for its result.
        with self._lock:
            if self._kept is not None:
                keys, at = self._kept
                age = time.monotonic() - at
                if age < _AGE and not (older_than is keys and age >= _AGAIN):
                    return keys
            return self._renewed()

    def _renewed(self) -> Any:
        if self._failed is not None and time.monotonic() - self._failed[1] < _PAUSE:
            raise FetchError(f"{self._failed[0]} (not tried again yet)")
        try:
            keys = self._fetch()
        except Exception as error:
            self._failed = (str(error), time.monotonic())
            raise
        self._kept, self._failed = (keys, time.monotonic()), None
        return keys

    def _fetch(self) -> Any:
        if self._uri is None:
            said = fetch_json(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            uri = said.get("jwks_uri")
            if not isinstance(uri, str):
                raise FetchError(f"{self._issuer}: its configuration has no jwks_uri")
            self._uri = uri
        said = fetch_json(self._uri)
        try:
            return self._read(said)
        except Exception as error:
            # The library raises errors of several classes.
            raise FetchError(f"{self._uri}: the keys cannot be read: {type(error).__name__}: {error}") from error


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
    unknown key, at most every 10 seconds, and not within 5 seconds after a failed fetch. Signatures may be RS, PS and
    ES with 256, 384 or 512 bits, and EdDSA. The claims ``exp``, ``nbf`` and ``iat`` are checked if a token has them.

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
