"""Lumberjack, versions 1 and 2: events from Filebeat and its relatives, and to whatever takes them from those.

`Receiver` listens and gives batches in Arrow, which are acknowledged when you say so; `Sender` keeps events until they
are acknowledged; `LogHandler` sends what Python logs.
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
