"""Calls to a server by its description, without the Python code of its service; the command line uses them."""

import contextlib
import itertools
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi.http._client import http_introspect
from penstock.vgi.introspect import MethodDescription, ServiceDescription, introspect
from penstock.vgi.log import Message
from penstock.vgi.rpc._client import on_log_adapter, transport_errors
from penstock.vgi.rpc._common import MethodType
from penstock.vgi.rpc._methods import simple
from penstock.vgi.rpc._transport import RpcTransport, SubprocessTransport, UnixTransport, beside, endpoints
from penstock.vgi.utils import deserialize_record_batch

__all__ = ["Target", "open_target"]


class Target:
    """A server and its description."""

    def __init__(
        self, description: ServiceDescription, place: RpcTransport | str, trust: Mapping[str, Any] | None = None
    ) -> None:
        """Call over a transport or at a URL.

        Args:
            description: The description of the server.
            place: The transport, or the URL.
            trust: For a URL, the arguments of ``http_connect`` about trust, and ``headers``.
        """
        self.description = description
        self._place, self._trust = place, trust or {}

    def call(
        self,
        method: str,
        arguments: Mapping[str, Any],
        rows: Iterable[Mapping[str, Any] | pa.RecordBatch],
        on_log: Any,
    ) -> Iterator[dict[str, Any]]:
        """Call a method, and yield its result or the rows of its stream.

        Args:
            method: The name of the method.
            arguments: Its arguments by name.
            rows: The input of an exchange: batches, or rows of which each becomes a batch. A stream without input is
                read as a producer.
            on_log: Called with each log message of the server; None drops them.

        Raises:
            VgiError: If the server has no such method, or the arguments or rows do not fit it.
        """
        about = self.description.methods.get(method)
        if about is None:
            known = ", ".join(self.description.methods)
            raise VgiError(f"{self.description.protocol_name} has no method {method!r}; it has {known}", "misuse")
        client = self._client(about, on_log)
        values = _encode(about, arguments)
        with transport_errors(f"{method}()"):
            if about.method_type is MethodType.UNARY:
                value = client.call(method, values, None)
                if about.has_return:
                    yield {"result": _shown(value[0].as_py() if isinstance(value, pa.Array) else value)}
                return
            stream = client.open(method, values, None)
            if about.has_header:
                yield {"__header__": _shown(stream.header().to_pylist()[0])}
            yield from _rows(stream, about, rows)

    def _client(self, about: MethodDescription, on_log: Any) -> Any:
        protocol = _core.VgiProtocol(self.description.protocol_name, [_core_method(about)])
        adapted = on_log_adapter(on_log)
        if isinstance(self._place, str):
            options = {**self._trust, "headers": list(self._trust.get("headers", {}).items())}
            return _core.VgiHttpClient(protocol, self._place, on_log=adapted, compression_level=3, **options)
        return _core.VgiClient(protocol, *endpoints(self._place), **beside(self._place), on_log=adapted)


def _rows(
    stream: Any, about: MethodDescription, rows: Iterable[Mapping[str, Any] | pa.RecordBatch]
) -> Iterator[dict[str, Any]]:
    given = iter(()) if about.is_exchange is False else iter(rows)
    first = next(given, None)
    if first is None and about.is_exchange is not True:
        while (item := stream.tick()) is not None:
            yield from (_shown(row) for row in item[0].to_pylist())
    elif first is not None:
        # All batches of a stream have the schema of the first one.
        began = _batch(first, None)
        for batch in itertools.chain([began], (_batch(each, began.schema) for each in given)):
            answer, _ = stream.exchange(batch, None)
            yield from (_shown(each) for each in answer.to_pylist())
    stream.close()


