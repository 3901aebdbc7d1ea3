from .fixtures import (
    beside,
    certificate,
    connect,
    friend,
    join,
    program,
    programs,
    reactor,
    receives,
    sender,
    waits,
)

__all__ = [
    "beside",
    "certificate",
    "connect",
    "friend",
    "join",
    "program",
    "programs",
    "reactor",
    "receives",
    "sender",
    "waits",
]
