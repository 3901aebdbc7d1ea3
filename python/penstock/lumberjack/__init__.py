"""Lumberjack, versions 1 and 2: log events from Filebeat, Logstash and similar shippers, and to receivers of these.

`Receiver` listens and yields Arrow batches, which the application acknowledges; `Sender` keeps events until they are
acknowledged; `LogHandler` sends the records of Python's ``logging``; `Spool` stores received events.
"""

from penstock.lumberjack._event import Event
from penstock.lumberjack._handler import LogHandler
from penstock.lumberjack._options import Limits
from penstock.lumberjack._receiver import Batch, Receiver, ReceiverCounters
from penstock.lumberjack._sender import Sender
from penstock.lumberjack._spool import EVENT_SCHEMA, Position, Spool, SpoolCounters, SpoolPiece, SpoolReader

__all__ = [
    "EVENT_SCHEMA",
    "Batch",
    "Event",
    "Limits",
    "LogHandler",
    "Position",
    "Receiver",
    "ReceiverCounters",
    "Sender",
    "Spool",
    "SpoolCounters",
    "SpoolPiece",
    "SpoolReader",
]
