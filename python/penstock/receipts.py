"""Receipts: records of what was sent of a document, which anyone can verify against the content of a sink.

The protocol's Merkle root covers IDs and statuses; a receipt also covers content. :func:`verify` trusts no recorded
digest: it reads the sink's payloads and logs, and computes every digest again.

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
    """Write a document's receipt as ``KEY.json`` into a folder, which is created if necessary.

    The file is written atomically, and replaces an earlier receipt with the same key. The example of
    :class:`penstock.documents.DocumentSender` writes and verifies a receipt.

    Returns:
        The path of the receipt.

    Raises:
        OSError: The receipt cannot be written.
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
    """Read a receipt and check its form. Nothing is compared with a sink.

    Returns:
        A dictionary of exactly the published fields.

    Raises:
        DocumentsError: Of kind "malformed", if the file is not a well-formed receipt.
        OSError: The file cannot be read.
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
    """Compare a receipt with the files of a sink. An empty list means that the sink has every byte.

    If a session is not closed yet, its end is awaited for up to 3 seconds.

    Args:
        receipt: The receipt's path, or its URI in an object store.
        sink: The sink's folder, or its URI in an object store.
        storage: The options of the object store.

    Raises:
        OSError: The receipt cannot be read. If the sink cannot be read, that is a difference.
        ValueError: A URI or an option is invalid.
    """
    return [difference for _, differences in verify_all(receipt, sink, storage=storage) for difference in differences]


def verify_all(
    receipts: str | os.PathLike[str],
    sink: str | os.PathLike[str],
    *,
    storage: Mapping[str, str] | None = None,
    uri: str | None = None,
) -> Iterator[tuple[Path, Iterator[Difference]]]:
    """Verify a receipt, or every ``*.json`` file of a folder in order of name.

    Args:
        receipts: A receipt or a folder of receipts: a path, or a URI in an object store.
        sink: The sink's folder, or its URI in an object store.
        storage: The options of the object store.
        uri: A ``pipestream://`` URI: verify only the documents of its session, or the document whose root entity it
            names.

    Yields:
        The path of each receipt with an iterator over its differences, which reads the sink as it advances: exhaust it
        before you continue with the next receipt. If ``receipts`` is a URI, the path is that of a local copy.

    Raises:
        OSError: The file or folder of receipts does not exist.
        DocumentsError: The folder has no receipts.
        ValueError: A URI of a store or an option is invalid.
        PipeStreamError: ``uri`` is not a valid ``pipestream://`` URI.
    """
    wanted = None if uri is None else PipeStreamURI.parse(uri)
    folder = Sink(sink_folder(sink, storage))
    with local_receipts(receipts, storage) as found:
        if not found:
            raise DocumentsError(f"{os.fspath(receipts)} has no receipts (*.json)", "misuse")
        for path in found:
            if wanted is None or _is_of(path, wanted):
                yield path, _differences(path, folder)


def _is_of(path: Path, uri: PipeStreamURI) -> bool:
    """Return whether a URI names a receipt's document: by its session, and by its scope and entity if it has them."""
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
    try:
        for difference in _compare(receipt, path, sink):
            yield replace(difference, text=named + difference.text)
    except OSError as error:
        # A store that fails, or a folder that cannot be listed: the rest of this receipt is not verified.
        yield Difference("sink", "files that can be read", None, f"{named}the sink cannot be read: {error}")


def _compare(receipt: dict[str, Any], path: Path, sink: Sink) -> Iterator[Difference]:
    malformed = False
    for difference in check_form(receipt):
        malformed = True
        yield difference
    # `Verification` relies on the receipt's form.
    if not malformed:
        yield from Verification(receipt, path.stem, sink.of(receipt)).differences()
