"""`penstock vgi serve|describe|call`, and the flags of a worker of the user's own."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from worker import Service, ServiceImpl

from penstock import cli
from penstock.tls import write_certificates
from penstock.vgi import (
    AnnotatedBatch,
    ExternalLocationConfig,
    RpcServer,
    http_connect,
    make_sync_client,
    run_server,
)
from penstock.vgi._loading import load_server
from penstock.vgi.file import FileStorage
from penstock.vgi.rpc import HookToken, serve_unix
from penstock.vgi.utils import IpcValidation

HERE = Path(__file__).parent
PENSTOCK = [sys.executable, "-m", "penstock", "vgi"]
SOCKET = "SOCKET"
WORKER = f"{sys.executable} {HERE / 'worker.py'} --describe"


class Said(NamedTuple):
    stdout: bytes
    stderr: bytes


@pytest.fixture
def vgi(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Said]]:
    """Runs a command in this process, with what is given on its standard input."""
    monkeypatch.chdir(HERE)
    stdin = os.dup(0)

    def run(*arguments: str, given: bytes = b"", status: int = 0) -> Said:
        (tmp_path / "stdin").write_bytes(given)
        with (tmp_path / "stdin").open("rb") as file:
            os.dup2(file.fileno(), 0)
        monkeypatch.setattr(sys, "argv", ["penstock", "vgi", *arguments])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = Said(*capfdbinary.readouterr())
        assert (ended.value.code or 0) == status, said.stderr.decode()
        return said

    yield run
    os.dup2(stdin, 0)
    os.close(stdin)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Unix socket that threads of this process serve."""
    path, ready = str(tmp_path_factory.mktemp("commands") / "socket"), threading.Event()
    server = RpcServer(Service, ServiceImpl(), enable_describe=True)
    serving = {"threaded": True, "announce": ready.set}
    threading.Thread(target=serve_unix, args=(server, path), kwargs=serving, daemon=True).start()
    assert ready.wait(30)
    return f"unix:{path}"


def alone(*arguments: str, status: int) -> Said:
    """Run a command in a process of its own, whose logging and signals it sets."""
    done = subprocess.run([*PENSTOCK, *arguments], capture_output=True, cwd=HERE, check=False)
    assert done.returncode == status, done.stderr.decode()
    return Said(done.stdout, done.stderr)


def rows(done: Said) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def serving(*arguments: str, command: list[str] | None = None) -> Iterator[str]:
    """A server; gives the line that says where it listens."""
    command = command or [*PENSTOCK, "serve", "worker:ServiceImpl", "--describe"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, cwd=HERE) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def test_a_worker_is_described_and_called_by_its_command(vgi: Callable[..., Said]) -> None:
    said = {str(each["name"]): each for each in rows(vgi("describe", WORKER, "--json"))}
    assert said["add"]["params"] == {"a": "double", "b": "double"}
    assert said["add"]["result"] == "double"
    assert (said["count_with"]["type"], said["count_with"]["header"]) == ("stream", True)
    assert b"add(unary)" in vgi("describe", WORKER).stdout
    assert rows(vgi("call", WORKER, "add", "a=1")) == [{"result": 3.0}]
    produced = vgi("call", WORKER, "count_with", "n=2")
    assert rows(produced) == [{"__header__": {"rows": 2}}, {"value": 2.0}, {"value": 1.0}]
    assert b"INFO: 2 left" in produced.stderr


def test_an_exchange_reads_lines_of_json_or_arrow(vgi: Callable[..., Said], target: str) -> None:
    scale = ("call", target, "scale", "factor=2")
    assert rows(vgi(*scale, given=b'{"value": 1.5}\n\n{"value": 2}\n')) == [{"value": 3.0}, {"value": 4.0}]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("value", pa.float64())])) as stream:
        for batch in ([1.0, 2.0], [], [3.0]):
            stream.write_batch(pa.RecordBatch.from_pydict({"value": pa.array(batch, pa.float64())}))
    assert rows(vgi(*scale, given=sink.getvalue())) == [{"value": 2.0}, {"value": 4.0}, {"value": 6.0}]
    assert b"not a valid Arrow stream" in vgi(*scale, given=b"\xff\xff\xff\xff??", status=2).stderr
    assert b"line 2" in vgi(*scale, given=b'{"value": 1.0}\n[1]\n', status=2).stderr
    odd = vgi(*scale, given=b'{"value": 1.0}\n{"value": "x"}\n', status=1)
    assert b"does not match the previous rows" in odd.stderr
    assert b"does not match Arrow" in vgi(*scale, given=b'{"value": %d}\n' % (2**70), status=1).stderr


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("call", SOCKET, "nope"), 1, "has no method 'nope'; it has add"),
        (("call", SOCKET, "add"), 1, "add() requires a: double"),
        (("call", SOCKET, "add", "a=1", "c=1"), 1, "no parameter c; it takes a, b"),
        (("call", SOCKET, "add", "a=text"), 1, "a is double"),
        (("call", SOCKET, "count", f"n={2**70}"), 1, "n is int64: Python int too large"),
        (("call", SOCKET, "add", "a"), 2, "expected NAME=VALUE, not 'a'"),
        (("call", SOCKET, "boom", "text=no"), 1, "ValueError: no"),
        (("describe", "/no/such/worker"), 1, "'/no/such/worker' cannot be started"),
        (("describe", "unix:/no/such/socket"), 1, "/no/such/socket: No such file or directory: is its server running?"),
        (("describe", "tcp:127.0.0.1"), 1, "is not tcp:HOST:PORT"),
        (("describe", "tcp:127.0.0.1:9"), 1, "is its server running?"),
        (("describe", "http://192.0.2.1:80"), 2, "with --fingerprint, --ca or --system-ca"),
        (("call", SOCKET, "add", "--token-file", __file__), 2, "--token-file requires http"),
        (("serve", "worker:ServiceImpl"), 2, "one of --stdio, --unix PATH, --tcp HOST:PORT and --http"),
        (("serve", "worker:ServiceImpl", "--stdio", "--tokens", __file__), 2, "--tokens requires --http"),
        (
            ("serve", "worker:ServiceImpl", "--stdio", "--cert", __file__, "--key", __file__),
            2,
            "--cert requires --http or --tcp",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    vgi: Callable[..., Said], target: str, arguments: tuple[str, ...], status: int, reason: str
) -> None:
    given = [target if each == SOCKET else each for each in arguments]
    said = " ".join(vgi(*given, status=status).stderr.decode().replace("│", " ").split())
    assert reason in said
    assert "Traceback" not in said


