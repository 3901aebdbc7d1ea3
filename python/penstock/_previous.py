"""Find the earlier receipt of a document, and carry over parts of it into a new receipt.

A receipt's name depends on the document's bytes, so the receipt of an earlier version has another name. Next to the
receipts there is a small file for each document, a pointer, which is found by the document's name alone::

    receipts/KEY.json
    receipts/.documents/HH/HASH.json    {"document": NAME, "key": KEY, "previous": KEY | null}

HASH is the first 32 hex digits of the SHA-256 of the name, HH the first two of them; ``previous`` is the key of the
receipt that ``KEY`` has replaced, if it is another one. The folder is made from the existing receipts when an earlier
receipt is first requested, and updated from then on. In a store, ``.documents/made`` marks that all receipts have been
processed.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock._places import Place, is_uri
from penstock._receipt_form import Malformed, check_form, load_object

__all__ = ["EarlierReceipts", "KeptScopes", "Pointer", "keep_outcome"]

_FOLDER = ".documents"
_MARK = "made"
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Pointer:
    """The keys of a document's latest receipt and of the one before it."""

    document: str
    key: str
    previous: str | None


class EarlierReceipts:
    """A folder of receipts, or a prefix in a store, in which receipts are found by the names of documents."""

    def __init__(self, folder: str | os.PathLike[str], storage: Mapping[str, str] | None = None) -> None:
        """Keep the folder or URI; nothing is read yet.

        Raises ``ValueError`` for an invalid URI or option.
        """
        text = os.fspath(folder)
        self._folder: Path | Place = Place.open(text, storage) if is_uri(text) else Path(text)

    def __str__(self) -> str:
        return self._folder.uri if isinstance(self._folder, Place) else str(self._folder)

    def prepare(self) -> None:
        """Make the pointers if there are none yet, which reads each receipt once.

        Raises ``OSError`` if they cannot be written.
        """
        if self._has_pointers():
            return
        if isinstance(self._folder, Path):
            if self._folder.is_dir():
                _prepare_folder(self._folder)
            return
        # A store cannot rename atomically, so a mark is written last. Without it the same pointers are made again.
        found = [info for info in self._folder.files(recursive=False) if _is_receipt(info.base_name)]
        found.sort(key=lambda info: info.mtime_ns)
        receipts = [self._folder.below(info) for info in found]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            named = list(zip(pool.map(_document_of, receipts), receipts, strict=True))
            # The receipts of one document are processed in order, those of different documents in parallel.
            latest: dict[str, list[str]] = {}
            for document, receipt in named:
                if document is not None:
                    latest.setdefault(document, []).append(receipt.name.removesuffix(".json"))
            for _ in pool.map(lambda each: self._point_all(*each), latest.items()):
                pass
        (self._folder / _FOLDER / _MARK).write(b"{}")

    def _point_all(self, document: str, keys: list[str]) -> None:
        for key in keys:
            _point(self._folder / _FOLDER, document, key)

    def _has_pointers(self) -> bool:
        there = self._folder / _FOLDER
        return there.is_dir() if isinstance(there, Path) else (there / _MARK).exists()

    def pointer(self, document: str) -> Pointer | None:
        """Return the pointer of a document; ``None`` if it has none that can be read."""
        pointer = _read(_path(self._folder / _FOLDER, document))
        return pointer if pointer is not None and pointer.document == document else None

    def pointers(self, start: str) -> Iterator[Pointer]:
        """Yield the pointers of all documents whose hashes begin with ``start``, two hex digits."""
        there = self._folder / _FOLDER / start
        names = (
            [path.name for path in there.glob("*.json")]
            if isinstance(there, Path)
            else [info.base_name for info in there.files(recursive=False)]
        )
        for name in sorted(names):
            if (pointer := _read(there / name)) is not None:
                yield pointer

    def point(self, documents: Mapping[str, str]) -> None:
        """Make the given receipts the latest ones of their documents; do nothing if there are no pointers.

        ``documents`` maps keys to documents' names. Raises ``OSError`` if a pointer cannot be written.
        """
        if not documents or not self._has_pointers():
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda each: _point(self._folder / _FOLDER, each[1], each[0]), documents.items()):
                pass

    def load(self, key: str) -> dict[str, Any]:
        """Read a receipt; raise ``FileNotFoundError`` if it does not exist."""
        return load_object(self._folder / f"{key}.json")

    def find(self, document: str) -> dict[str, Any] | None:
        """Return the latest receipt of a document without reading any other; ``None`` if there is no valid one.

        A document without a valid receipt is sent again completely, which is never wrong.
        """
        pointer = self.pointer(document)
        if pointer is None:
            return None
        try:
            receipt = self.load(pointer.key)
        except (OSError, Malformed):
            return None
        return None if any(check_form(receipt)) or receipt["document"] != document else receipt


