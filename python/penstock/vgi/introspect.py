"""The descriptions of servers: ``__describe__`` (vgi-rpc, section 14), in both dialects."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock import _core
from penstock.vgi.metadata import (
    DESCRIBE_VERSION_KEY,
    PROTOCOL_HASH_KEY,
    PROTOCOL_NAME_KEY,
    REQUEST_VERSION_KEY,
    SERVER_ID_KEY,
)
from penstock.vgi.rpc._client import transport_errors
from penstock.vgi.rpc._common import DESCRIBE_METHOD_NAME, MethodType, RpcError
from penstock.vgi.rpc._methods import core_protocol, method_values
from penstock.vgi.rpc._transport import RpcTransport, beside, endpoints
from penstock.vgi.rpc._types import RpcMethodInfo
from penstock.vgi.utils import IpcValidation, validate_batch

__all__ = [
    "DESCRIBE_METHOD_NAME",
    "DESCRIBE_VERSION",
    "MethodDescription",
    "ServiceDescription",
    "build_describe_batch",
    "compute_protocol_hash",
    "introspect",
    "parse_describe_batch",
]

DESCRIBE_VERSION: Final = _core.VgiProtocol.DESCRIBE_VERSION
"""The version of descriptions in the dialect "0.10"; in the dialect "spec" it is "2"."""


@dataclass(frozen=True)
class MethodDescription:
    """The description of a method by its server."""

    name: str
    method_type: MethodType
    has_return: bool
    params_schema: pa.Schema
    result_schema: pa.Schema
    has_header: bool = False
    header_schema: pa.Schema | None = None
    is_exchange: bool | None = None
    """Whether a stream accepts input batches; None for a unary method, or if the description lacks it."""
    doc: str | None = None
    """The docstring; None from servers of the dialect "0.10"."""
    param_types: Mapping[str, str] = field(default_factory=dict)
    param_defaults: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceDescription:
    """The description of a service by its server."""

    protocol_name: str
    request_version: str
    describe_version: str
    protocol_hash: str
    server_id: str
    methods: Mapping[str, MethodDescription]

    def __str__(self) -> str:
        """Return a readable summary of the service and its methods."""
        lines = [f"RPC Service: {self.protocol_name}", f"  server_id: {self.server_id}"]
        lines.append(f"  describe_version: {self.describe_version}")
        for method in self.methods.values():
            lines += ["", f"  {method.name}({method.method_type.value})"]
            lines.append(f"    params: {_line(method.params_schema)}")
            if method.has_return:
                lines.append(f"    returns: {_line(method.result_schema)}")
            if method.header_schema is not None:
                lines.append(f"    header: {_line(method.header_schema)}")
            if method.doc:
                lines.append(f"    doc: {' '.join(method.doc.split())}")
        return "\n".join(lines)


def _line(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name}: {each.type}{'' if each.nullable else ' not null'}" for each in schema) or "none"


def introspect(transport: RpcTransport, ipc_validation: IpcValidation = IpcValidation.FULL) -> ServiceDescription:
    """Request the description of the server at the other end of a transport.

    Raises:
        RpcError: If the server does not answer ``__describe__``, or its description cannot be read.
        IPCError: If the batch with the description is invalid.

    ```python
    >>> import threading
    >>> from typing import Protocol
    >>> from penstock.vgi import RpcServer, introspect, make_pipe_pair
    >>> class Clock(Protocol):
    ...     def now(self) -> float: ...
    >>> class ClockImpl:
    ...     def now(self) -> float:
    ...         return 0.0
    >>> ours, theirs = make_pipe_pair()
    >>> server = RpcServer(Clock, ClockImpl(), enable_describe=True)
    >>> thread = threading.Thread(target=server.serve, args=(theirs,))
    >>> thread.start()
    >>> list(introspect(ours).methods)
    ['now']
    >>> ours.close()
    >>> thread.join()

    ```
    """
    client = _core.VgiClient(_core.VgiProtocol("", []), *endpoints(transport), **beside(transport))
    with transport_errors(DESCRIBE_METHOD_NAME):
        batch, metadata = client.describe()
    validate_batch(batch, ipc_validation)
    return parse_describe_batch(batch, pa.KeyValueMetadata(metadata))


def build_describe_batch(
    protocol_name: str, methods: Mapping[str, RpcMethodInfo], server_id: str
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata]:
    """Return the batch and the metadata with which a server of the dialect "0.10" answers ``__describe__``."""
    protocol = core_protocol(protocol_name, method_values(methods))
    batch, metadata = protocol.describe("0.10", server_id)
    return batch, pa.KeyValueMetadata(metadata)


def compute_protocol_hash(protocol_name: str, batch: pa.RecordBatch) -> str:
    """Return the hash of the methods in a description of version 4, as 64 hexadecimal digits."""
    return _core.vgi_description_hash(protocol_name, batch)


def parse_describe_batch(
    batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None = None
) -> ServiceDescription:
    """Parse a description of either dialect; raise RpcError if the batch is not one."""
    said = {key: value.decode("utf-8", "replace") for key, value in dict(custom_metadata or {}).items()}
    try:
        methods = [_method(row) for row in batch.to_pylist()]
    except (KeyError, ValueError, pa.ArrowInvalid) as error:
        raise RpcError("ProtocolError", f"the description cannot be read: {error}", "") from error
    return ServiceDescription(
        protocol_name=said.get(PROTOCOL_NAME_KEY, ""),
        request_version=said.get(REQUEST_VERSION_KEY, ""),
        describe_version=said.get(DESCRIBE_VERSION_KEY, ""),
        protocol_hash=said.get(PROTOCOL_HASH_KEY, ""),
        server_id=said.get(SERVER_ID_KEY, ""),
        methods={method.name: method for method in methods},
    )


def _method(row: dict[str, Any]) -> MethodDescription:
    header = row["header_schema_ipc"]
    return MethodDescription(
        name=row["name"],
        method_type=MethodType(row["method_type"]),
        has_return=row["has_return"],
        params_schema=_schema(row["params_schema_ipc"]),
        result_schema=_schema(row["result_schema_ipc"]),
        has_header=row["has_header"],
        header_schema=None if header is None else _schema(header),
        is_exchange=row.get("is_exchange"),
        doc=row.get("doc"),
        param_types=json.loads(row.get("param_types_json") or "{}"),
        param_defaults=json.loads(row.get("param_defaults_json") or "{}"),
    )


def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))
