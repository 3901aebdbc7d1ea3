"""Authentication over HTTP: functions that return the caller of a request.

A ValueError or PermissionError is answered with status 401.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qs

from penstock.vgi.rpc._common import AuthContext

__all__ = [
    "AUTH_COOKIE",
    "Authenticate",
    "Request",
    "bearer_authenticate",
    "bearer_authenticate_static",
    "bearer_token",
    "chain_authenticate",
    "make_cookie_authenticate",
]


AUTH_COOKIE: Final = "_vgi_auth"
"""The cookie with the token of a browser that has logged in."""


class Request:
    """A request as ``authenticate`` receives it: the commonly used parts of a falcon request."""

    def __init__(
        self, method: str, path: str, query_string: str, headers: list[tuple[str, str]], remote_addr: str
    ) -> None:
        """Create a request; servers do this for each call.

        Args:
            method: The HTTP method.
            path: The decoded path.
            query_string: The query, without "?".
            headers: The names and values of the headers.
            remote_addr: The address of the client.
        """
        self.method, self.path, self.query_string, self.remote_addr = method, path, query_string, remote_addr
        self.headers: Mapping[str, str] = {name.upper(): value for name, value in headers}
        """The headers; their names are in upper case."""
        self.context = SimpleNamespace()
        """A namespace for your own use."""

    @property
    def params(self) -> dict[str, Any]:
        """The query parameters: a str each, or a list of str for a repeated name."""
        found = parse_qs(self.query_string, keep_blank_values=True)
        return {name: values[0] if len(values) == 1 else values for name, values in found.items()}

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies; empty if the header is malformed."""
        try:
            parsed: SimpleCookie = SimpleCookie(self.headers.get("COOKIE", ""))
        except CookieError:
            return {}
        return {name: morsel.value for name, morsel in parsed.items()}

    @property
    def user_agent(self) -> str | None:
        """The header ``User-Agent``, or None."""
        return self.get_header("User-Agent")

    def get_header(self, name: str, required: bool = False, default: str | None = None) -> str | None:
        """Return a header.

        Args:
            name: The name, in any case.
            required: Whether a missing header without ``default`` raises ValueError.
            default: The value for a missing header.
        """
        value = self.headers.get(name.upper(), default)
        if value is None and required:
            raise ValueError(f"the header {name} is missing")
        return value


Authenticate = Callable[[Request], AuthContext]
"""A function that returns the caller of a request."""


def bearer_token(request: Request) -> str:
    """Return the bearer token of a request; raise ValueError if it has none."""
    scheme, _, token = (request.get_header("Authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ValueError("the Authorization header has no bearer token")
    return token.strip()


def bearer_authenticate(*, validate: Callable[[str], AuthContext]) -> Authenticate:
    """Return an authenticator for bearer tokens.

    Args:
        validate: Returns the caller with a token, and raises ValueError for an unknown one.
    """
    return lambda request: validate(bearer_token(request))


def bearer_authenticate_static(*, tokens: Mapping[str, AuthContext]) -> Authenticate:
    """Return an authenticator for a fixed set of bearer tokens.

    Args:
        tokens: The caller of each token. Tokens are compared in constant time.

    ```python
    >>> from penstock.vgi import AuthContext
    >>> from penstock.vgi.http import bearer_authenticate_static
    >>> authenticate = bearer_authenticate_static(tokens={"s3cret": AuthContext("key", True, "alice")})

    ```
    """
    known = [(hashlib.sha256(token.encode()).digest(), auth) for token, auth in tokens.items()]

    def validate(token: str) -> AuthContext:
        given = hashlib.sha256(token.encode()).digest()
        # Compare with all tokens, so that the time does not depend on the position of a match.
        found = [auth for digest, auth in known if hmac.compare_digest(digest, given)]
        if not found:
            raise ValueError("the bearer token is unknown")
        return found[0]

    return bearer_authenticate(validate=validate)


def chain_authenticate(*authenticators: Authenticate) -> Authenticate:
    """Return an authenticator that tries others in turn.

    The first that does not raise ValueError decides. A PermissionError rejects the request immediately.

    Raises:
        ValueError: If no authenticator is given.
    """
    if not authenticators:
        raise ValueError("at least one authenticator is required")

    def ask(request: Request) -> AuthContext:
        reasons = []
        for each in authenticators:
            try:
                return each(request)
            except ValueError as error:
                reasons.append(str(error))
        raise ValueError("; ".join(reasons))

    return ask


def make_cookie_authenticate(inner: Authenticate, cookie_name: str = "_vgi_auth") -> Authenticate:
    """Return an authenticator that passes the token in a cookie to another one, as a bearer token.

    Args:
        inner: The authenticator for bearer tokens.
        cookie_name: The name of the cookie; a request without it is rejected.
    """

    def ask(request: Request) -> AuthContext:
        token = request.cookies.get(cookie_name)
        if not token:
            raise ValueError(f"the cookie {cookie_name} is missing")
        given = request.headers
        request.headers = {**given, "AUTHORIZATION": f"Bearer {token}"}
        try:
            return inner(request)
        finally:
            request.headers = given

    return ask
