"""Admission to a service over HTTP: authentication, the answers to rejected callers, and pages without a method."""

import logging
from collections.abc import Callable

from penstock import _core
from penstock.vgi.http._auth import Authenticate, Request, chain_authenticate, make_cookie_authenticate
from penstock.vgi.http._oauth import WELL_KNOWN, OAuthResourceMetadata, challenge
from penstock.vgi.http._options import CoreOptions
from penstock.vgi.http._pkce import CALLBACK, LOGOUT, BrowserLogin, Page
from penstock.vgi.rpc._common import AuthContext

__all__ = ["FAILED", "Gate"]

_log = logging.getLogger("vgi_rpc.http")

FAILED = "the server failed; its log says why"
"""The message of an answer with status 500 that no method made."""


class Gate:
    """The authentication of callers. Any number of threads may use it."""

    def __init__(
        self,
        options: CoreOptions,
        authenticate: Authenticate | None,
        metadata: OAuthResourceMetadata | None,
        on_failure: Callable[[str], None] | None,
    ) -> None:
        """Set up authentication; ``on_failure`` receives the error class for each rejected caller."""
        self._authenticate, self._on_failure = authenticate, on_failure
        self._challenge = "Bearer"
        self._login: BrowserLogin | None = None
        self._pages: dict[str, Callable[[Request], Page]] = {}
        if metadata is None:
            return
        document = metadata.to_json()
        said: Page = (200, [("Content-Type", "application/json"), ("Cache-Control", "public, max-age=60")], document)
        for at in {WELL_KNOWN, WELL_KNOWN + options.prefix}:
            self._pages[at] = lambda _request: said
        self._challenge = challenge(metadata, options.prefix)
        if authenticate is not None and metadata.client_id is not None:
            self._login = BrowserLogin(metadata, options.prefix, options.signing_key)
            self._authenticate = chain_authenticate(authenticate, make_cookie_authenticate(authenticate))
            self._pages[options.prefix + CALLBACK] = self._login.callback
            self._pages[options.prefix + LOGOUT] = self._login.logout

    def let_in(self, call: "_core.VgiHttpCall", request: Request) -> AuthContext | None:
        """Return the caller; None if the call has been answered, with a page or with a rejection."""
        try:
            if call.page != "own":
                return self._admitted(call, request)
            status, headers, body = self._pages[call.path](request)
            call.respond(status, headers, body)
        except Exception:  # noqa: BLE001 -- a broken authenticator, page or login must not stop the server
            _log.exception("a caller could be neither let in nor rejected: %s %s", call.http_method, call.path)
            if not call.done:
                call.error(500, FAILED)
        return None

    def _admitted(self, call: "_core.VgiHttpCall", request: Request) -> AuthContext | None:
        try:
            auth = AuthContext.anonymous() if self._authenticate is None else self._authenticate(request)
        except (ValueError, PermissionError) as error:
            _log.warning("a caller at %s was rejected: %s", call.remote, error)
            self._turn_away(call, request, error)
            return None
        if not isinstance(auth, AuthContext):
            raise TypeError(f"authenticate returned a {type(auth).__name__}, not an AuthContext")
        return auth

    def _turn_away(self, call: "_core.VgiHttpCall", request: Request, error: Exception) -> None:
        if self._on_failure is not None:
            self._on_failure(type(error).__name__)
        page = None if self._login is None else self._login.send(request)
        if page is None:
            call.unauthorized(str(error), self._challenge)
        else:
            call.respond(*page)
