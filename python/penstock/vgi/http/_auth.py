"""Who calls over HTTP: what looks at a request and says so. A ValueError or PermissionError is a 401."""

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
"""The cookie that keeps the token of a browser that has logged in."""


class Request:
    """What ``authenticate`` gets: the parts of a falcon request that people use."""

    def __init__(
        self, method: str, path: str, query_string: str, headers: list[tuple[str, str]], remote_addr: str
    ) -> None:
        """Take what the server got."""
        self.method, self.path, self.query_string, self.remote_addr = method, path, query_string, remote_addr
        self.headers: Mapping[str, str] = {name.upper(): value for name, value in headers}
        """The headers, their names in capitals."""
        self.context = SimpleNamespace()
        """Yours, to keep what you like."""

    @property
    def params(self) -> dict[str, Any]:
        """What the query says: a text, or a list of them for a name that comes again."""
        found = parse_qs(self.query_string, keep_blank_values=True)
        return {name: values[0] if len(values) == 1 else values for name, values in found.items()}

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies; none where they cannot be read."""
        try:
            parsed: SimpleCookie = SimpleCookie(self.headers.get("COOKIE", ""))
        except CookieError:
            return {}
        return {name: morsel.value for name, morsel in parsed.items()}

    @property
    def user_agent(self) -> str | None:
        """What the caller says that it is."""
        return self.get_header("User-Agent")

    def get_header(self, name: str, required: bool = False, default: str | None = None) -> str | None:
        """Give a header, whatever the case of its name; ValueError for one that is required and missing."""
        value = self.headers.get(name.upper(), default)
        if value is None and required:
            raise ValueError(f"the header {name} is missing")
        return value


Authenticate = Callable[[Request], AuthContext]
"""Looks at a request and says who calls."""


def bearer_token(request: Request) -> str:
    """Give the bearer token of a request; ValueError where it has none."""
    scheme, _, token = (request.get_header("Authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ValueError("the Authorization header has no bearer token")
    return token.strip()


def bearer_authenticate(*, validate: Callable[[str], AuthContext]) -> Authenticate:
    """Ask ``validate`` who has the bearer token; it raises ValueError for one it does not know."""
    return lambda request: validate(bearer_token(request))


def bearer_authenticate_static(*, tokens: Mapping[str, AuthContext]) -> Authenticate:
    """Know these bearer tokens.

    ```python
    >>> from penstock.vgi import AuthContext
    >>> from penstock.vgi.http import bearer_authenticate_static
    >>> authenticate = bearer_authenticate_static(tokens={"s3cret": AuthContext("key", True, "alice")})

    ```
    """
    known = [(hashlib.sha256(token.encode()).digest(), auth) for token, auth in tokens.items()]

    def validate(token: str) -> AuthContext:
        given = hashlib.sha256(token.encode()).digest()
        # All are compared, so that time tells nothing.
        found = [auth for digest, auth in known if hmac.compare_digest(digest, given)]
        if not found:
            raise ValueError("the bearer token is not known")
        return found[0]

    return bearer_authenticate(validate=validate)


def chain_authenticate(*authenticators: Authenticate) -> Authenticate:
    """Ask one after the other; the first that knows the caller decides, and a PermissionError ends it at once."""
    if not authenticators:
        raise ValueError("there is nobody to ask")

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
    """Ask ``inner`` about the bearer token that a cookie has; ValueError where there is no such cookie."""

    def ask(request: Request) -> AuthContext:
        token = request.cookies.get(cookie_name)
        if not token:
            raise ValueError(f"there is no cookie {cookie_name}")
        given = request.headers
        request.headers = {**given, "AUTHORIZATION": f"Bearer {token}"}
        try:
            return inner(request)
        finally:
            request.headers = given

    return ask
