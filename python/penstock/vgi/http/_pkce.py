"""The login of browsers at a service's authorization server: the code flow with PKCE (RFC 7636).

::

    browser ── GET page, no token ──▶ service: 302 to the authorization server, the verifier is in a signed cookie
            ── logs in there ──▶ 302 to PREFIX/_oauth/callback?code=...&state=...
            ── GET callback ──▶ service: exchanges code and verifier for a token; 302 to the page, the token is a cookie
"""

import base64
import hashlib
import hmac
import html
import json
import logging
import math
import secrets
import threading
import time
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urlsplit

from penstock.vgi.http._auth import AUTH_COOKIE, Request
from penstock.vgi.http._fetch import FetchError, fetch_json
from penstock.vgi.http._oauth import OAuthResourceMetadata

__all__ = ["CALLBACK", "LOGOUT", "BrowserLogin"]

_log = logging.getLogger("vgi_rpc.http")

CALLBACK = "/_oauth/callback"
LOGOUT = "/_oauth/logout"
"""The paths of callback and logout; the service's prefix precedes them."""

_SESSION_COOKIE = "_vgi_oauth_session"
_LOGIN_SECONDS = 600
"""Seconds that a login may take."""
_TOKEN_SECONDS = 3600
"""Seconds for which a token without a known lifetime is kept."""
_LONGEST_URL = 2048
_AGAIN = 10.0
"""Seconds after which a failed request to the authorization server is retried."""

Page = tuple[int, list[tuple[str, str]], bytes]
"""The status, headers and body of a response."""


