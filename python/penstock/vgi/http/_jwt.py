"""Callers with a JSON Web Token (RFC 7519). Needs the extra ``penstock[vgi-oauth]`` once it is used."""

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
"""Signatures of keys that may be published. With HS256 whoever reads the keys could sign."""
_AGE = 3600.0
"""Seconds after which keys are read again, so that one that was withdrawn is good no longer."""
_AGAIN = 10.0
"""Seconds between two readings for keys that are not known: tokens with made-up names cost no more than that."""


class _Keys:
    """The keys of an issuer: read when the first token comes, again for an unknown one, and when they are old."""

    def __init__(self, issuer: str, uri: str | None, read: Callable[[Any], Any]) -> None:
        self._issuer, self._uri, self._read = issuer, uri, read
        self._lock = threading.Lock()
        self._keys: Any = None
        self._at = 0.0

    def get(self, older_than: Any = None) -> Any:
        """Give the keys; others than ``older_than`` if there may be any."""
        # One reads, and those who come meanwhile wait for it.
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
        raise ImportError('jwt_authenticate needs joserfc: pip install "penstock[vgi-oauth]"') from error
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
    """Let in callers whose bearer token is a JWT that ``issuer`` made for ``audience``; any of several will do.

    The issuer's keys are at ``jwks_uri``, by default where its ``/.well-known/openid-configuration`` says (that of
    the first of several). They are kept for an hour, and read again for a token whose key is not known, every ten
    seconds at most. Signatures are RS, PS and ES with 256, 384 and 512 bits and EdDSA. ``exp``, ``nbf`` and ``iat``
    are obeyed where a token has them; ``claims_options`` asks for more, ``{"exp": {"essential": True}}`` for example,
    as joserfc has it. The caller's name is the claim ``principal_claim``.

    ImportError without joserfc, which ``penstock[vgi-oauth]`` brings.
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
            # What is wrong with it, and nothing of the token itself.
            reason = str(error) if isinstance(error, JoseError) else type(error).__name__
            raise ValueError(f"Invalid JWT: {reason}") from None
        return AuthContext(
            domain=domain, authenticated=True, principal=str(claims.get(principal_claim, "")), claims=claims
        )

    return authenticate