def _prepare_folder(folder: Path) -> None:
    made = Path(tempfile.mkdtemp(prefix=".receipts-", dir=folder))
    try:
        receipts = [path for path in folder.glob("*.json") if _is_receipt(path.name)]
        for path in sorted(receipts, key=lambda path: path.stat().st_mtime_ns):
            if (document := _document_of(path)) is not None:
                _point(made, document, path.stem)
        # Another process may have been faster; then its folder has the same content.
        with suppress(OSError):
            made.rename(folder / _FOLDER)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _document_of(receipt: Path | Place) -> str | None:
    try:
        document = load_object(receipt)["document"]
    except (OSError, Malformed, KeyError):
        return None
    return document if isinstance(document, str) else None


def _is_receipt(name: str) -> bool:
    return name.endswith(".json") and _is_key(name.removesuffix(".json"))


def _is_key(key: object) -> bool:
    return isinstance(key, str) and len(key) == 32 and set(key) <= set("0123456789abcdef")


def _path(folder: Path | Place, document: str) -> Path | Place:
    """Return the path of a document's pointer below the folder of pointers."""
    name = hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return folder / name[:2] / f"{name}.json"


def _read(path: Path | Place) -> Pointer | None:
    try:
        found = load_object(path)
        pointer = Pointer(found["document"], found["key"], found["previous"])
    except (OSError, Malformed, KeyError):
        return None
    sound = _is_key(pointer.key) and (pointer.previous is None or _is_key(pointer.previous))
    return pointer if sound else None


def _point(folder: Path | Place, document: str, key: str) -> None:
    path = _path(folder, document)
    earlier = _read(path)
    previous = None
    if earlier is not None:
        previous = earlier.previous if earlier.key == key else earlier.key
    text = json.dumps({"document": document, "key": key, "previous": previous})
    if isinstance(path, Place):
        path.write(text.encode())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


class KeptScopes:
    """The scopes of an earlier receipt that belong in a new one: those whose entities are all parts of it too."""

    def __init__(self, previous: Mapping[str, Any] | None) -> None:
        """Keep the earlier receipt, if there is one. After that, every part of the new receipt must be added."""
        self._previous: Iterable[Mapping[str, Any]] = () if previous is None else previous["scopes"]
        self._missing: dict[tuple[str, int], int] = {}
        self._entities: set[tuple[str, int, int]] = set()
        self._deferred: dict[str, tuple[str, int]] = {}
        for part in () if previous is None else previous["parts"]:
            if part["scope"] is not None:
                place = (part["session"], part["scope"])
                self._missing[place] = self._missing.get(place, 0) + 1
                if part["status"] == "DEFERRED" and "claim" in part:
                    self._deferred[part["claim"]] = place
        self._sessions = {session for session, _ in self._missing} | {scope["session"] for scope in self._previous}

    def add(self, part: Mapping[str, Any]) -> None:
        """Add a part of the new receipt."""
        # A part that was deferred and sent again also counts in the scope in which it was deferred.
        if (before := self._deferred.get(part.get("claim", ""))) is not None:
            self._missing[before] -= 1
            return
        if part["session"] not in self._sessions or part["scope"] is None:
            return
        place = (part["session"], part["scope"])
        self._entities.add((*place, part["entity"]))
        if place in self._missing:
            self._missing[place] -= 1

    def add_document(self, receipt: Mapping[str, Any]) -> None:
        """Add the document itself."""
        if receipt["root"] is not None and receipt["session"] in self._sessions:
            self._entities.add((receipt["session"], *receipt["root"]))

    def scopes(self) -> Iterator[Mapping[str, Any]]:
        """Yield the scopes, as they are in the earlier receipt."""
        for scope in self._previous:
            missing = self._missing.get((scope["session"], scope["scope"]))
            # A scope without parts belongs to its container.
            if missing == 0 or (missing is None and (scope["session"], *scope["parent"]) in self._entities):
                yield scope


def keep_outcome(
    receipt: dict[str, Any], previous: Mapping[str, Any] | None, parts: Callable[[], list[dict[str, Any]]]
) -> dict[str, Any]:
    """Return a receipt with the policy and outcome of the earlier one, if the document itself was not sent again."""
    if previous is not None and (receipt["session"], receipt["root"]) == (previous["session"], previous["root"]):
        for name in ("policy", "outcome"):
            receipt.pop(name, None)
            if name in previous:
                receipt[name] = previous[name]
        if receipt.get("outcome") == "PARTIAL" and all(
            part["status"] == "COMPLETE" for part in parts() if len(part["path"]) == 1
        ):
            # The parts that were deferred then are COMPLETE now.
            receipt["outcome"] = "RESOLVED"
    return receipt
