"""A daemon of the specification's twelve frames and no more: TASK answers READY, and nothing is pushed.

It shares no code with ours. PREFETCH, SUBSCRIBE and all else that the specification does not have is ERROR 0x02.
"""

import socket
import struct
import threading
from collections import Counter, deque
from typing import Self

SUBMIT, OK, ERROR, READY, TASK, DONE, FAILED, WAIT, HEARTBEAT, PONG, STATS, STATS_RESPONSE = range(1, 13)


class ReadyOnly:
    """A queue in a thread for each connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.changed = threading.Condition()
        self.queue: deque[tuple[int, bytes, bytes]] = deque()
        self.last = 0
        self.done: list[int] = []
        self.failed: dict[int, bytes] = {}
        self.heard: Counter[int] = Counter()
        """How often each opcode came, over all connections."""
        self.greedy = 0
        """How often a worker that holds a task said READY."""
        self.connections = 0
        self.ended = 0
        """How many of these are over."""
        self.mute = False
        """Whether HEARTBEAT is left without an answer."""
        threading.Thread(target=self._accept, daemon=True).start()

    def put(self, kind: bytes, payload: bytes = b"") -> int:
        """Queue a task."""
        with self.changed:
            self.last += 1
            self.queue.append((self.last, kind, payload))
            return self.last

    def until(self, holds) -> None:
        """Wait until something holds."""
        with self.changed:
            assert self.changed.wait_for(holds, 60), (self.done, self.failed, self.heard, self.connections)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                self.changed.notify_all()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        held: dict[int, tuple[int, bytes, bytes]] = {}
        with connection, connection.makefile("rb") as stream:
            while len(header := stream.read(6)) == 6:
                _, opcode, length = struct.unpack(">BBI", header)
                payload = stream.read(length)
                with self.changed:
                    answer = self._handle(opcode, payload, held)
                    self.heard[opcode] += 1
                    self.changed.notify_all()
                if answer is not None:
                    kind, content = answer
                    connection.sendall(struct.pack(">BBI", 1, kind, len(content)) + content)
        with self.changed:
            self.ended += 1
            self.changed.notify_all()
            self.queue.extendleft(reversed(held.values()))

    def _handle(
        self, opcode: int, payload: bytes, held: dict[int, tuple[int, bytes, bytes]]
    ) -> tuple[int, bytes] | None:
        if opcode == SUBMIT:
            length = payload[0]
            return OK, struct.pack(">I", self.put(payload[1 : 1 + length], payload[1 + length :]))
        if opcode == READY:
            self.greedy += bool(held)
            if not self.queue:
                return WAIT, b""
            task = number, kind, content = self.queue.popleft()
            held[number] = task
            return TASK, struct.pack(">IB", number, len(kind)) + kind + content
        if opcode in {DONE, FAILED} and (number := struct.unpack(">I", payload[:4])[0]) in held:
            del held[number]
            if opcode == DONE:
                self.done.append(number)
            else:
                self.failed[number] = payload[4:]
            return None
        if opcode == HEARTBEAT:
            return None if self.mute else (PONG, b"")
        if opcode == STATS:
            return STATS_RESPONSE, struct.pack(">IIIQQ", len(self.queue), 0, 0, 0, 1)
        return None if opcode == PONG else (ERROR, b"\x02there is no such frame")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
