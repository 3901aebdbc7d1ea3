"""The form of a receipt: its fields and their permitted values. Nothing here reads a sink.

A receipt is treated as hostile input: every error in it becomes a :class:`Difference`, never a traceback.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock._places import Place
from penstock.errors import PipeStreamError
from penstock.pipestream import CompletionPolicy, PipeStreamURI, Status

__all__ = [
    "MAX_RECEIPT",
    "Difference",
    "Malformed",
    "check_form",
    "file_ids",
    "is_file",
    "load_object",
    "shorten",
    "where",
]

MAX_RECEIPT = 2 << 30
"""The largest receipt that is read, in bytes."""

_HEX_16 = re.compile(r"[0-9a-f]{16}")
_HEX_32 = re.compile(r"[0-9a-f]{32}")
_HEX_64 = re.compile(r"[0-9a-f]{64}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FILE = re.compile(r"([0-9a-f]{32})/([0-9]+)(?:\.[1-9][0-9]*)?/([0-9]+)(?:\.[1-9][0-9]*)?")
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference: the sink does not have what the receipt states, or the receipt is malformed or contradicts itself.

    A sink is compared with the receipt. A receipt is compared with the required form, and with what follows from its
    other fields.

    >>> Difference.of_sink("bytes", 16, 17, "counted in the file").text
    'bytes: the receipt says 16, the sink has 17 (counted in the file)'
    >>> Difference.of_receipt("version", 1, 2).text
    'version: must be 1, but the receipt says 2'
    """

    field: str
    """The field in the receipt, for example ``parts[3].sha256``, or the file in the sink."""
    expected: Any
    """The value in the receipt if the sink differs; the required value if the receipt itself is wrong."""
    found: Any
    """The value in the sink if the sink differs; the value in the receipt if the receipt itself is wrong."""
    text: str
    """The whole difference in one line. Those that `penstock.receipts` returns begin with the document's name."""

    @classmethod
    def of_sink(cls, field: str, expected: object, found: object, why: str = "") -> "Difference":
        """Make the difference of a sink that does not have what the receipt states."""
        text = f"{field}: the receipt says {shorten(expected)}, the sink has {shorten(found)}"
        return cls(field, expected, found, text + _because(why))

    @classmethod
    def of_receipt(cls, field: str, expected: object, found: object, why: str = "") -> "Difference":
        """Make the difference of a receipt that is wrong in itself, whatever the sink has."""
        text = f"{field}: must be {shorten(expected)}, but the receipt says {shorten(found)}"
        return cls(field, expected, found, text + _because(why))


def _because(why: str) -> str:
    return f" ({why})" if why else ""


class Malformed(Exception):
    """The receipt cannot be parsed at all; the text is the reason."""


