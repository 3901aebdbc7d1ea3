"""Compare two receipts of a document, part by part."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Change", "compare", "part_key"]

Kind = Literal["added", "changed", "removed", "unchanged"]


@dataclass(frozen=True, slots=True)
class Change:
    """One part in two receipts of the same document, as :func:`compare` yields it."""

    kind: Kind
    """``changed`` means different bytes, type or status. An index should delete parts that are ``removed``."""
    key: str
    """The part's key as of :func:`part_key`, the same in every version of the document."""
    path: tuple[str, ...]
    """The names from the document's containers down to the part; empty for the document itself."""
    nth: int
    """The number of parts with the same path that precede it in the document; 0 unless names repeat."""
    old: Mapping[str, Any] | None
    """The part in the earlier receipt; ``None`` if it was added."""
    new: Mapping[str, Any] | None
    """The part in the later receipt; ``None`` if it was removed."""


def part_key(document: str, path: Sequence[str], nth: int = 0) -> str:
    """Return the key of a part, 32 hex digits.

    The key does not depend on any content, so the rows of an index keep it when the document changes.

    Args:
        document: The document's name.
        path: The part's path in the document.
        nth: The number of parts with the same path that precede it; by default 0.

    >>> part_key("a.zip", ["b.txt"]) == part_key("a.zip", ["b.txt"], 1)
    False
    """
    digest = hashlib.sha256()
    for name in (document, *path):
        data = name.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    digest.update(b"\0\0\0\0" + nth.to_bytes(4, "big"))
    return digest.hexdigest()[:32]


def compare(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Iterator[Change]:
    """Compare two receipts of one document, as :func:`penstock.receipts.load` returns them.

    Args:
        old: The earlier receipt; if None, every part is ``added``.
        new: The later receipt; if None, every part is ``removed``.

    Yields:
        A change for the document itself, then one for each part of the later receipt in its order, then one for each
        removed part.

    >>> receipt = {"document": "a", "sha256": "00", "status": "COMPLETE", "parts": []}
    >>> [(change.kind, change.path) for change in compare(receipt, receipt)]
    [('unchanged', ())]
    """
    earlier = {} if old is None else {(path, nth): part for path, nth, part in _parts(old)}
    document = str((new or old or {}).get("document", ""))
    for path, nth, part in () if new is None else _parts(new):
        before = earlier.pop((path, nth), None)
        kind: Kind = "added" if before is None else "unchanged" if _same(before, part) else "changed"
        yield Change(kind, part_key(document, path, nth), path, nth, before, part)
    for (path, nth), part in earlier.items():
        yield Change("removed", part_key(document, path, nth), path, nth, part, None)


def _parts(receipt: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], int, Mapping[str, Any]]]:
    own = {name: value for name, value in receipt.items() if name not in ("parts", "scopes")}
    yield (), 0, own
    seen: Counter[tuple[str, ...]] = Counter()
    for part in receipt["parts"]:
        path = tuple(part["path"])
        yield path, seen[path], part
        seen[path] += 1


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return all(old.get(name) == new.get(name) for name in ("sha256", "bytes", "type", "status"))
