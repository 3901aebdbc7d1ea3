"""``penstock vgi``: serve Arrow functions, describe a server, and call its methods."""

import json
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import urlsplit

import typer

from penstock.cli._logging import LogFormatOption, LogLevelOption, configure
from penstock.cli._serving import MetricsOption, listening
from penstock.cli._trust import CaOption, CertOption, FingerprintOption, KeyOption, SystemCaOption, trust

if TYPE_CHECKING:
    from penstock.vgi import RpcServer

__all__ = ["register"]

commands = typer.Typer(
    name="vgi", help="Serve Arrow functions to other processes, and call them.", no_args_is_help=True
)

_Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="URL, unix:PATH, tcp:HOST:PORT, or a worker command in quotes.")
]


def _check_dialect(value: str | None) -> str | None:
    if value not in (None, "spec", "0.10"):
        raise typer.BadParameter('must be "spec" or "0.10"')
    return value


def _serve(
    service: Annotated[
        str, typer.Argument(metavar="MODULE:SERVICE", help="RpcServer, function that returns one, or implementation.")
    ],
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve on standard input and output.")] = False,
    unix: Annotated[str | None, typer.Option(metavar="PATH", help="Serve on a Unix socket; prints UNIX:PATH.")] = None,
    tcp: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve on TCP; prints TCP:HOST:PORT.", callback=listening)
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve HTTP; prints PORT:N.")] = False,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address for HTTP to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="Port for HTTP; 0 picks a free port.")] = 0,
    cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Server certificate (PEM), for TLS over HTTP or TCP; default: no TLS."),
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key for --cert (PEM).")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Require client certificates signed by this CA (PEM).")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File of HTTP clients to accept, one NAME TOKEN per line; default: all.",
        ),
    ] = None,
    access_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="File to which each call is appended as a JSON line; default: none."
        ),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            metavar="spec|0.10",
            help="Follow the specification, or vgi-rpc 0.10.0 exactly; default: $PENSTOCK_VGI_DIALECT, else spec.",
            callback=_check_dialect,
        ),
    ] = None,
    describe: Annotated[bool, typer.Option("--describe", help="Answer __describe__ calls.")] = False,
    metrics: MetricsOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Serve the methods of a service."""
    _check_where([stdio, unix is not None, tcp is not None, http], http, tokens)
    _check_certificates(http or tcp is not None, cert, key, client_ca)
    configure(log_level, log_format)
    authenticate = None if tokens is None else _authenticate(tokens)
    with _server(service, describe, dialect, access_log, metrics) as server:
        if http:
            _serve_http(server, host, port, cert=cert, key=key, client_ca=client_ca, authenticate=authenticate)
        else:
            _serve_pipe(server, unix, tcp, cert, key, client_ca)


def _check_where(said: list[bool], http: bool, tokens: Path | None) -> None:
    if said.count(True) != 1:
        raise typer.BadParameter("give exactly one of --stdio, --unix PATH, --tcp HOST:PORT and --http")
    if tokens is not None and not http:
        raise typer.BadParameter("--tokens requires --http")


def _check_certificates(possible: bool, cert: Path | None, key: Path | None, client_ca: Path | None) -> None:
    if cert is not None and not possible:
        raise typer.BadParameter("--cert requires --http or --tcp")
    if (cert is None) != (key is None) or (cert is None and client_ca is not None):
        raise typer.BadParameter("--cert and --key must be used together, and --client-ca requires both")


@contextmanager
def _server(
    service: str, describe: bool, dialect: str | None, access_log: Path | None, metrics: str | None
) -> "Iterator[RpcServer]":
    """Yield the server with its logs and metrics. SIGTERM and SIGINT stop it."""
    from penstock.vgi._loading import load_server
    from penstock.vgi.rpc._run import log_accesses

    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    # The service's module may be in the working folder.
    sys.path.insert(0, "")
    if access_log is not None:
        log_accesses(access_log)
    server = load_server(service, describe=describe, dialect=dialect)
    endpoint = None if metrics is None else server.core.metrics(metrics)

    def stop(*_: object) -> NoReturn:
        if endpoint is not None:
            endpoint.stopping()
        raise typer.Exit

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        yield server
    finally:
        if endpoint is not None:
            endpoint.close()


def _serve_http(server: "RpcServer", host: str, port: int, **options: Any) -> None:
    from penstock.vgi.http import serve_http

    serve_http(server, host=host, port=port, **options)


def _serve_pipe(
    server: "RpcServer",
    unix: str | None,
    tcp: str | None,
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None,
) -> None:
    from penstock.vgi.rpc import serve_stdio, serve_tcp, serve_unix

    if unix is not None:
        serve_unix(server, unix, threaded=True, announce=lambda: print(f"UNIX:{unix}", flush=True))  # noqa: T201
    elif tcp is not None:
        host, _, port = tcp.rpartition(":")
        serve_tcp(server, host.strip("[]"), int(port), cert=cert, key=key, client_ca=client_ca)
    else:
        serve_stdio(server)


def _authenticate(tokens: Path) -> Any:
    """Return the authentication with the tokens of a file. Errors name only the line, never a token."""
    from penstock.vgi import AuthContext
    from penstock.vgi.http import bearer_authenticate_static

    known = {}
    for number, line in enumerate(tokens.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 2:
            raise typer.BadParameter(f"{tokens}, line {number}: expected NAME TOKEN")
        known[words[1]] = AuthContext("bearer", True, words[0])
    if not known:
        raise typer.BadParameter(f"{tokens} contains no tokens")
    return bearer_authenticate_static(tokens=known)


def _stop(*_: object) -> NoReturn:
    raise typer.Exit


_TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="File with the client's bearer token, for http:// and https://.",
    ),
]


def _trusted(
    target: str,
    fingerprint: str | None,
    ca: Path | None,
    system_ca: bool,
    cert: Path | None,
    key: Path | None,
    token: Path | None,
) -> Mapping[str, Any]:
    """Return the trust and the token of a caller; reject plain connections to other machines."""
    trusted = _trust_of(target, fingerprint, ca, system_ca, cert, key)
    if token is None:
        return trusted
    if not target.startswith(("http://", "https://")):
        raise typer.BadParameter("--token-file requires http:// or https://")
    return {**trusted, "headers": {"Authorization": f"Bearer {token.read_text().strip()}"}}


def _trust_of(
    target: str, fingerprint: str | None, ca: Path | None, system_ca: bool, cert: Path | None, key: Path | None
) -> Mapping[str, Any]:
    from penstock._addresses import is_local

    if target.startswith("https://"):
        return trust(fingerprint, ca, system_ca, cert, key)
    if system_ca or any(each is not None for each in (fingerprint, ca, cert, key)):
        if target.startswith("tcp:"):
            return trust(fingerprint, ca, system_ca, cert, key)
        raise typer.BadParameter("--fingerprint, --ca, --system-ca, --cert and --key require https:// or tcp:")
    if target.startswith(("http://", "tcp:")):
        place = target.removeprefix("tcp:") if target.startswith("tcp:") else urlsplit(target).netloc
        if not is_local(place if re.search(r":\d+$", place) else f"{place}:80"):
            raise typer.BadParameter(
                f"{place} is not on this machine: use https:// or tcp: with --fingerprint, --ca or --system-ca"
            )
    return {}


def _describe(
    target: _Target,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
    token: _TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per method.")] = False,
) -> None:
    """Print the methods of a server, which must answer __describe__."""
    from penstock.vgi._targets import open_target

    trusted = _trusted(target, fingerprint, ca, system_ca, cert, key, token)
    with open_target(target, trusted) as opened:
        about = opened.description
        if not as_json:
            typer.echo(str(about))
            return
        for method in about.methods.values():
            said = {
                "protocol": about.protocol_name,
                "name": method.name,
                "type": method.method_type.value,
                "params": {each.name: str(each.type) for each in method.params_schema},
                "result": str(method.result_schema.field(0).type) if method.has_return else None,
                "header": method.has_header,
                "exchange": method.is_exchange,
                "doc": method.doc,
            }
            typer.echo(json.dumps(said))


def _call(
    target: _Target,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="Method to call.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="Arguments of the method; a value that is not JSON is a string."),
    ] = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
    token: _TokenOption = None,
) -> None:
    """Call a method and print its result, or the rows of its stream, as JSON lines.

    An exchange reads JSON lines or an Arrow IPC stream from standard input. What the method logs goes to standard
    error.
    """
    from penstock.vgi._targets import log_line, open_target

    values = dict(_argument(each) for each in arguments or ())
    trusted = _trusted(target, fingerprint, ca, system_ca, cert, key, token)
    with open_target(target, trusted) as opened:
        said = opened.call(method, values, _input(), lambda message: typer.echo(log_line(message), err=True))
        for row in said:
            typer.echo(json.dumps(row, default=str))


def _argument(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"expected NAME=VALUE, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _input() -> Iterator[Any]:
    """Yield the input of an exchange: the batches of an Arrow stream, or a row for each line of JSON."""
    if sys.stdin.isatty():
        return
    source = open(0, "rb", closefd=False)  # noqa: SIM115 -- standard input, with peek
    # These bytes begin an Arrow stream, and cannot begin JSON.
    if source.peek(4)[:4] == b"\xff\xff\xff\xff":
        import pyarrow as pa

        try:
            with pa.ipc.open_stream(source) as stream:
                yield from stream
        except pa.ArrowInvalid as error:
            raise typer.BadParameter(f"the input is not a valid Arrow stream: {error}") from None
        return
    for number, line in enumerate(source, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise typer.BadParameter(f"line {number} of the input is not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise typer.BadParameter(f"line {number} of the input is not a JSON object")
            yield row


def register(app: typer.Typer) -> None:
    """Add ``penstock vgi``."""
    commands.command("serve")(_serve)
    commands.command("describe")(_describe)
    commands.command("call")(_call)
    app.add_typer(commands)
