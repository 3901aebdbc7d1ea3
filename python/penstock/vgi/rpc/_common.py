"""What both ends of a call share: errors, who calls, what a method is told of its call."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from http.cookies import SimpleCookie
from types import MappingProxyType
from typing import Any, Final, NewType, Protocol, Self

import pyarrow as pa

from penstock.errors import Error
from penstock.vgi.log import Level, Message
from penstock.vgi.metadata import REQUEST_VERSION

__all__ = [
    "DESCRIBE_METHOD_NAME",
    "REQUEST_VERSION",
    "AuthContext",
    "CallContext",
    "CallStatistics",
    "ClientLog",
    "DispatchHook",
    "HookToken",
    "MethodType",
    "RpcError",
    "VersionError",
]

DESCRIBE_METHOD_NAME: Final = "__describe__"
"""The method that tells what a server has (section 14)."""

ClientLog = Callable[[Message], None]
"""What takes a message for the caller."""

HookToken = NewType("HookToken", object)
"""What a hook gives at the start of a call and gets back at its end."""


class RpcError(Error):
    """A call failed: the method raised, or the peer or the connection broke the protocol.

    ```python
    >>> from penstock.vgi import RpcError
    >>> str(RpcError("ValueError", "ValueError: boom", ""))
    'ValueError: ValueError: boom'

    ```
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Return an error of the kind "application": code raised in another process."""
        return super().__new__(cls, "", "application")

    def __init__(self, error_type: str, error_message: str, remote_traceback: str, *, request_id: str = "") -> None:
        """Make an error from the fields of an error batch. Its code is the type."""
        super().__init__(f"{error_type}: {error_message}", "application", error_type)
        self.args = (self.message,)
        self.error_type = error_type
        """The class of the exception there, ``ValueError`` for example."""
        self.error_message = error_message
        """What it said; for an exception of a method its class and its text."""
        self.remote_traceback = remote_traceback
        """Where it happened there, or empty."""
        self.request_id = request_id
        """The call's ID, or empty."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive a pickle, the way from a Spark worker to the driver."""
        return _rpc_error, (type(self), self.error_type, self.error_message, self.remote_traceback, self.request_id)


def _rpc_error(kind: type[RpcError], error_type: str, message: str, traceback: str, request_id: str) -> RpcError:
    return kind(error_type, message, traceback, request_id=request_id)


class VersionError(Error):
    """A request has no version, or another than "1" (vgi-rpc, section 13)."""

    def __new__(cls, message: str = "") -> Self:
        """Return an error of the kind "violation"."""
        return super().__new__(cls, message, "violation")

    def __init__(self, message: str = "") -> None:
        """Make an error that says which version the request has."""
        super().__init__(message, "violation")
        self.args = (message,)


class MethodType(Enum):
    """What shape a method has."""

    UNARY = "unary"
    STREAM = "stream"