def test_a_server_over_http_knows_its_callers_by_their_tokens(vgi: Callable[..., Said], tmp_path: Path) -> None:
    tokens, mine, log = tmp_path / "tokens", tmp_path / "mine", tmp_path / "access.jsonl"
    tokens.write_text("# who may call\nalice s3cret\n\nbob other\n")
    mine.write_text("s3cret\n")
    with serving("--http", "--tokens", str(tokens), "--access-log", str(log)) as said:
        url = f"http://127.0.0.1:{said.removeprefix('PORT:')}"
        assert rows(vgi("call", url, "add", "a=1", "--token-file", str(mine))) == [{"result": 3.0}]
        assert rows(vgi("describe", url, "--json", "--token-file", str(mine)))
        refused = vgi("call", url, "add", "a=1", status=1).stderr
        assert b"AuthenticationError" in refused
    (line,) = [json.loads(each) for each in log.read_text().splitlines()]
    assert (line["method"], line["principal"], line["auth_domain"]) == ("add", "alice", "bearer")
    assert "s3cret" not in log.read_text()
    tokens.write_text("only-one-word\n")
    wrong = alone("serve", "worker:ServiceImpl", "--http", "--tokens", str(tokens), status=2).stderr
    assert b"line" in wrong
    assert b"expected NAME TOKEN" in b" ".join(wrong.replace("│".encode(), b" ").split())
    assert b"worker:Nobody: " in alone("serve", "worker:Nobody", "--stdio", status=1).stderr
    assert b"only-one-word" not in wrong


def test_a_server_on_tcp_with_tls(vgi: Callable[..., Said], tmp_path: Path) -> None:
    fingerprint = write_certificates(tmp_path)
    files = ("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"))
    with serving("--tcp", "127.0.0.1:0", *files) as said:
        where, _, pinned = said.partition(" fingerprint ")
        assert pinned == fingerprint
        target = f"tcp:{where.removeprefix('TCP:')}"
        assert rows(vgi("call", target, "add", "a=1", "--fingerprint", fingerprint)) == [{"result": 3.0}]


def test_a_worker_of_ones_own_serves_where_its_flags_say(vgi: Callable[..., Said]) -> None:
    worker = [sys.executable, str(HERE / "worker.py"), "--describe"]
    with serving("--tcp", command=worker) as said:
        assert rows(vgi("call", f"tcp:{said.removeprefix('TCP:')}", "add", "a=1")) == [{"result": 3.0}]
    with serving("--http", "--dialect", "0.10", command=worker) as said:
        assert rows(vgi("call", f"http://127.0.0.1:{said.removeprefix('PORT:')}", "add", "a=1", "b=2")) == [
            {"result": 3.0}
        ]


class Seen:
    """A hook that keeps the names of the called methods."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_dispatch_start(self, info: Any, auth: Any, metadata: Any) -> HookToken:  # noqa: ARG002
        self.names.append(info.name)
        return HookToken(None)

    def on_dispatch_end(self, token: HookToken, info: Any, error: BaseException | None, stats: Any) -> None:
        pass


@pytest.mark.parametrize("way", ["run_server", "load_server"])
def test_the_flags_of_a_command_leave_the_rest_of_a_server_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    config = ExternalLocationConfig(FileStorage(tmp_path), 4_000)
    kept: dict[str, Any] = {"server_id": "mine", "server_version": "1", "protocol_version": "2"}
    kept["ipc_validation"] = IpcValidation.STANDARD
    server = RpcServer(Service, ServiceImpl(), external_location=config, **kept)
    seen = Seen()
    server.hooks.append(seen)
    served: list[RpcServer] = []
    if way == "run_server":
        monkeypatch.setattr(sys, "argv", ["worker", "--describe", "--dialect", "0.10"])
        monkeypatch.setattr("penstock.vgi.rpc._run.serve_stdio", served.append)
        run_server(server)
    else:
        module = ModuleType("a_service_of_the_tests")
        module.server = server  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        served.append(load_server(f"{module.__name__}:server", describe=True, dialect="0.10"))
    (made,) = served
    assert (made.describe_enabled, made.dialect) == (True, "0.10")
    assert {name: getattr(made, name) for name in kept} == kept
    assert made.external_config is config
    # The server itself is as it was.
    assert (server.describe_enabled, server.dialect) == (False, "spec")
    with http_connect(Service, client=make_sync_client(made)) as service:
        service.scale(factor=1.0).exchange(AnnotatedBatch.from_pydict({"value": [1.0] * 1_000}))
    assert len(list(tmp_path.iterdir())) == 1
    assert set(seen.names) == {"scale"}
