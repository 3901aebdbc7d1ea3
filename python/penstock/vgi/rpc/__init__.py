"""Servers, callers and transports of vgi-rpc."""

from penstock.vgi.rpc._batches import AnnotatedBatch, OutputCollector
from penstock.vgi.rpc._client import RpcConnection, StreamSession
from penstock.vgi.rpc._common import (
    DESCRIBE_METHOD_NAME,
    REQUEST_VERSION,
    AuthContext,
    CallContext,
    CallStatistics,
    ClientLog,
    DispatchHook,
    HookToken,
    MethodType,
    RpcError,
    VersionError,
)
from penstock.vgi.rpc._run import run_server
from penstock.vgi.rpc._server import RpcServer
from penstock.vgi.rpc._serving import (
    connect,
    serve_pipe,
    serve_stdio,
    serve_tcp,
    serve_unix,
    serve_unix_pipe,
    tcp_connect,
    unix_connect,
)
from penstock.vgi.rpc._transport import (
    PipeTransport,
    RpcTransport,
    StderrMode,
    SubprocessTransport,
    UnixTransport,
    make_pipe_pair,
    make_unix_pair,
)
from penstock.vgi.rpc._types import (
    ExchangeState,
    ProducerState,
    RpcMethodInfo,
    Stream,
    StreamState,
    describe_rpc,
    rpc_methods,
)

__all__ = [
    "DESCRIBE_METHOD_NAME",
    "REQUEST_VERSION",
    "AnnotatedBatch",
    "AuthContext",
    "CallContext",
    "CallStatistics",
    "ClientLog",
    "DispatchHook",
    "ExchangeState",
    "HookToken",
    "MethodType",
    "OutputCollector",
    "PipeTransport",
    "ProducerState",
    "RpcConnection",
    "RpcError",
    "RpcMethodInfo",
    "RpcServer",
    "RpcTransport",
    "StderrMode",
    "Stream",
    "StreamSession",
    "StreamState",
    "SubprocessTransport",
    "UnixTransport",
    "VersionError",
    "connect",
    "describe_rpc",
    "make_pipe_pair",
    "make_unix_pair",
    "rpc_methods",
    "run_server",
    "serve_pipe",
    "serve_stdio",
    "serve_tcp",
    "serve_unix",
    "serve_unix_pipe",
    "tcp_connect",
    "unix_connect",
]