@dataclass(frozen=True)
class AuthContext:
    """Who calls.

    ```python
    >>> from penstock.vgi import AuthContext
    >>> AuthContext.anonymous().authenticated
    False

    ```
    """

    domain: str | None
    """How the caller proved it, ``jwt`` for example."""
    authenticated: bool
    """Whether it did."""
    principal: str | None = None
    """The caller's name."""
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What else is known of the caller."""

    @classmethod
    def anonymous(cls) -> "AuthContext":
        """Give the caller of whom nothing is known: every caller over a pipe."""
        return _ANONYMOUS

    def require_authenticated(self) -> None:
        """Raise PermissionError unless the caller is known."""
        if not self.authenticated:
            raise PermissionError("Authentication required")


_ANONYMOUS = AuthContext(domain=None, authenticated=False)


@dataclass
class CallStatistics:
    """What went in and out in one call, as the server counts it; bytes are those of the Arrow buffers."""

    input_batches: int = 0
    output_batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    input_bytes: int = 0
    output_bytes: int = 0

    def record_input(self, batch: pa.RecordBatch) -> None:
        """Count a batch that came."""
        self.input_batches += 1
        self.input_rows += batch.num_rows
        self.input_bytes += batch.get_total_buffer_size()

    def record_output(self, batch: pa.RecordBatch) -> None:
        """Count a batch that went."""
        self.output_batches += 1
        self.output_rows += batch.num_rows
        self.output_bytes += batch.get_total_buffer_size()


class DispatchHook(Protocol):
    """What looks at every call of a server, such as tracing."""

    def on_dispatch_start(self, info: Any, auth: AuthContext, metadata: Mapping[str, Any]) -> HookToken:
        """A call begins; ``metadata`` has what came with it, a trace context for example."""
        ...

    def on_dispatch_end(self, token: HookToken, info: Any, error: BaseException | None, stats: CallStatistics) -> None:
        """It ended, well or with that error."""
        ...


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class CallContext:
    """What a method is told of its call: ask for it with a parameter named ``ctx``.

    ```python
    >>> from typing import Protocol
    >>> from penstock.vgi import CallContext, serve_pipe
    >>> class Greeter(Protocol):
    ...     def greet(self) -> str: ...
    >>> class GreeterImpl:
    ...     def greet(self, ctx: CallContext) -> str:
    ...         return f"hello {ctx.auth.principal or 'whoever you are'}"
    >>> with serve_pipe(Greeter, GreeterImpl()) as greeter:
    ...     greeter.greet()
    'hello whoever you are'

    ```
    """

    __slots__ = (
        "_cookies",
        "_logger",
        "_request_id",
        "auth",
        "emit_client_log",
        "method_name",
        "protocol_name",
        "server_id",
        "set_cookie_headers",
        "transport_metadata",
    )

    def __init__(
        self,
        auth: AuthContext,
        emit_client_log: ClientLog,
        transport_metadata: Mapping[str, Any] | None = None,
        *,
        server_id: str = "",
        method_name: str = "",
        protocol_name: str = "",
    ) -> None:
        """Say who calls, where messages for the caller go, and what is called."""
        self.auth = auth
        """Who calls."""
        self.emit_client_log = emit_client_log
        """What takes messages for the caller."""
        self.transport_metadata: Mapping[str, Any] = (
            MappingProxyType(dict(transport_metadata)) if transport_metadata else _NOTHING
        )
        """What the transport knows: over HTTP ``remote_addr`` and ``user_agent``."""
        self.server_id = server_id
        self.method_name = method_name
        self.protocol_name = protocol_name
        self._request_id = ""
        self._cookies: Mapping[str, str] = _NOTHING
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        # Filled where the answer can carry cookies: unary calls over HTTP.
        self.set_cookie_headers: list[str] | None = None

    @property
    def request_id(self) -> str:
        """The call's ID, as logs and errors carry it."""
        return self._request_id

    @property
    def cookies(self) -> Mapping[str, str]:
        """The cookies that came with the call; empty but over HTTP."""
        return self._cookies

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger of the server's process that knows the call: ``vgi_rpc.service.PROTOCOL``."""
        if self._logger is None:
            extra = {"server_id": self.server_id, "method": self.method_name, "request_id": self._request_id}
            if self.auth.principal:
                extra |= {"principal": self.auth.principal, "auth_domain": self.auth.domain or ""}
            if "remote_addr" in self.transport_metadata:
                extra["remote_addr"] = self.transport_metadata["remote_addr"]
            logger = logging.getLogger(f"vgi_rpc.service.{self.protocol_name}")
            self._logger = _Merging(logger, extra)
        return self._logger

    def client_log(self, level: Level, message: str, **extra: str) -> None:
        """Send a message to the caller."""
        self.emit_client_log(Message(level, message, **extra))

    def set_cookie(
        self,
        name: str,
        value: str,
        *,
        expires: datetime | None = None,
        max_age: int | None = None,
        domain: str | None = None,
        path: str | None = None,
        secure: bool | None = None,
        http_only: bool = True,
        same_site: str | None = None,
        partitioned: bool = False,
    ) -> None:
        """Let the caller keep a cookie. RuntimeError but in a unary method over HTTP."""
        morsel: SimpleCookie = SimpleCookie()
        morsel[name] = value
        attributes: Mapping[str, Any] = {
            "expires": expires and expires.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "max-age": max_age,
            "domain": domain,
            "path": path,
            "secure": secure,
            "httponly": http_only,
            "samesite": same_site,
        }
        for key, given in attributes.items():
            if given is not None and given is not False:
                morsel[name][key] = given
        self._add_cookie(morsel[name].OutputString() + ("; Partitioned" if partitioned else ""))

    def delete_cookie(self, name: str, *, path: str | None = None, domain: str | None = None) -> None:
        """Let the caller forget a cookie. RuntimeError but in a unary method over HTTP."""
        where = "".join(f"; {key}={value}" for key, value in (("Domain", domain), ("Path", path)) if value is not None)
        self._add_cookie(f'{name}=""; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0{where}')

    def _add_cookie(self, header: str) -> None:
        if self.set_cookie_headers is None:
            raise RuntimeError("cookies can be set only in a unary method that is called over HTTP")
        self.set_cookie_headers.append(header)


class _Merging(logging.LoggerAdapter[logging.Logger]):
    """Keeps what a call of the logger says itself, but for what names the call; the adapter has that from 3.13 on."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs["extra"] = {**kwargs.get("extra", {}), **(self.extra or {})}
        return msg, kwargs
