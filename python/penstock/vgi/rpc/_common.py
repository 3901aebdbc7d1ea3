"""Definitions that both ends of a call share: errors, authentication, statistics and the context of a call."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
"""The name of the method that returns a server's description (vgi-rpc, section 14)."""

ClientLog = Callable[[Message], None]
"""A function that sends a log message to the caller."""

HookToken = NewType("HookToken", object)
"""The value that a hook returns at the start of a call and receives back at its end."""


class RpcError(Error):
    """A failed call: the method raised, the connection failed, or the peer violated the protocol.

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
        """Create the error.

        Args:
            error_type: The class name of the remote exception.
            error_message: The message of the error.
            remote_traceback: The remote traceback, or "".
            request_id: The ID of the call, or "".
        """
        super().__init__(f"{error_type}: {error_message}", "application", error_type)
        self.args = (self.message,)
        self.error_type = error_type
        """The class name of the remote exception, for example ``ValueError``."""
        self.error_message = error_message
        """The message; for an exception of a method, its class and its text."""
        self.remote_traceback = remote_traceback
        """The remote traceback, or ""."""
        self.request_id = request_id
        """The ID of the call, or ""."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, because Spark sends the error from a worker to the driver."""
        return _rpc_error, (type(self), self.error_type, self.error_message, self.remote_traceback, self.request_id)


def _rpc_error(kind: type[RpcError], error_type: str, message: str, traceback: str, request_id: str) -> RpcError:
    return kind(error_type, message, traceback, request_id=request_id)


class VersionError(Error):
    """A request without a version, or with another version than "1" (vgi-rpc, section 13)."""

    def __init__(self, message: str = "") -> None:
        """Make an error that says which version the request has."""
        super().__init__(message, "violation")
        self.args = (message,)


class MethodType(Enum):
    """The kind of a method: one result, or a stream."""

    UNARY = "unary"
    STREAM = "stream"


@dataclass(frozen=True)
class AuthContext:
    """The identity of a caller.

    ```python
    >>> from penstock.vgi import AuthContext
    >>> AuthContext.anonymous().authenticated
    False

    ```
    """

    domain: str | None
    """The method of authentication, for example ``jwt``."""
    authenticated: bool
    """Whether the caller is authenticated."""
    principal: str | None = None
    """The caller's name."""
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further facts about the caller, such as the claims of its token."""

    @classmethod
    def anonymous(cls) -> "AuthContext":
        """Return the unauthenticated caller, which every caller over a pipe or a socket is."""
        return _ANONYMOUS

    def require_authenticated(self) -> None:
        """Raise PermissionError unless the caller is authenticated."""
        if not self.authenticated:
            raise PermissionError("Authentication required")


_ANONYMOUS = AuthContext(domain=None, authenticated=False)


@dataclass
class CallStatistics:
    """The input and output of one call, as the server counts them; bytes are those of the Arrow buffers."""

    input_batches: int = 0
    output_batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    input_bytes: int = 0
    output_bytes: int = 0

    def record_input(self, batch: pa.RecordBatch) -> None:
        """Count an input batch."""
        self.input_batches += 1
        self.input_rows += batch.num_rows
        self.input_bytes += batch.get_total_buffer_size()

    def record_output(self, batch: pa.RecordBatch) -> None:
        """Count an output batch."""
        self.output_batches += 1
        self.output_rows += batch.num_rows
        self.output_bytes += batch.get_total_buffer_size()


class DispatchHook(Protocol):
    """A hook that observes every call of a server, for example for tracing."""

    def on_dispatch_start(self, info: Any, auth: AuthContext, metadata: Mapping[str, Any]) -> HookToken:
        """Handle the start of a call.

        Args:
            info: The called method, an RpcMethodInfo.
            auth: The caller.
            metadata: The metadata of the request and of the transport, for example a trace context.

        Returns:
            A token, which ``on_dispatch_end`` receives.
        """
        ...

    def on_dispatch_end(self, token: HookToken, info: Any, error: BaseException | None, stats: CallStatistics) -> None:
        """Handle the end of a call; ``error`` is None if the call succeeded."""
        ...


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class CallContext:
    """The context of a call, which a method receives in a parameter named ``ctx``.

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
        """Create a context; servers do this for each call.

        Args:
            auth: The caller.
            emit_client_log: The function that sends a log message to the caller.
            transport_metadata: The transport's facts about the call.
            server_id: The ID of the server.
            method_name: The name of the called method.
            protocol_name: The name of the service's protocol.
        """
        self.auth = auth
        """The caller."""
        self.emit_client_log = emit_client_log
        """The function that sends a log message to the caller."""
        self.transport_metadata: Mapping[str, Any] = (
            MappingProxyType(dict(transport_metadata)) if transport_metadata else _NOTHING
        )
        """The transport's facts about the call; over HTTP ``remote_addr`` and ``user_agent``."""
        self.server_id = server_id
        self.method_name = method_name
        self.protocol_name = protocol_name
        self._request_id = ""
        self._cookies: Mapping[str, str] = _NOTHING
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        # A list only if the answer can carry cookies: in unary calls over HTTP.
        self.set_cookie_headers: list[str] | None = None

    @property
    def request_id(self) -> str:
        """The ID of the call, which logs and errors contain."""
        return self._request_id

    @property
    def cookies(self) -> Mapping[str, str]:
        """The cookies of the request; empty except over HTTP."""
        return self._cookies

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """The logger ``vgi_rpc.service.PROTOCOL`` of the server's process, which adds the call to each record."""
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
        """Send a log message to the caller.

        Args:
            level: The level; EXCEPTION raises an RpcError at the caller.
            message: The text.
            extra: Further fields by name.
        """
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
        """Set a cookie at the caller.

        Args:
            name: The name.
            value: The value.
            expires: The time at which the cookie expires; a time without a zone is in UTC.
            max_age: The lifetime in seconds, which takes precedence over ``expires``.
            domain: The domain; by default the host that was called.
            path: The path; by default that of the request.
            secure: Whether the caller sends it over HTTPS only.
            http_only: Whether it is hidden from scripts.
            same_site: "Strict", "Lax" or "None".
            partitioned: Whether to add the attribute ``Partitioned``.

        Raises:
            RuntimeError: If the method is not a unary method that is called over HTTP.
        """
        morsel: SimpleCookie = SimpleCookie()
        morsel[name] = value
        attributes: Mapping[str, Any] = {
            "expires": None if expires is None else _http_date(expires),
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
        """Delete a cookie at the caller.

        Args:
            name: The name.
            path: The path of the cookie, as it was set.
            domain: The domain of the cookie, as it was set.

        Raises:
            RuntimeError: If the method is not a unary method that is called over HTTP.
        """
        where = "".join(f"; {key}={value}" for key, value in (("Domain", domain), ("Path", path)) if value is not None)
        self._add_cookie(f'{name}=""; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0{where}')

    def _add_cookie(self, header: str) -> None:
        if self.set_cookie_headers is None:
            raise RuntimeError("cookies can be set only in a unary method that is called over HTTP")
        self.set_cookie_headers.append(header)


def _http_date(when: datetime) -> str:
    """Return a time as HTTP has it, in English and in GMT; a time without a zone is in UTC."""
    from email.utils import format_datetime

    known = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return format_datetime(known, usegmt=True)


class _Merging(logging.LoggerAdapter[logging.Logger]):
    """An adapter that merges the ``extra`` of a record with its own, which wins.

    LoggerAdapter itself can merge only from Python 3.13 on.
    """

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs["extra"] = {**kwargs.get("extra", {}), **(self.extra or {})}
        return msg, kwargs
