"""A client that breaks its word about shared memory: it truncates or rewrites its segment while the server reads it, or
says that there is more in it than there is."""

import contextlib
import os
import socket
import struct
import sys
import threading
from pathlib import Path

import pyarrow as pa
from worker import Service

from penstock.errors import VgiError
from penstock.vgi import AnnotatedBatch, RpcConnection, RpcError, SharedMemorySegment, ShmPipeTransport
from penstock.vgi.rpc import PipeTransport, UnixTransport, make_pipe_pair

SIZE = 8 << 20
HUGE = 1 << 46
VALUES = pa.schema([("value", pa.float64())])
LARGE = pa.record_batch({"value": [float(each) for each in range(100_000)]}, schema=VALUES)


def truncate(path: Path, stop: threading.Event) -> None:
    """Take the memory away, and give it back empty, again and again."""
    while not stop.is_set():
        os.truncate(path, 0)
        os.truncate(path, SIZE)


def rewrite(path: Path, stop: threading.Event) -> None:
    """Change what lies behind the header of the segment, again and again."""
    noise = [os.urandom(1 << 16), bytes(1 << 16), b"\xff" * (1 << 16)]
    with path.open("r+b", buffering=0) as file:
        while not stop.is_set():
            for each in noise:
                file.seek(65_536)
                file.write(each)


def sparse(path: Path, stop: threading.Event) -> None:  # noqa: ARG001
    """Make it a file of holes, with one region of 32 TiB, which takes no memory at all."""
    os.truncate(path, HUGE)
    with path.open("r+b", buffering=0) as file:
        file.write(struct.pack("<4sIQII2Q", b"VGIS", 1, HUGE - 65_536, 1, 0, 65_536, HUGE // 2))


def sealed(path: Path, stop: threading.Event) -> None:  # noqa: ARG001
    """Try to take the memory away that has no name, which its seals forbid, and rewrite it, its header too."""
    while not stop.is_set():
        for file in memory_files():
            with contextlib.suppress(FileNotFoundError):
                try:
                    os.truncate(file, 0)
                except PermissionError:
                    FORBIDDEN.append(file)
                with Path(file).open("r+b", buffering=0) as written:
                    written.seek(SIZE // 2 if len(FORBIDDEN) % 100 else 8)
                    written.write(os.urandom(1 << 16))
                    written.seek(65_536)
                    written.write(os.urandom(1 << 20))


FORBIDDEN: list[str] = []


def memory_files(process: int | str = "self") -> list[str]:
    """The sealed segments that a process has open."""
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(entry.readlink()).startswith("/memfd:penstock-vgi-"):
                found.append(str(entry))
    return found


def without_descriptors(path: str) -> PipeTransport:
    """Connect over pipes, which carry no descriptor, so that the server has the segment by its name alone."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect(path)
    ours, theirs = make_pipe_pair()

    def forth() -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(theirs.reader.fileno(), 1 << 16):
                server.sendall(piece)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def back() -> None:
        with contextlib.suppress(OSError), theirs.writer as writer:
            while piece := server.recv(1 << 16):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(writer.fileno(), rest) :]

    for pump in (forth, back):
        threading.Thread(target=pump, daemon=True).start()
    return ours


NOTHING = pa.record_batch({"value": pa.array([], pa.float64())}, schema=VALUES)
POINTER = pa.KeyValueMetadata({b"vgi_rpc.shm_offset": b"65536", b"vgi_rpc.shm_length": str(HUGE // 2).encode()})


def main(path: str, how: str, rounds: int) -> None:
    """Call while another thread breaks the segment; whatever the server answers is fine, if it answers."""
    for _ in range(rounds):
        segment, stop = SharedMemorySegment.create(SIZE), threading.Event()
        breaking = {"truncate": truncate, "rewrite": rewrite, "sparse": sparse, "sealed": sealed}[how]
        thread = threading.Thread(target=breaking, args=(Path("/dev/shm", segment.name), stop))  # noqa: S108
        transport: PipeTransport | UnixTransport = without_descriptors(path)
        if how == "sealed":
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(path)
            transport = UnixTransport(client)
        thread.start()
        batch = AnnotatedBatch(LARGE)
        if how == "sparse":
            thread.join()
            batch = AnnotatedBatch(NOTHING, POINTER)
        try:
            with (
                contextlib.suppress(RpcError, VgiError, OSError, pa.ArrowInvalid),
                RpcConnection(Service, ShmPipeTransport(transport, segment)) as service,
                service.scale(factor=2.0) as stream,
            ):
                for _ in range(20):
                    stream.exchange(batch)
        finally:
            stop.set()
            thread.join()
            segment.unlink()
            segment.close()
    assert FORBIDDEN or how != "sealed"
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
