"""The command line of a worker."""

import argparse
import logging
import os
import signal
from typing import NoReturn

from penstock.vgi.rpc._server import RpcServer
from penstock.vgi.rpc._serving import serve_stdio, serve_tcp, serve_unix

__all__ = ["log_accesses", "run_server"]


def run_server(protocol_or_server: "type | RpcServer", implementation: object | None = None) -> None:
    """Serve as this process's command line specifies; call it as the last line of a worker.

    Without flags it serves on standard input and output. ``--http`` serves HTTP and prints ``PORT:<n>``; ``--tcp``
    serves on TCP and prints ``TCP:<host>:<port>``; both accept ``--host`` and ``--port``. ``--unix PATH`` serves on a
    Unix socket and prints ``UNIX:<path>``. ``--describe`` answers ``__describe__``, ``--access-log PATH`` appends one
    line of JSON per call to a file, and ``--dialect spec|0.10`` selects the dialect.

    Args:
        protocol_or_server: The service, a ``typing.Protocol``, or a server of it.
        implementation: The object with the service's methods; None with a server.

    Raises:
        TypeError: If the implementation is missing, does not fit the protocol, or is given with a server.
    """
    options = _parser().parse_args()
    if isinstance(protocol_or_server, RpcServer):
        if implementation is not None:
            raise TypeError("an RpcServer already has its implementation")
        server = protocol_or_server
        if options.describe or options.dialect:
            server = server.with_options(enable_describe=options.describe, dialect=options.dialect)
    elif implementation is None:
        raise TypeError("run_server(protocol, implementation): the implementation is missing")
    else:
        server = RpcServer(
            protocol_or_server, implementation, enable_describe=options.describe, dialect=options.dialect
        )
    if options.access_log:
        log_accesses(options.access_log)
    if options.http:
        from penstock.vgi.http import serve_http

        # Exit with an exception, so that running calls finish first.
        signal.signal(signal.SIGTERM, _stop)
        signal.signal(signal.SIGINT, _stop)
        serve_http(server, host=options.host, port=options.port)
    elif options.unix:
        # A client finds the server by this line, so it is printed once the server listens.
        where = options.unix
        serve_unix(server, where, threaded=True, announce=lambda: print(f"UNIX:{where}", flush=True))  # noqa: T201
    elif options.tcp:
        serve_tcp(server, options.host, options.port)
    else:
        serve_stdio(server)


def _stop(*_: object) -> NoReturn:
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Serve vgi-rpc calls.", allow_abbrev=False)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--http", action="store_true", help="serve HTTP, and print PORT:<n>")
    where.add_argument("--unix", metavar="PATH", help="serve on a Unix socket, and print UNIX:<path>")
    where.add_argument("--tcp", action="store_true", help="serve on plain TCP, and print TCP:<host>:<port>")
    parser.add_argument("--host", default="127.0.0.1", help="address for HTTP or TCP to listen on")
    parser.add_argument("--port", type=int, default=0, help="port for HTTP or TCP; 0 picks a free port")
    parser.add_argument("--describe", action="store_true", help="answer __describe__ calls")
    parser.add_argument("--access-log", metavar="PATH", help="file to which each call is appended as a JSON line")
    parser.add_argument(
        "--dialect", choices=("spec", "0.10"), help="dialect of the protocol; default: $PENSTOCK_VGI_DIALECT, else spec"
    )
    return parser


def log_accesses(path: "str | os.PathLike[str]") -> None:
    """Append one line of JSON per call to a file."""
    from penstock.vgi.logging_utils import VgiJsonFormatter

    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(VgiJsonFormatter())
    logger = logging.getLogger("vgi_rpc.access")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Standard output carries the protocol, and standard error is not the place for an access log.
    logger.propagate = False
