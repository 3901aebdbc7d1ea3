"""Transports for the bytes of calls: pipes, sockets, child processes, and shared memory alongside them."""

import contextlib
import fcntl
import io
import logging
import os
import socket
import subprocess
import sys
import threading
from enum import Enum
from typing import IO, TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

if TYPE_CHECKING:
    from penstock import _core
    from penstock.vgi.shm import SharedMemorySegment

__all__ = [
    "PipeTransport",
    "RpcTransport",
    "ShmPipeTransport",
    "StderrMode",
    "SubprocessTransport",
    "UnixTransport",
    "beside",
    "endpoints",
    "make_pipe_pair",
    "make_unix_pair",
]

_PIPE_BYTES = 1 << 20
"""The capacity of a pipe, where the system can set it: large batches need fewer switches between the two ends."""
_F_SETPIPE_SZ = 1031


@runtime_checkable
class RpcTransport(Protocol):
    """A bidirectional byte stream: a file to read from and a file to write to."""

    @property
    def reader(self) -> io.IOBase:
        """The file with the bytes of the peer."""
        ...

    @property
    def writer(self) -> io.IOBase:
        """The file for the bytes to the peer."""
        ...

    def close(self) -> None:
        """Close both directions."""
        ...


def endpoints(transport: RpcTransport) -> tuple[Any, Any]:
    """Return the two ends of a transport for the core: descriptors if neither end is buffered, else the files."""
    ends = _end(transport.reader), _end(transport.writer)
    return ends if all(isinstance(end, int) for end in ends) else (transport.reader, transport.writer)


class Beside(TypedDict):
    """The core's further arguments about a transport."""

    segment: "_core.VgiSegment | None"
    tls: "_core.VgiTls | None"


def beside(transport: RpcTransport) -> Beside:
    """Return the shared memory segment and the TLS configuration of a transport, as arguments for the core."""
    shm: SharedMemorySegment | None = getattr(transport, "shm", None)
    return {"segment": None if shm is None else shm.core, "tls": getattr(transport, "tls", None)}


def _end(file: io.IOBase) -> Any:
    return file.fileno() if isinstance(file, io.FileIO | socket.SocketIO) else file


class PipeTransport:
    """A transport over two files, one to read and one to write. Unbuffered files are faster."""

    def __init__(self, reader: io.IOBase, writer: io.IOBase) -> None:
        """Use two files, which closing the transport closes."""
        self._reader, self._writer = reader, writer

    @property
    def reader(self) -> io.IOBase:
        """The file with the bytes of the peer."""
        return self._reader

    @property
    def writer(self) -> io.IOBase:
        """The file for the bytes to the peer."""
        return self._writer

    def close(self) -> None:
        """Close both files."""
        for file in (self._writer, self._reader):
            with contextlib.suppress(OSError):
                file.close()


class ShmPipeTransport:
    """A pipe or a Unix socket with a shared memory segment alongside, which carries large batches.

    The client owns the segment; the server attaches it when a call names it.

    ```python
    >>> import threading
    >>> from typing import Protocol
    >>> import pyarrow as pa
    >>> from penstock.vgi import RpcConnection, RpcServer, SharedMemorySegment, ShmPipeTransport, make_pipe_pair
    >>> class Table(Protocol):
    ...     def zeros(self, n: int) -> bytes: ...
    >>> class TableImpl:
    ...     def zeros(self, n: int) -> bytes:
    ...         return bytes(n)
    >>> ours, theirs = make_pipe_pair()
    >>> thread = threading.Thread(target=RpcServer(Table, TableImpl()).serve, args=(theirs,))
    >>> thread.start()
    >>> segment = SharedMemorySegment.create(4 << 20)
    >>> with RpcConnection(Table, ShmPipeTransport(ours, segment)) as table:
    ...     len(table.zeros(n=1_000_000))
    1000000
    >>> ours.close()
    >>> thread.join()
    >>> segment.unlink()

    ```
    """

    def __init__(self, pipe: RpcTransport, shm: "SharedMemorySegment") -> None:
        """Combine a transport within this machine with a segment; closing the segment is up to its creator."""
        self._pipe, self._shm = pipe, shm

    @property
    def reader(self) -> io.IOBase:
        """The file with the peer's bytes from the pipe."""
        return self._pipe.reader

    @property
    def writer(self) -> io.IOBase:
        """The file for the bytes to the peer through the pipe."""
        return self._pipe.writer

    @property
    def shm(self) -> "SharedMemorySegment":
        """The segment."""
        return self._shm

    def close(self) -> None:
        """Close the pipe. Views of the segment stay valid."""
        self._pipe.close()


