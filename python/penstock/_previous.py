"""Earlier receipts: how the one of a document is found, and what a new receipt takes over from it.

A receipt's name depends on the document's octets, so the receipt of an earlier version has another one. Beside the
receipts there is a small file for each document, found by the document's name alone::

    receipts/KEY.json
    receipts/.documents/HH/HASH.json    {"document": NAME, "key": KEY, "previous": KEY | null}

HASH is the first 32 hex digits of the SHA-256 of the name, HH the first two of them; ``previous`` is the receipt that
``KEY`` has replaced, where that has another name. The folder is made when somebody first asks for an earlier receipt,
out of the receipts that are there, and kept up from then on.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock._receipt_form import Malformed, check_form, load_object

__all__ = ["KeptScopes", "Pointer", "find_receipt", "point", "pointer_of", "pointers", "prepare"]

_FOLDER = ".documents"


@dataclass(frozen=True, slots=True)
class Pointer:
    """Which receipt of a document is the latest one, and which one was before it."""

    document: str
    key: str
    previous: str | None


def _path(folder: Path, document: str) -> Path:
    """Where a document's pointer is, below the folder of pointers."""
    name = hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return folder / name[:2] / f"{name}.json"


def _read(path: Path) -> Pointer | None:
    try:
        found = load_object(path)
        pointer = Pointer(found["document"], found["key"], found["previous"])
    except (OSError, Malformed, KeyError):
        return None
    sound = _is_key(pointer.key) and (pointer.previous is None or _is_key(pointer.previous))
    return pointer if sound else None


def _is_key(key: object) -> bool:
    return isinstance(key, str) and len(key) == 32 and set(key) <= set("0123456789abcdef")


def pointer_of(folder: Path, document: str) -> Pointer | None:
    """Find the pointer of a document; ``None`` if it has none that can be read."""
    pointer = _read(_path(folder / _FOLDER, document))
    return pointer if pointer is not None and pointer.document == document else None


def pointers(folder: Path, start: str) -> Iterator[Pointer]:
    """Give the pointers of all documents whose hashes begin with ``start``, two hex digits."""
    for path in sorted((folder / _FOLDER / start).glob("*.json")):
        if (pointer := _read(path)) is not None:
            yield pointer


def prepare(folder: Path) -> None:
    """Make the pointers of a folder of receipts that has none yet, out of the receipts; this reads each of them once.

    Raises ``OSError`` if the folder cannot be written.
    """
    if (folder / _FOLDER).is_dir() or not folder.is_dir():
        return
    made = Path(tempfile.mkdtemp(prefix=".receipts-", dir=folder))
    try:
        receipts = [path for path in folder.glob("*.json") if _is_key(path.stem)]
        for path in sorted(receipts, key=lambda path: path.stat().st_mtime_ns):
            with suppress(OSError, Malformed, KeyError, TypeError):
                _point(made, str(load_object(path)["document"]), path.stem)
        # Somebody else may have been faster; the folder is then the same.
        with suppress(OSError):
            made.rename(folder / _FOLDER)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def point(folder: Path, document: str, key: str) -> None:
    """Say that ``KEY.json`` is now the latest receipt of ``document``, in a folder that has pointers."""
    if (folder / _FOLDER).is_dir():
        _point(folder / _FOLDER, document, key)


def _point(folder: Path, document: str, key: str) -> None:
    path = _path(folder, document)
    earlier = _read(path)
    previous = None
    if earlier is not None:
        previous = earlier.previous if earlier.key == key else earlier.key
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"document": document, "key": key, "previous": previous}), encoding="utf-8")
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def find_receipt(folder: Path, document: str) -> dict[str, Any] | None:
    """Find the latest receipt of a document without looking at any other; ``None`` if there is none of the right form.

    A document without one that can be relied on is sent anew, which is never wrong.
    """
    pointer = pointer_of(folder, document)
    if pointer is None:
        return None
    try:
        receipt = load_object(folder / f"{pointer.key}.json")
    except (OSError, Malformed):
        return None
    return None if any(check_form(receipt)) or receipt["document"] != document else receipt


class KeptScopes:
    """Which scopes of an earlier receipt belong into a new one: those of which every entity is a part there, too."""

    def __init__(self, previous: Mapping[str, Any] | None) -> None:
        """Take the earlier receipt, if there is one; then every part of the new one must be added."""
        self._previous: Iterable[Mapping[str, Any]] = () if previous is None else previous["scopes"]
        self._missing: dict[tuple[str, int], int] = {}
        self._entities: set[tuple[str, int, int]] = set()
        for part in () if previous is None else previous["parts"]:
            if part["scope"] is not None:
                place = (part["session"], part["scope"])
                self._missing[place] = self._missing.get(place, 0) + 1
        self._sessions = {session for session, _ in self._missing} | {scope["session"] for scope in self._previous}

    def add(self, part: Mapping[str, Any]) -> None:
        """Take a part of the new receipt."""
        if part["session"] not in self._sessions or part["scope"] is None:
            return
        place = (part["session"], part["scope"])
        self._entities.add((*place, part["entity"]))
        if place in self._missing:
            self._missing[place] -= 1

    def add_document(self, receipt: Mapping[str, Any]) -> None:
        """Take the document itself."""
        if receipt["root"] is not None and receipt["session"] in self._sessions:
            self._entities.add((receipt["session"], *receipt["root"]))

    def scopes(self) -> Iterator[Mapping[str, Any]]:
        """Give the scopes, as the earlier receipt has them."""
        for scope in self._previous:
            missing = self._missing.get((scope["session"], scope["scope"]))
            # An empty one is its container's.
            if missing == 0 or (missing is None and (scope["session"], *scope["parent"]) in self._entities):
                yield scope
