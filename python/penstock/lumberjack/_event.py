"""Events one by one, for those who want no columns."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["Event", "events_of", "json_octets", "pair_octets"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event that came, or one to be sent.

    >>> Event({"message": "hello"}).content["message"]
    'hello'
    """

    content: Mapping[str, Any] | str | bytes
    """A JSON object, or pairs of strings; the octets where they are neither (tag ``_jsonparsefailure``)."""
    sequence: int = 0
    """Its number in the window."""
    peer: str = ""
    """The writer's address, ``IP:PORT``."""
    received: datetime | None = None
    """When it came."""
    tags: tuple[str, ...] = ()
    """What is wrong with it, if something is (decision 9)."""


def json_octets(event: object) -> bytes:
    """Give an event as the octets of a J frame."""
    if isinstance(event, Event):
        event = event.content
    if isinstance(event, bytes | bytearray | memoryview):
        return bytes(event)
    if isinstance(event, str):
        event = {"message": event}
    if not isinstance(event, Mapping):
        raise TypeError(f"an event is a mapping, a str, bytes or an Event, not {type(event).__name__}")
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "surrogateescape")


def pair_octets(event: object) -> list[tuple[bytes, bytes]]:
    """Give an event as the pairs of a D frame; what is no string is written as JSON."""
    if isinstance(event, Event):
        event = event.content
    if isinstance(event, str):
        event = {"line": event}
    if not isinstance(event, Mapping):
        raise TypeError(f"an event of pairs is a mapping, a str or an Event, not {type(event).__name__}")
    return [(_octets(key), _octets(value)) for key, value in event.items()]


def _octets(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "surrogateescape")


def events_of(columns: Mapping[str, list[Any]]) -> Iterable[Event]:
    """Make events of the raw columns of a batch."""
    rows = zip(
        *(columns[name] for name in ("received", "peer", "sequence", "event", "fields", "raw", "tags")), strict=True
    )
    for received, peer, sequence, event, fields, raw, tags in rows:
        content = json.loads(event) if event is not None else dict(fields) if fields is not None else raw
        yield Event(content, sequence, peer, received, tuple(tags or ()))