class UnixTransport:
    """A transport over a connected stream socket, Unix or TCP."""

    def __init__(self, sock: socket.socket, tls: "_core.VgiTls | None" = None) -> None:
        """Own the socket: closing the transport closes it. With ``tls`` the core encrypts its traffic."""
        self._socket = sock
        self.tls = tls
        self.first_byte: float | None = None
        """Seconds for the peer's TLS handshake and first byte; None, the default, means no limit."""
        self.idle: float | None = None
        """Seconds that a read or a write may wait for the peer; None, the default, means no limit."""
        # Unbuffered, so that the core reads and writes the socket itself.
        self._file = socket.SocketIO(sock, "rw")

    @property
    def reader(self) -> io.IOBase:
        """The file with the bytes of the peer."""
        return self._file

    @property
    def writer(self) -> io.IOBase:
        """The file for the bytes to the peer."""
        return self._file

    def close(self) -> None:
        """Shut down and close the socket, which also ends a waiting read of the peer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self._socket.close()


class StderrMode(Enum):
    """The destination of a child process's standard error."""

    INHERIT = "inherit"
    """The standard error of this process."""
    PIPE = "pipe"
    """A logger, by default ``vgi_rpc.subprocess.stderr``, with one record per line."""
    DEVNULL = "devnull"
    """Nothing: the output is discarded."""


_STDERR = {StderrMode.INHERIT: None, StderrMode.PIPE: subprocess.PIPE, StderrMode.DEVNULL: subprocess.DEVNULL}
_GRACE = 5.0
"""Seconds for a child to exit by itself once its input is closed."""


class SubprocessTransport:
    """A transport over the standard input and output of a child process that it starts and ends."""

    def __init__(
        self,
        cmd: list[str],
        *,
        stderr: StderrMode = StderrMode.INHERIT,
        stderr_logger: logging.Logger | None = None,
    ) -> None:
        """Start the command.

        Its standard input and output are stream sockets, which are faster than pipes: a pipe is locked while one end
        copies bytes, whereas both ends of a socket can copy at the same time.

        Args:
            cmd: The command and its arguments.
            stderr: Where its standard error goes; by default where this process's goes.
            stderr_logger: The logger for StderrMode.PIPE, by default ``vgi_rpc.subprocess.stderr``.
        """
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
            for mine, other in ends:
                ours.enter_context(mine)
                theirs.enter_context(other)
            (to_child, stdin), (from_child, stdout) = ends
            self._proc = subprocess.Popen(
                cmd, stdin=stdin.fileno(), stdout=stdout.fileno(), stderr=_STDERR[stderr], bufsize=0
            )
            ours.pop_all()
        self._writer, self._reader = io.FileIO(to_child.detach(), "wb"), io.FileIO(from_child.detach(), "rb")
        self._drain: threading.Thread | None = None
        if self._proc.stderr is not None:
            logger = stderr_logger or logging.getLogger("vgi_rpc.subprocess.stderr")
            self._drain = threading.Thread(target=_log_lines, args=(self._proc.stderr, logger), daemon=True)
            self._drain.start()

    @property
    def proc(self) -> "subprocess.Popen[bytes]":
        """The child process."""
        return self._proc

    @property
    def reader(self) -> io.IOBase:
        """The child's standard output."""
        return self._reader

    @property
    def writer(self) -> io.IOBase:
        """The child's standard input."""
        return self._writer

    def close(self) -> None:
        """Close the child's input and wait until it exits; kill it after 5 seconds."""
        with contextlib.suppress(OSError):
            self.writer.close()
        try:
            self._proc.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._proc.kill()
            self._proc.wait()
        if self._drain is not None:
            self._drain.join(_GRACE)
        self._reader.close()
        if self._proc.stderr is not None:
            self._proc.stderr.close()


def _log_lines(file: IO[bytes], logger: logging.Logger) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in file:
            logger.info("%s", line.decode("utf-8", "replace").rstrip("\n"))


def _widen(descriptor: int) -> None:
    if sys.platform == "linux":
        # This fails beyond the user's limit of pipe memory, and the pipe keeps its default capacity.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    read, write = os.pipe()
    _widen(write)
    return io.FileIO(read, "rb"), io.FileIO(write, "wb")


def make_pipe_pair() -> tuple[PipeTransport, PipeTransport]:
    """Return two transports that are connected to each other by pipes."""
    (first_read, first_write), (second_read, second_write) = _pipe(), _pipe()
    return PipeTransport(first_read, second_write), PipeTransport(second_read, first_write)


def make_unix_pair() -> tuple[UnixTransport, UnixTransport]:
    """Return two transports that are connected to each other by a pair of Unix sockets."""
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return UnixTransport(first), UnixTransport(second)
