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
from penstock.vgi.rpc import UnixTransport

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


NOTHING = pa.record_batch({"value": pa.array([], pa.float64())}, schema=VALUES)
POINTER = pa.KeyValueMetadata({b"vgi_rpc.shm_offset": b"65536", b"vgi_rpc.shm_length": str(HUGE // 2).encode()})


def main(path: str, how: str, rounds: int) -> None:
    """Call while another thread breaks the segment; whatever the server answers is fine, if it answers."""
    for _ in range(rounds):
        segment, stop = SharedMemorySegment.create(SIZE), threading.Event()
        breaking = {"truncate": truncate, "rewrite": rewrite, "sparse": sparse}[how]
        thread = threading.Thread(target=breaking, args=(Path("/dev/shm", segment.name), stop))  # noqa: S108
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(path)
        thread.start()
        batch = AnnotatedBatch(LARGE)
        if how == "sparse":
            thread.join()
            batch = AnnotatedBatch(NOTHING, POINTER)
        try:
            with (
                contextlib.suppress(RpcError, VgiError, OSError, pa.ArrowInvalid),
                RpcConnection(Service, ShmPipeTransport(UnixTransport(client), segment)) as service,
                service.scale(factor=2.0) as stream,
            ):
                for _ in range(20):
                    stream.exchange(batch)
        finally:
            stop.set()
            thread.join()
            segment.unlink()
            segment.close()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
