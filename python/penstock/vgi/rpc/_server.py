"""The server of a service."""

import copy
import inspect
import os
import secrets
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from penstock import _core
from penstock.vgi._external import core_external
from penstock.vgi.rpc._calls import PipeCalls
from penstock.vgi.rpc._common import DispatchHook
from penstock.vgi.rpc._methods import Values, core_protocol, method_values
from penstock.vgi.rpc._types import RpcMethodInfo, rpc_methods
from penstock.vgi.utils import IpcValidation

if TYPE_CHECKING:
    from penstock.vgi.external import ServerExternalConfig
    from penstock.vgi.rpc._transport import RpcTransport

__all__ = ["Dialect", "RpcServer", "check_dialect"]

Dialect = Literal["spec", "0.10"]
"""The rules that a server follows: the specification's, or those of the package vgi-rpc 0.10.0 where they differ."""


def check_dialect(given: str | None) -> Dialect:
    """Return the given dialect, by default that of PENSTOCK_VGI_DIALECT, else "spec"; raise ValueError for others."""
    name = given or os.environ.get("PENSTOCK_VGI_DIALECT") or "spec"
    for dialect in get_args(Dialect):
        if name == dialect:
            return name  # type: ignore[return-value]
    raise ValueError(f'the dialect {name!r} is neither "spec" nor "0.10"')


class RpcServer:
    """A server, which answers the calls of a service with the methods of an implementation.

    The implementation must have every method of the protocol, with the same parameters. A method that also has a
    parameter ``ctx`` receives the CallContext in it. An exception of a method is raised at the caller as an RpcError,
    and the server serves the next call.

    ```python
    >>> import threading
    >>> from typing import Protocol
    >>> from penstock.vgi import RpcConnection, RpcServer, make_pipe_pair
    >>> class Calculator(Protocol):
    ...     def add(self, a: float, b: float) -> float: ...
    >>> class CalculatorImpl:
    ...     def add(self, a: float, b: float) -> float:
    ...         return a + b
    >>> ours, theirs = make_pipe_pair()
    >>> thread = threading.Thread(target=RpcServer(Calculator, CalculatorImpl()).serve, args=(theirs,))
    >>> thread.start()
    >>> with RpcConnection(Calculator, ours) as calculator:
    ...     calculator.add(a=1.0, b=2.0)
    3.0
    >>> ours.close()
    >>> thread.join()

    ```
    """

    def __init__(
        self,
        protocol: type,
        implementation: object,
        *,
        external_location: "ServerExternalConfig | None" = None,
        server_id: str | None = None,
        server_version: str = "",
        protocol_version: str = "",
        enable_describe: bool = False,
        ipc_validation: IpcValidation = IpcValidation.FULL,
        dialect: str | None = None,
    ) -> None:
        """Check the implementation against the protocol.

        Args:
            protocol: The service, a ``typing.Protocol``.
            implementation: The object with the service's methods.
            external_location: Where to store large batches, and which of the callers' external batches to fetch; by
                default neither is done.
            server_id: The ID of this server in logs and errors; by default 12 random hexadecimal digits.
            server_version: A version for your own use; the server does not send it.
            protocol_version: A version for your own use; the server does not send it.
            enable_describe: Whether to answer ``__describe__``, which ``introspect`` calls.
            ipc_validation: A level for your own checks of batches. The core always validates received batches in
                full.
            dialect: "spec" or "0.10", by default that of the environment variable PENSTOCK_VGI_DIALECT, else "spec".

        Raises:
            TypeError: If the implementation does not fit the protocol; the message lists all differences.
            ValueError: If the dialect is unknown.
        """
        self._protocol = protocol
        self._implementation = implementation
        self._external = external_location
        self._methods = rpc_methods(protocol)
        self._ctx_methods = _check_implementation(protocol, implementation, self._methods)
        self._values: Mapping[str, Values] = method_values(self._methods)
        self._server_id = server_id or secrets.token_hex(6)
        self._server_version = server_version
        self._protocol_version = protocol_version
        self._describe = enable_describe
        self._validation = ipc_validation
        self.dialect: Dialect = check_dialect(dialect)
        """The dialect that the server follows."""
        self.hooks: list[DispatchHook] = []
        """The hooks that observe every call; ``otel.instrument_server`` adds one."""
        self._lock = threading.Lock()
        self._core: tuple[int, _core.VgiProtocol, _core.VgiServer] | None = None
        self._calls: weakref.WeakKeyDictionary[object, PipeCalls] = weakref.WeakKeyDictionary()

    def with_options(self, *, enable_describe: bool = False, dialect: str | None = None) -> Self:
        """Return a copy of this server with other options. The copy has everything else, the hooks included.

        Args:
            enable_describe: Whether the copy answers ``__describe__`` even if this server does not.
            dialect: The dialect of the copy; by default that of this server.

        Raises:
            ValueError: If the dialect is unknown.
        """
        made = copy.copy(self)
        made._describe = self._describe or enable_describe
        made.dialect = check_dialect(dialect or self.dialect)
        made.hooks = list(self.hooks)
        # The core's server has the options in it, and so have its connections.
        made._lock = threading.Lock()
        made._core = None
        made._calls = weakref.WeakKeyDictionary()
        return made

    @property
    def core(self) -> "_core.VgiServer":
        """The core's server. It belongs to one process; a forked process makes its own."""
        return self._native()[2]

    @property
    def core_protocol(self) -> "_core.VgiProtocol":
        """The core's description of the service."""
        return self._native()[1]

    def _native(self) -> "tuple[int, _core.VgiProtocol, _core.VgiServer]":
        with self._lock:
            if self._core is None or self._core[0] != os.getpid():
                protocol = core_protocol(self.protocol_name, self._values)
                server = _core.VgiServer(
                    protocol,
                    server_id=self._server_id,
                    dialect=self.dialect,
                    describe=self._describe,
                    external=core_external(self._external),
                )
                self._core = (os.getpid(), protocol, server)
            return self._core

    @property
    def protocol(self) -> type:
        """The service's protocol."""
        return self._protocol

    @property
    def methods(self) -> Mapping[str, RpcMethodInfo]:
        """The service's methods by name."""
        return self._methods

    @property
    def values(self) -> Mapping[str, Values]:
        """The converters between each method's Python values and the core's, by method name."""
        return self._values

    @property
    def implementation(self) -> object:
        """The object with the service's methods."""
        return self._implementation

    @property
    def external_config(self) -> "ServerExternalConfig | None":
        """The configuration of external batches; None if none are stored or fetched."""
        return self._external

    @property
    def ctx_methods(self) -> frozenset[str]:
        """The names of the methods that receive a CallContext."""
        return self._ctx_methods

    @property
    def protocol_name(self) -> str:
        """The name of the protocol's class."""
        return self._protocol.__name__

    @property
    def protocol_hash(self) -> str:
        """The hash of the methods' description in ``__describe__``; equal services have equal hashes."""
        return self.core_protocol.hash

    @property
    def protocol_version(self) -> str:
        """The ``protocol_version`` of the constructor."""
        return self._protocol_version

    @property
    def server_id(self) -> str:
        """The ID of this server: 12 random hexadecimal digits unless one was given."""
        return self._server_id

    @property
    def server_version(self) -> str:
        """The ``server_version`` of the constructor."""
        return self._server_version

    @property
    def describe_enabled(self) -> bool:
        """Whether the server answers ``__describe__``."""
        return self._describe

    @property
    def ipc_validation(self) -> IpcValidation:
        """The ``ipc_validation`` of the constructor."""
        return self._validation

    def serve(self, transport: "RpcTransport") -> None:
        """Answer the calls on a transport until the peer closes its end."""
        calls = self._calls_of(transport)
        try:
            while calls.serve_one():
                pass
        finally:
            # The core has descriptors of its own, which hold the connection open.
            with self._lock:
                self._calls.pop(transport, None)

    def serve_one(self, transport: "RpcTransport") -> None:
        """Answer one call; raise EOFError if the peer has closed its end."""
        if not self._calls_of(transport).serve_one():
            raise EOFError("the peer closed the connection")

    def _calls_of(self, transport: "RpcTransport") -> PipeCalls:
        # One per transport, because it holds the bytes that were read ahead of the next call.
        with self._lock:
            found = self._calls.get(transport)
        if found is None:
            from penstock.vgi.rpc._transport import beside, endpoints

            limits = {name: getattr(transport, name, None) for name in ("first_byte", "idle")}
            connection = self.core.connection(*endpoints(transport), **beside(transport), **limits)
            found = PipeCalls(self, connection)
            with self._lock:
                self._calls[transport] = found
        return found


