"""Single events, for applications that do not use Arrow columns, and their encoding."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import LumberjackError

__all__ = [
    "Event",
    "check_size",
    "events_of",
    "json_bytes",
    "json_text",
    "pair_bytes",
    "pairs_object",
    "rows_of",
    "timestamp",
]

# The limits of receivers (decision 7).
_MOST_KEY = 64 << 10
_MOST_VALUE = 16 << 20
_MOST_PAIRS = 65_536
_MOST_EVENT = 64 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """An event that was received, or one to be sent.

    >>> Event({"message": "hello"}).content["message"]
    'hello'
    """

    content: Mapping[str, Any] | str | bytes
    """A JSON object, or pairs of strings, with a list of strings for a key that occurs more than once. The raw bytes if
    they are not a JSON object (tag ``_jsonparsefailure``), or nested too deeply for Python. Integers with more digits
    than Python's limit are `decimal.Decimal`."""
    sequence: int = 0
    """The event's sequence number."""
    peer: str = ""
    """The writer's address, ``IP:PORT``."""
    received: datetime | None = None
    """The time at which the event was received."""
    tags: tuple[str, ...] = ()
    """The problems of the event, such as ``_jsonparsefailure``; empty if there are none."""


def json_text(value: object, default: Callable[[Any], Any] = str) -> str:
    """Return a value as JSON; values of types that JSON lacks are passed to ``default``.

    Numbers that JSON lacks become strings, as with Spark's ``to_json``. Encode the text with "backslashreplace", so
    that lone surrogates become their escapes.

    >>> json_text({"mean": float("nan")}), json_text({"name": "a\\ud800"}).encode("utf-8", "backslashreplace")
    ('{"mean":"NaN"}', b'{"name":"a\\\\ud800"}')
    """
    try:
        try:
            return _dumps(value, default)
        except (ValueError, TypeError):
            return _dumps(_plain(value, default), default)
    except (ValueError, TypeError, RecursionError) as error:
        raise LumberjackError(f"an event cannot be written as JSON: {error}", "misuse") from None


def _dumps(value: object, default: Callable[[Any], Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default, allow_nan=False)


def _plain(value: Any, default: Callable[[Any], Any]) -> Any:
    """Replace numbers and keys that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {_key(key, default): _plain(item, default) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, default) for item in value]
    return value


def _key(key: Any, default: Callable[[Any], Any]) -> Any:
    if isinstance(key, float):
        return _plain(key, default)
    return key if key is None or isinstance(key, str | int) else str(default(key))


def json_bytes(event: object) -> bytes:
    """Return an event as the bytes of a J frame."""
    if isinstance(event, Event):
        event = event.content
    if isinstance(event, bytes | bytearray | memoryview):
        data = bytes(event)
    else:
        if isinstance(event, str):
            event = {"message": event}
        if not isinstance(event, Mapping):
            raise TypeError(f"an event must be a mapping, a str, bytes or an Event, not {type(event).__name__}")
        data = json_text(event).encode("utf-8", "backslashreplace")
    check_size("an event", len(data), _MOST_VALUE)
    return data


def check_size(what: str, size: int, most: int = _MOST_VALUE) -> None:
    """Reject what receivers do not accept: it would end every connection and block all events after it."""
    if size > most:
        raise LumberjackError(f"{what} has {size} bytes, but receivers accept at most {most}: split it", "limit")


def pair_bytes(event: object) -> list[tuple[bytes, bytes]]:
    """Return an event as the pairs of a D frame; values that are not strings are written as JSON."""
    if isinstance(event, Event):
        event = event.content
    if isinstance(event, str):
        event = {"line": event}
    if not isinstance(event, Mapping):
        raise TypeError(f"an event of pairs must be a mapping, a str or an Event, not {type(event).__name__}")
    pairs = [(_bytes(key), _bytes(value)) for key, value in event.items()]
    if len(pairs) > _MOST_PAIRS:
        raise LumberjackError(f"an event has {len(pairs)} pairs, but receivers accept at most {_MOST_PAIRS}", "limit")
    for key, value in pairs:
        check_size("a key", len(key), _MOST_KEY)
        check_size(f"the value of {key[:80].decode(errors='replace')!r}", len(value))
    check_size("an event of pairs", sum(len(key) + len(value) for key, value in pairs), _MOST_EVENT)
    return pairs


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return json_text(value).encode("utf-8", "backslashreplace")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace")


def timestamp(time: datetime) -> str:
    """Return a time in the format of Beats.

    >>> timestamp(datetime.fromisoformat("2026-11-22T10:00:00+01:00"))
    '2026-11-22T09:00:00.000Z'
    """
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch as dictionaries, with maps at any depth as dictionaries too.

    >>> rows_of(pa.record_batch({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}))
    [{'m': {'k': 1}}]
    """
    shapes = {field.name: shape for field in batch.schema if (shape := _shape(field.type)) is not None}
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows if shapes else ():
        for name, shape in shapes.items():
            row[name] = shape(row[name])
    return rows


_Shape = Callable[[Any], Any]


def _shape(kind: pa.DataType) -> _Shape | None:
    """Return a function that converts a value's maps, which Arrow returns as lists of pairs; None without maps."""
    if pa.types.is_map(kind):
        item = _shape(kind.item_type) or _same
        return lambda pairs: None if pairs is None else {key: item(value) for key, value in pairs}
    if pa.types.is_struct(kind):
        of = {field.name: shape for field in kind if (shape := _shape(field.type)) is not None}
        return (lambda row: row and row | {name: shape(row[name]) for name, shape in of.items()}) if of else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        each = _shape(kind.value_type)
        return None if each is None else lambda values: values and [each(value) for value in values]
    return None


def _same(value: Any) -> Any:
    return value


def pairs_object(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return pairs as a dictionary, with a list of values for a key that occurs more than once.

    >>> pairs_object([("a", "1"), ("b", "2"), ("a", "3")])
    {'a': ['1', '3'], 'b': '2'}
    """
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: of[0] if len(of) == 1 else of for key, of in values.items()}


def events_of(columns: Mapping[str, list[Any]]) -> Iterable[Event]:
    """Yield the events of a batch with raw columns."""
    rows = zip(
        *(columns[name] for name in ("received", "peer", "sequence", "event", "fields", "raw", "tags")), strict=True
    )
    for received, peer, sequence, event, fields, raw, tags in rows:
        content = _parsed(event) if event is not None else pairs_object(fields) if fields is not None else raw
        yield Event(content, sequence, peer, received, tuple(tags or ()))


def _parsed(event: str) -> Any:
    """Parse a JSON object, or return its bytes, so that a peer's bad event does not lose the others of its batch."""
    try:
        return json.loads(event)
    except RecursionError:
        return event.encode()
    except ValueError:
        return _with_long_numbers(event)


def _with_long_numbers(event: str) -> Any:
    most = sys.get_int_max_str_digits()
    try:
        return json.loads(event, parse_int=lambda digits: int(digits) if len(digits) <= most else Decimal(digits))
    except (ValueError, RecursionError):
        return event.encode()
