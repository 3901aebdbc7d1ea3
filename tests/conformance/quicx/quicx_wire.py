"""Quicx as bytes on a socket, written from the specification's tables alone."""

import socket
import struct

__all__ = ["Peer"]

NAMES = {
    0x02: "OK", 0x03: "ERROR", 0x05: "TASK", 0x06: "DONE", 0x07: "FAILED", 0x08: "WAIT",
    0x09: "HEARTBEAT", 0x0A: "PONG", 0x0C: "STATS_RESPONSE", 0x24: "DEAD_TASKS",
}  # fmt: skip


class Peer:
    """A connection to a daemon."""

    def __init__(self, address: str, path: str | None = None) -> None:
        if path is None:
            host, _, port = address.rpartition(":")
            self.socket = socket.create_connection((host, int(port)), timeout=20)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(20)
            self.socket.connect(path)

    def send(self, opcode: int, payload: bytes = b"", *, version: int = 1, length: int | None = None) -> None:
        size = len(payload) if length is None else length
        self.socket.sendall(struct.pack(">BBI", version, opcode, size) + payload)

    def submit(self, kind: bytes, payload: bytes) -> None:
        self.send(0x01, bytes([len(kind)]) + kind + payload)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self.socket.recv(count - len(found))
            if not piece:
                raise EOFError(found)
            found += piece
        return found

    def hear(self) -> tuple[str, bytes]:
        version, opcode, length = struct.unpack(">BBI", self._exactly(6))
        assert version == 1
        return NAMES[opcode], self._exactly(length)

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()