class BrowserLogin:
    """The login of browsers: redirects them to the authorization server, and handles their return."""

    def __init__(self, metadata: OAuthResourceMetadata, prefix: str, signing_key: bytes) -> None:
        parts = urlsplit(metadata.resource)
        self._metadata, self._prefix = metadata, prefix
        self._redirect_uri = f"{parts.scheme}://{parts.netloc}{prefix}{CALLBACK}"
        self._secure = parts.scheme == "https"
        # A separate key, so that a signed session is never valid as a state token, nor the reverse.
        self._key = hmac.digest(signing_key, b"oauth-pkce-session", "sha256")
        self._endpoints: tuple[str, str] | None = None
        self._asked = 0.0
        self._lock = threading.Lock()
        if not self._secure and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            _log.warning("%s is not https://: tokens in cookies are sent in plain text", metadata.resource)

    def send(self, request: Request) -> Page | None:
        """Return the redirect of a browser to its login; None for other clients, or if no login is possible."""
        if request.method != "GET" or "text/html" not in (request.get_header("Accept") or ""):
            return None
        endpoints = self._discover()
        if endpoints is None:
            return None
        verifier, state = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._metadata.client_id,
            "redirect_uri": self._redirect_uri,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "state": state,
            "scope": " ".join(self._metadata.scopes_supported) or "openid email",
        }
        back = request.path + (f"?{request.query_string}" if request.query_string else "")
        session = self._seal({"verifier": verifier, "state": state, "back": back, "at": int(time.time())})
        joint = "&" if "?" in endpoints[0] else "?"
        return _redirect(f"{endpoints[0]}{joint}{urlencode(asked)}", self._session_cookie(session, _LOGIN_SECONDS))

    def callback(self, request: Request) -> Page:
        """Handle the return of a browser: exchange its code for a token, which is stored in a cookie."""
        said = {name: value for name, value in request.params.items() if isinstance(value, str)}
        if "error" in said:
            return self._failed(400, f"The authorization server says: {said.get('error_description', said['error'])}")
        session = self._open(request.cookies.get(_SESSION_COOKIE, ""))
        if session is None:
            return self._failed(400, "The login has expired, or was started elsewhere.")
        if not hmac.compare_digest(said.get("state", "").encode(), session["state"].encode()):
            _log.warning("a login returned with a different state")
            return self._failed(400, "The login was started elsewhere.")
        if not said.get("code"):
            return self._failed(400, "The authorization server returned no code.")
        endpoints = self._discover()
        if endpoints is None:
            return self._failed(502, "The authorization server cannot be reached.")
        try:
            token, seconds = self._token(endpoints[1], said["code"], session["verifier"])
        except (FetchError, ValueError) as error:
            _log.warning("a code could not be exchanged for a token: %s", error)
            return self._failed(502, "The authorization server returned no token.")
        kept = self._cookie(AUTH_COOKIE, token, seconds, self._prefix or "/")
        return _redirect(self._own(session["back"]), kept, self._session_cookie("", 0))

    def logout(self, _request: Request) -> Page:
        """Delete the cookie with the token."""
        return _redirect(self._prefix or "/", self._cookie(AUTH_COOKIE, "", 0, self._prefix or "/"))

    def _discover(self) -> tuple[str, str] | None:
        """Return the authorization endpoint and the token endpoint, fetched once; None if they are unknown."""
        with self._lock:
            if self._endpoints is None and (not self._asked or time.monotonic() - self._asked >= _AGAIN):
                issuer = self._metadata.authorization_servers[0].rstrip("/")
                try:
                    said = fetch_json(f"{issuer}/.well-known/openid-configuration")
                    self._endpoints = (str(said["authorization_endpoint"]), str(said["token_endpoint"]))
                except (FetchError, KeyError) as error:
                    _log.warning("browsers cannot log in: %s", error)
                finally:
                    # From the end on: a request to a server that does not answer lasts as long as the pause.
                    self._asked = time.monotonic()
            return self._endpoints

    def _token(self, endpoint: str, code: str, verifier: str) -> tuple[str, int]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
            "client_id": self._metadata.client_id or "",
        }
        if self._metadata.client_secret is not None:
            form["client_secret"] = self._metadata.client_secret
        said = fetch_json(endpoint, form)
        wanted = "id_token" if self._metadata.use_id_token_as_bearer else "access_token"
        token = said.get(wanted)
        if not isinstance(token, str) or not token:
            raise ValueError(f"the response has no {wanted}")
        seconds = _left(token) if wanted == "id_token" else said.get("expires_in")
        # Python's JSON has Infinity, which cannot be an int.
        return token, int(seconds) if isinstance(seconds, int | float) and 0 < seconds < math.inf else _TOKEN_SECONDS

    def _seal(self, session: dict[str, Any]) -> str:
        body = json.dumps(session).encode()
        return base64.urlsafe_b64encode(hmac.digest(self._key, body, "sha256") + body).decode()

    def _open(self, sealed: str) -> dict[str, Any] | None:
        try:
            data = base64.urlsafe_b64decode(sealed)
        except ValueError:
            return None
        if not hmac.compare_digest(hmac.digest(self._key, data[32:], "sha256"), data[:32]):
            return None
        session: dict[str, Any] = json.loads(data[32:])
        return session if 0 <= time.time() - session["at"] <= _LOGIN_SECONDS else None

    def _own(self, url: str) -> str:
        """Return the URL if it is a page of this service, else the service's root, to prevent open redirects."""
        root = self._prefix or "/"
        at_home = url == root or url.startswith((f"{root.rstrip('/')}/", f"{root}?"))
        # Browsers interpret two slashes, and backslashes, as the start of another host.
        strange = url.startswith(("//", "/\\")) or "\\" in url or not url.isprintable() or len(url) > _LONGEST_URL
        return root if strange or not at_home else url

    def _session_cookie(self, value: str, seconds: int) -> str:
        return self._cookie(_SESSION_COOKIE, value, seconds, f"{self._prefix}/_oauth/")

    def _cookie(self, name: str, value: str, seconds: int, path: str) -> str:
        made: SimpleCookie = SimpleCookie()
        made[name] = value
        morsel = made[name]
        morsel["max-age"], morsel["path"], morsel["httponly"], morsel["samesite"] = str(seconds), path, "1", "Lax"
        if self._secure:
            morsel["secure"] = "1"
        return morsel.OutputString()

    def _failed(self, status: int, message: str) -> Page:
        again = html.escape(self._prefix or "/")
        body = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Not logged in</title></head>\n'
            f'<body><h1>Not logged in</h1><p>{html.escape(message)}</p><p><a href="{again}">Try again</a></p>'
            "</body></html>\n"
        )
        return status, [("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store")], body.encode()


def _redirect(where: str, *cookies: str) -> Page:
    kept = [("Set-Cookie", cookie) for cookie in cookies]
    return 302, [("Location", where), ("Cache-Control", "no-store"), *kept], b""


def _left(token: str) -> int | None:
    """Return the remaining seconds of a JWT, or None; its signature is verified when the browser presents it."""
    try:
        part = token.split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return int(said["exp"]) - int(time.time())
    except (IndexError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
