"""Ports for tests that must know one before anything listens there, or that listen at one again."""

import itertools
import os
import socket

# Below the ports that the system gives to connections and to listeners at port 0: else a port that is free now may be
# the near end of anybody's connection a moment later. Each process of a run has a range of its own.
_FIRST, _EACH = 12_000, 2_000
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_PORTS = itertools.cycle(range(_FIRST + _WORKER * _EACH, _FIRST + (_WORKER + 1) * _EACH))


def free_port() -> int:
    """Return a port at which nobody listens, neither by TCP nor by UDP; each call returns another."""
    for port in itertools.islice(_PORTS, _EACH):
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as free:
                    free.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise RuntimeError(f"all {_EACH} ports from {_FIRST + _WORKER * _EACH} on are taken")


def free_address() -> str:
    """Return ``127.0.0.1:PORT`` with a port of `free_port`."""
    return f"127.0.0.1:{free_port()}"