def _batch(given: Mapping[str, Any] | pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    if isinstance(given, pa.RecordBatch):
        return given
    try:
        return pa.RecordBatch.from_pylist([dict(given)], schema=schema)
    except (pa.ArrowTypeError, ValueError, OverflowError) as error:
        those = "Arrow" if schema is None else "the previous rows"
        raise VgiError(f"a row of the input does not match {those}: {error}", "misuse") from error


def _core_method(about: MethodDescription) -> dict[str, Any]:
    return {
        "name": about.name,
        "kind": about.method_type.value,
        "params": about.params_schema,
        "result": about.result_schema,
        "optional": list(about.param_defaults),
        "nulls": about.params_schema.names,
        "header": about.header_schema,
        "is_exchange": about.is_exchange,
        "has_return": about.has_return,
        "doc": about.doc,
        "param_types": "{}",
        "param_defaults": "{}",
    }


def _encode(about: MethodDescription, arguments: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(arguments) - set(about.params_schema.names)
    if unknown:
        takes = ", ".join(about.params_schema.names) or "nothing"
        raise VgiError(f"{about.name}() has no parameter {', '.join(sorted(unknown))}; it takes {takes}", "misuse")
    values: dict[str, Any] = {}
    for each in about.params_schema:
        if each.name not in arguments and each.name not in about.param_defaults:
            if not each.nullable:
                raise VgiError(f"{about.name}() requires {each.name}: {each.type}", "misuse")
            values[each.name] = None
            continue
        value = arguments.get(each.name, about.param_defaults.get(each.name))
        values[each.name] = _fitting(each, value)
    return values


def _fitting(field: pa.Field, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_map(field.type) and isinstance(value, dict):
        value = list(value.items())
    if (pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)) and isinstance(value, str):
        value = value.encode()
    if pa.types.is_string(field.type) and not isinstance(value, str):
        # On a command line, the value looked like a number.
        value = str(value)
    try:
        array = pa.array([value], field.type)
    except (pa.ArrowTypeError, ValueError, OverflowError) as error:
        raise VgiError(f"{field.name} is {field.type}: {error}", "misuse") from error
    return array[0].as_py() if simple(field.type) else array


def _shown(value: Any) -> Any:
    """Convert a value for JSON; a serialized dataclass becomes a dict of its fields."""
    if isinstance(value, dict):
        return {key: _shown(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    if isinstance(value, bytes):
        if value[:4] == b"\xff\xff\xff\xff":
            with contextlib.suppress(Exception):
                return _shown(deserialize_record_batch(value)[0].to_pylist()[0])
        return value.decode("utf-8", "backslashreplace")
    return value


@contextlib.contextmanager
def open_target(target: str, trust: Mapping[str, Any] | None = None) -> Iterator[Target]:
    """Connect to a server and request its description.

    Args:
        target: A URL, ``unix:PATH``, ``tcp:HOST:PORT``, or the command of a worker.
        trust: For https:// and tcp:, the arguments of ``http_connect`` about trust; for a URL also ``headers``.
    """
    if target.startswith(("http://", "https://")):
        yield Target(http_introspect(target, **(trust or {})), target, trust)
        return
    transport = _transport(target, trust)
    try:
        description = introspect(transport)
        if trust:
            # A TLS session belongs to one client of the core, so calls need a new connection.
            transport.close()
            transport = _transport(target, trust)
        yield Target(description, transport)
    finally:
        transport.close()


def _transport(target: str, trust: Mapping[str, Any] | None) -> RpcTransport:
    if target.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = target.removeprefix("unix:")
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            raise VgiError(f"{path}: {error.strerror}: is its server running?", "io") from error
        return UnixTransport(connection)
    if target.startswith("tcp:"):
        place, _, port = target.removeprefix("tcp:").rpartition(":")
        host = place.strip("[]")
        if not host or not port.isdecimal():
            raise VgiError(f"{target!r} is not tcp:HOST:PORT", "misuse")
        tls = _core.VgiTls.client(host, **trust) if trust else None
        try:
            connection = socket.create_connection((host, int(port)))
        except OSError as error:
            raise VgiError(f"{place}:{port}: {error.strerror or error}: is its server running?", "io") from error
        return UnixTransport(connection, tls)
    command = shlex.split(target)
    try:
        return SubprocessTransport(command)
    except OSError as error:
        raise VgiError(f"the worker {command[0]!r} cannot be started: {error.strerror}", "io") from error


def log_line(message: Message) -> str:
    """Return a log message as one line."""
    return f"{message.level.value}: {message.message}"
