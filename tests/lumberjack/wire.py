"""Frames by hand, apart from our own code."""

import socket
import ssl
import struct
import zlib
from collections.abc import Iterable


def window(size: int, version: int = 2) -> bytes:
    return b"%dW" % version + struct.pack(">I", size)


def json_frame(sequence: int, payload: bytes, version: int = 2) -> bytes:
    return b"%dJ" % version + struct.pack(">II", sequence, len(payload)) + payload


def data_frame(sequence: int, pairs: Iterable[tuple[bytes, bytes]], version: int = 1) -> bytes:
    pairs = list(pairs)
    strings = b"".join(struct.pack(">I", len(text)) + text for pair in pairs for text in pair)
    return b"%dD" % version + struct.pack(">II", sequence, len(pairs)) + strings


def compressed(frames: bytes, version: int = 2) -> bytes:
    packed = zlib.compress(frames, 3)
    return b"%dC" % version + struct.pack(">I", len(packed)) + packed


def whole_window(count: int, version: int = 2, *, first: int = 1) -> bytes:
    events = (json_frame(first + at, b'{"n":%d}' % (first + at), version) for at in range(count))
    return window(count, version) + b"".join(events)


class Writer:
    """A connection whose bytes are made by hand."""

    def __init__(self, address: str, *, tls: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ack(self) -> tuple[int, int]:
        """The next acknowledgement: version and number. Those with 0 are passed over."""
        while True:
            data = b""
            while len(data) < 6:
                more = self.socket.recv(6 - len(data))
                assert more, "the receiver closed the connection"
                data += more
            assert data[1:2] == b"A", data
            number = int.from_bytes(data[2:])
            if number:
                return data[0] - ord("0"), number

    def rest(self) -> bytes:
        """What comes until the receiver closes."""
        data = b""
        try:
            while more := self.socket.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        return data

    def finish(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)