def _check_implementation(
    protocol: type, implementation: object, methods: Mapping[str, RpcMethodInfo]
) -> frozenset[str]:
    """Return the names of the methods with a parameter ``ctx``; raise TypeError if the implementation does not fit."""
    wrong, contextual = [], set()
    for name, info in methods.items():
        function = getattr(implementation, name, None)
        if not callable(function):
            wrong.append(f"{name}() is missing")
            continue
        parameters = inspect.signature(function).parameters
        anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        if "ctx" in parameters and "ctx" not in info.param_types:
            contextual.add(name)
        wrong += [
            f"{name}() lacks the parameter {each!r}"
            for each in info.param_types
            if not (anything or (each in parameters and parameters[each].kind is not inspect.Parameter.POSITIONAL_ONLY))
        ]
        wrong += [
            f"{name}() requires {each.name!r}, which {protocol.__name__} does not have"
            for each in parameters.values()
            if each.default is each.empty
            and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
            and each.name not in info.param_types
            and each.name != "ctx"
        ]
    if wrong:
        raise TypeError(f"{type(implementation).__name__} does not implement {protocol.__name__}: {'; '.join(wrong)}")
    return frozenset(contextual)


def result_states(function: Any) -> tuple[type, ...]:
    """Return the state classes that a streaming method's own return annotation names."""
    from typing import get_type_hints

    from penstock.vgi.rpc._types import Stream, StreamState

    returns = get_type_hints(function).get("return")
    if getattr(returns, "__origin__", None) is not Stream:
        return ()
    state = get_args(returns)[0]
    arms = get_args(state) or (state,)
    return tuple(each for each in arms if isinstance(each, type) and issubclass(each, StreamState))
