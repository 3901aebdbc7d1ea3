"""What carries the bytes of calls: pipes, sockets, child processes, and shared memory beside them."""

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
"""What a pipe may hold, where the system lets us say so: fewer turns between the two ends for large batches."""
_F_SETPIPE_SZ = 1031


@runtime_checkable
class RpcTransport(Protocol):
    """A way there and a way back."""

    @property
    def reader(self) -> io.IOBase:
        """What comes."""
        ...

    @property
    def writer(self) -> io.IOBase:
        """What goes."""
        ...

    def close(self) -> None:
        """Close both."""
        ...


def endpoints(transport: RpcTransport) -> tuple[Any, Any]:
    """Give a transport as the core takes it: descriptors where nothing is buffered at either end, else files."""
    ends = _end(transport.reader), _end(transport.writer)
    return ends if all(isinstance(end, int) for end in ends) else (transport.reader, transport.writer)


class Beside(TypedDict):
    """What the core takes with a transport's descriptors."""

    segment: "_core.VgiSegment | None"
    tls: "_core.VgiTls | None"


def beside(transport: RpcTransport) -> Beside:
    """Give the segment of shared memory beside a transport, and how it is encrypted, as the core takes them."""
    shm: SharedMemorySegment | None = getattr(transport, "shm", None)
    return {"segment": None if shm is None else shm.core, "tls": getattr(transport, "tls", None)}


def _end(file: io.IOBase) -> Any:
    return file.fileno() if isinstance(file, io.FileIO | socket.SocketIO) else file


class PipeTransport:
    """A transport of two files, one to read and one to write. Files without buffer are the quick ones."""

    def __init__(self, reader: io.IOBase, writer: io.IOBase) -> None:
        """Read from the one and write to the other; closing this closes them."""
        self._reader, self._writer = reader, writer

    @property
    def reader(self) -> io.IOBase:
        """What comes."""
        return self._reader

    @property
    def writer(self) -> io.IOBase:
        """What goes."""
        return self._writer

    def close(self) -> None:
        """Close both files."""
        for file in (self._writer, self._reader):
            with contextlib.suppress(OSError):
                file.close()


class ShmPipeTransport:
    """A pipe, or a Unix socket, and a segment of shared memory beside it that large batches go through.

    The caller has the segment; the server attaches it when a call names it.

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
        """Take a transport to the same machine, and a segment; the segment stays its maker's to close."""
        self._pipe, self._shm = pipe, shm

    @property
    def reader(self) -> io.IOBase:
        """What comes over the pipe."""
        return self._pipe.reader

    @property
    def writer(self) -> io.IOBase:
        """What goes over the pipe."""
        return self._pipe.writer

    @property
    def shm(self) -> "SharedMemorySegment":
        """The segment."""
        return self._shm

    def close(self) -> None:
        """Close the pipe. Views of the segment stay good until the last of them goes."""
        self._pipe.close()


class UnixTransport:
    """A transport over a connected stream socket, Unix or TCP."""

    def __init__(self, sock: socket.socket, tls: "_core.VgiTls | None" = None) -> None:
        """Take the socket over; closing this closes it. With ``tls`` the core encrypts what goes over it."""
        self._socket = sock
        self.tls = tls
        self.first_byte: float | None = None
        """Seconds that the peer has for its TLS handshake and its first byte; None is no limit."""
        self.idle: float | None = None
        """Seconds for which the peer may be silent where it is waited for, or take nothing; None is no limit."""
        # Without buffers, so that the core reads and writes the socket itself.
        self._file = socket.SocketIO(sock, "rw")

    @property
    def reader(self) -> io.IOBase:
        """What comes."""
        return self._file

    @property
    def writer(self) -> io.IOBase:
        """What goes."""
        return self._file

    def close(self) -> None:
        """Close the socket; whoever waits at the other end sees the end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self._socket.close()


class StderrMode(Enum):
    """Where the standard error of a child process goes."""

    INHERIT = "inherit"
    """Where ours goes."""
    PIPE = "pipe"
    """Into the logger ``vgi_rpc.subprocess.stderr``, a record for each line."""
    DEVNULL = "devnull"
    """Nowhere."""


_STDERR = {StderrMode.INHERIT: None, StderrMode.PIPE: subprocess.PIPE, StderrMode.DEVNULL: subprocess.DEVNULL}
_GRACE = 5.0
"""Seconds that a child has to end by itself once its input is closed."""


class SubprocessTransport:
    """A transport over the standard input and output of a child process, which it starts and ends."""

    def __init__(
        self,
        cmd: list[str],
        *,
        stderr: StderrMode = StderrMode.INHERIT,
        stderr_logger: logging.Logger | None = None,
    ) -> None:
        """Start the command.

        Its standard input and output are stream sockets: a pipe is locked while bytes are copied into it or out of
        it, a socket lets both ends copy at a time.
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
        """Its standard output."""
        return self._reader

    @property
    def writer(self) -> io.IOBase:
        """Its standard input."""
        return self._writer

    def close(self) -> None:
        """Close its input, and wait for its end; after five seconds it is ended."""
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
        # Beyond the user's share of pipe memory the pipe stays as it is.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    read, write = os.pipe()
    _widen(write)
    return io.FileIO(read, "rb"), io.FileIO(write, "wb")


def make_pipe_pair() -> tuple[PipeTransport, PipeTransport]:
    """Give two transports that are connected: what the one writes the other reads."""
    (first_read, first_write), (second_read, second_write) = _pipe(), _pipe()
    return PipeTransport(first_read, second_write), PipeTransport(second_read, first_write)


def make_unix_pair() -> tuple[UnixTransport, UnixTransport]:
    """Give two transports over a connected pair of Unix sockets."""
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return UnixTransport(first), UnixTransport(second)
