"""Receipts: what was sent of a document, in a form that anyone can check against what a sink has.

The protocol's Merkle root covers IDs and statuses; a receipt covers content. :func:`verify` believes nobody: it reads
the sink's payloads and logs, and computes every digest anew.

>>> import tempfile
>>> from pathlib import Path
>>> from penstock import receipts
>>> with tempfile.TemporaryDirectory() as folder:
...     receipt = Path(folder, "receipt.json")
...     _ = receipt.write_text('{"version": 1}')
...     differences = receipts.verify(receipt, folder)
>>> differences[0].text
'document: must be a name, but the receipt says null (the field is missing)'
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._receipt_changes import Change, compare, part_key
from penstock._receipt_check import Verification
from penstock._receipt_form import Difference, Malformed, check_form, load_object, shorten
from penstock._receipt_sink import Sink
from penstock._sink_folders import local_receipts, sink_folder
from penstock.errors import DocumentsError
from penstock.pipestream import PipeStreamURI

if TYPE_CHECKING:
    from penstock.documents import DocumentResult

__all__ = ["Change", "Difference", "compare", "load", "part_key", "verify", "verify_all", "write"]


def write(result: "DocumentResult", folder: str | os.PathLike[str]) -> Path:
    """Write a document's receipt as ``KEY.json`` into ``folder``, which is made if need be; give its path.

    The file is there as a whole or not at all; an earlier receipt of the same document is replaced. Raises ``OSError``
    if it cannot be written. The example of :class:`penstock.documents.DocumentSender` writes and verifies one.
    """
    target = Path(folder, f"{result.key}.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(result.receipt(), file, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    return target


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a receipt: a dictionary of exactly the published fields. Nothing is compared with a sink.

    Raises :class:`penstock.DocumentsError` of kind "malformed" if it has not the form of one, ``OSError`` if it cannot
    be read.
    """
    try:
        receipt = load_object(Path(path))
    except Malformed as error:
        raise DocumentsError(f"{path}: {error}", "malformed") from error
    for difference in check_form(receipt):
        raise DocumentsError(f"{path}: {difference.text}", "malformed")
    return receipt


def verify(
    receipt: str | os.PathLike[str], sink: str | os.PathLike[str], *, storage: Mapping[str, str] | None = None
) -> list[Difference]:
    """Compare a receipt with the files of a sink; no difference means that all is there, byte by byte.

    Both may be URIs of an object store, with its options in ``storage``. A session that is not closed yet is waited
    for, up to 3 seconds. Raises ``OSError`` only if the receipt itself cannot be read, ``ValueError`` for a URI or an
    option that is none.
    """
    return [difference for _, differences in verify_all(receipt, sink, storage=storage) for difference in differences]


def verify_all(
    receipts: str | os.PathLike[str],
    sink: str | os.PathLike[str],
    *,
    storage: Mapping[str, str] | None = None,
    uri: str | None = None,
) -> Iterator[tuple[Path, Iterator[Difference]]]:
    """Verify a receipt, or every ``*.json`` of a folder in the order of the names: each with its differences.

    With ``uri``, a ``pipestream://`` URI, only documents of that session are verified, or the one whose root entity it
    names. Differences come while the sink is being read; exhaust one iterator before you take the next. Both may be
    URIs, with options of the store in ``storage``; the path is that of a copy of the receipt then. Raises ``OSError``
    if there is no such file or folder, :class:`penstock.DocumentsError` if the folder has no receipts, ``ValueError``
    for a URI or an option that is none, :class:`penstock.PipeStreamError` for a ``uri`` that is none.
    """
    wanted = None if uri is None else PipeStreamURI.parse(uri)
    folder = Sink(sink_folder(sink, storage))
    with local_receipts(receipts, storage) as found:
        if not found:
            raise DocumentsError(f"{os.fspath(receipts)} has no receipts: no file ends in .json", "misuse")
        for path in found:
            if wanted is None or _is_of(path, wanted):
                yield path, _differences(path, folder)


def _is_of(path: Path, uri: PipeStreamURI) -> bool:
    """Whether a receipt is of a document that a URI names: by its session and, where it names them, by its root."""
    try:
        receipt = load_object(path)
    except Malformed:
        return False
    root, scope = receipt.get("root"), 0 if uri.entity_id is not None and not uri.scope_path else None
    scope = uri.scope_path[-1] if uri.scope_path else scope
    if receipt.get("session") != uri.session_id:
        return False
    if scope is None:
        return True
    return isinstance(root, list) and root[:1] == [scope] and uri.entity_id in (None, *root[1:2])


def _differences(path: Path, sink: Sink) -> Iterator[Difference]:
    try:
        receipt = load_object(path)
    except Malformed as error:
        yield Difference("receipt", "a receipt", None, str(error))
        return
    if (missing := sink.folder.missing()) is not None:
        yield Difference("sink", "a folder", None, missing)
        return
    document = receipt.get("document")
    named = f"{shorten(document)}: " if isinstance(document, str) and document else ""
    for difference in _compare(receipt, path, sink):
        yield replace(difference, text=named + difference.text)


def _compare(receipt: dict[str, Any], path: Path, sink: Sink) -> Iterator[Difference]:
    malformed = False
    for difference in check_form(receipt):
        malformed = True
        yield difference
    # What comes now relies on the form.
    if not malformed:
        yield from Verification(receipt, path.stem, sink.of(receipt)).differences()