def shorten(value: object) -> str:
    """Return a value as one line of limited length, without control characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, default=str)
    shown = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def where(index: int, path: object) -> str:
    """Return a description of a part: its index in the receipt, and its path."""
    way = shorten(" / ".join(path)) if isinstance(path, list) and all(isinstance(each, str) for each in path) else "?"
    return f"parts[{index}] {way}"


def load_object(file: Path | Place) -> dict[str, Any]:
    """Read the JSON object in a file or in an object of a store; repeated fields and NaN are errors."""
    with file.open("rb") if isinstance(file, Path) else file.open_file() as stream:
        if stream.seek(0, 2) > MAX_RECEIPT:
            raise Malformed(f"the receipt has more than {MAX_RECEIPT} bytes")
        stream.seek(0)
        data = stream.read()
    try:
        value = json.loads(data, object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        raise Malformed("the receipt is nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"the receipt is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed("the receipt is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a field is duplicated")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


_Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(low: int, high: int) -> _Check:
    # isinstance would also accept a bool.
    return lambda value: type(value) is int and low <= value <= high


def _matches(pattern: re.Pattern[str]) -> _Check:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _or_null(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _scope(value[0]) and _entity(value[1])


def _policy(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(CompletionPolicy.parse(value)) == value
    except ValueError:
        return False


_scope = _number(0, 0xFFFF)
_entity = _number(1, 0xFFFF_FFFC)
_bytes = _number(0, (1 << 63) - 1)
_Fields = Mapping[str, tuple[_Check, str]]

_BYTES = (_or_null(_bytes), "a number of bytes, or null")
_TERMINAL = frozenset(status.name for status in Status if status.is_terminal)
_STATUS = (lambda value: isinstance(value, str) and value in _TERMINAL, "the name of a terminal status")
_REASON = (_or_null(_text), "a text, or null")
_DIGEST = (_matches(_HEX_64), "64 lower-case hex digits")
_DIGEST_OR_NULL = (_or_null(_matches(_HEX_64)), "64 lower-case hex digits, or null")
_SESSION = (_matches(_HEX_32), "32 lower-case hex digits")
_FILE_NAME = (_or_null(_matches(_FILE)), "SESSION/SCOPE/ENTITY, or null")
_COUNT = (_bytes, "a number")
_CLAIM = (_matches(_HEX_16), "16 lower-case hex digits")

_RECEIPT: _Fields = {
    "version": (lambda value: type(value) is int and value == 1, "1"),
    "document": (lambda value: _text(value) and value != "", "a name"),
    "sha256": _DIGEST_OR_NULL,
    "bytes": _BYTES,
    "status": _STATUS,
    "reason": _REASON,
    "content_root": _DIGEST,
    "session": _SESSION,
    "root": (_or_null(_pair), "[scope, entity], or null"),
    "file": _FILE_NAME,
    "scopes": (lambda value: isinstance(value, list), "a list"),
    "parts": (lambda value: isinstance(value, list), "a list"),
}
_RECEIPT_MAY: _Fields = {
    "doc_id": (_matches(_UUID), "a UUID in lower case"),
    "owner": (lambda value: _owner(value), "owner_id, group_id and scopes"),
    "uri": (lambda value: _uri(value), "a pipestream URI"),
    "alias": (lambda value: _alias(value), "doc_id and owner"),
    "privacy": (lambda value: _privacy(value), "pad_children, opaque_types and document"),
    "claim": _CLAIM,
    "policy": (_policy, "a policy in its own form"),
    "outcome": (lambda value: value in ("RESOLVED", "PARTIAL", "FAILED"), "RESOLVED, PARTIAL or FAILED"),
}
_SCOPE: _Fields = {
    "session": _SESSION,
    "scope": (_scope, "a scope's ID"),
    "parent": (_pair, "[scope, entity]"),
    "depth": (_number(1, 7), "1 to 7"),
    "merkle_root": _DIGEST,
    "processed": _COUNT,
    "succeeded": _COUNT,
    "failed": _COUNT,
    "deferred": _COUNT,
}
_PART: _Fields = {
    "path": (
        lambda value: isinstance(value, list) and len(value) > 0 and all(map(_text, value)),
        "a list of names",
    ),
    "type": (_text, "a MIME type"),
    "sha256": _DIGEST_OR_NULL,
    "bytes": _BYTES,
    "status": _STATUS,
    "reason": _REASON,
    "attempts": (_number(0, 1 << 31), "a number"),
    "session": _SESSION,
    "scope": (_or_null(_scope), "a scope's ID, or null"),
    "entity": (_or_null(_entity), "an entity's ID, or null"),
    "file": _FILE_NAME,
}
_SCOPE_MAY: _Fields = {"padding": (lambda value: _padding(value), "a list of entity, status and file")}
_PART_MAY: _Fields = {"alias": _SESSION, "claim": _CLAIM}


def _privacy(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"pad_children", "opaque_types", "document"}
        and _number(0, 1000)(value["pad_children"])
        and isinstance(value["opaque_types"], bool)
        and (value["document"] is None or _SESSION[0](value["document"]))
    )


def _alias(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"doc_id", "owner"}
        and _matches(_UUID)(value["doc_id"])
        and _or_null(_owner)(value["owner"])
    )


def _owner(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"owner_id", "group_id", "scopes"}
        and _or_null(_text)(value["owner_id"])
        and _or_null(_text)(value["group_id"])
        and isinstance(value["scopes"], list)
        and all(map(_text, value["scopes"]))
    )


def _uri(value: Any) -> bool:
    try:
        return _text(value) and str(PipeStreamURI.parse(value)) == value
    except PipeStreamError:
        return False


def _padding(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and each.keys() == {"entity", "status", "file"}
        and _entity(each["entity"])
        and _STATUS[0](each["status"])
        and _FILE_NAME[0](each["file"])
        for each in value
    )


def check_form(receipt: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the errors in the receipt's fields. If there is one, the rest cannot be verified."""
    yield from _fields(receipt, _RECEIPT, "", _RECEIPT_MAY)
    for name, fields, may in (("scopes", _SCOPE, _SCOPE_MAY), ("parts", _PART, _PART_MAY)):
        entries = receipt.get(name)
        if not isinstance(entries, list):
            continue
        for index, entry in enumerate(entries):
            if isinstance(entry, dict):
                yield from _fields(entry, fields, f"{name}[{index}].", may)
            else:
                yield Difference.of_receipt(f"{name}[{index}]", "an object", entry)


def _fields(entry: Mapping[str, Any], fields: _Fields, prefix: str, may: _Fields) -> Iterator[Difference]:
    for name, (check, expected) in {**fields, **{name: may[name] for name in may if name in entry}}.items():
        if name not in entry:
            yield Difference.of_receipt(prefix + name, expected, None, "the field is missing")
        elif not check(entry[name]):
            yield Difference.of_receipt(prefix + name, expected, entry[name])
    for name in entry:
        if name not in fields and name not in may:
            yield Difference.of_receipt(prefix + shorten(name), None, entry[name], "the field is unknown")


def is_file(file: str) -> bool:
    """Return whether a str is the name of a payload, ``SESSION/SCOPE/ENTITY``."""
    return _FILE.fullmatch(file) is not None


def file_ids(file: str) -> tuple[str, int, int]:
    """Return the session, scope and entity of a payload's name that :func:`check_form` has accepted."""
    match = _FILE.fullmatch(file)
    if match is None:
        raise ValueError(f"{file!r} is not the name of a payload")
    return match[1], int(match[2]), int(match[3])
