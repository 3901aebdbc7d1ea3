"""Documents taken apart by a mapInArrow body of plain Python: the standard library and pypdfium2.

What an engineer writes who needs it once and cares for speed: archives are read in memory, C code does the work where
the standard library has it (zlib, expat, hashlib), and rows are put into batches of the size that Spark likes. It gives
the columns of penstock's rows; bytes go along in ``content``, because there is no sink that has them.
"""

import bz2
import email
import gzip
import hashlib
import io
import lzma
import re
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from email import policy
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pypdfium2

SCHEMA = pa.schema(
    [
        ("document", pa.string()),
        ("path", pa.list_(pa.string())),
        ("type", pa.string()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("depth", pa.int32()),
        ("text", pa.string()),
        ("content", pa.binary()),
    ]
)
MAX_DEPTH = 7
BATCH = 4 << 20
FIELD_LINE = re.compile(rb"[A-Za-z][A-Za-z0-9-]*:")
MAIL_FIELD = re.compile(
    rb"^(?:from|received|return-path|delivered-to|mime-version|message-id|to|date|subject):", re.I | re.M
)
NONE = (None, None)


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style") and self._hidden > 0

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(data.strip())


Row = tuple[list[str], str, bytes | None, str | None, str | None]


def take_apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, object]] = []
    size = 0
    for batch in batches:
        for path in batch.column("path").to_pylist():
            document = Path(path).name
            for way, kind, data, text, reason in _parts([], document, Path(path).read_bytes()):
                rows.append(_row(document, way, kind, data, text, reason))
                size += len(data or b"") + len(text or "")
                if size >= BATCH:
                    yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                    rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def _row(
    document: str, way: list[str], kind: str, data: bytes | None, text: str | None, reason: str | None
) -> dict[str, object]:
    return {
        "document": document,
        "path": way,
        "type": kind,
        "bytes": None if data is None else len(data),
        "sha256": None if data is None else hashlib.sha256(data).hexdigest(),
        "status": "COMPLETE" if reason is None else "FAILED",
        "reason": reason,
        "depth": len(way),
        "text": text,
        # As in a sink: what has children is only its children.
        "content": None if kind in CONTAINERS and reason is None else data,
    }


def _parts(way: list[str], name: str, data: bytes) -> Iterator[Row]:
    kind = _kind(data)
    if kind in CONTAINERS and len(way) < MAX_DEPTH:
        try:
            children = list(CONTAINERS[kind](name, data))
        except Exception as error:  # noqa: BLE001 - damage of any kind is a row
            yield way, kind, data, None, str(error) or type(error).__name__
            return
        yield way, kind, data, None, None
        for child, inner, reason in children:
            if reason is not None:
                yield [*way, child], "application/octet-stream", None, None, reason
            elif kind == "application/pdf":
                yield [*way, child], "text/plain", inner, inner.decode(), None
            else:
                yield from _parts([*way, child], child, inner)
        return
    text, reason = NONE
    try:
        text = _text(kind, data)
    except Exception as error:  # noqa: BLE001 - as above
        reason = str(error)
    yield way, kind, data, text, reason


def _kind(data: bytes) -> str:
    head = data[:4096]
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "application/zip"
    if head[:3] == b"\x1f\x8b\x08":
        return "application/gzip"
    if head[:3] == b"BZh":
        return "application/x-bzip2"
    if head[:6] == b"\xfd7zXZ\x00":
        return "application/x-xz"
    if head[257:262] == b"ustar":
        return "application/x-tar"
    if b"%PDF-" in head[:1024] and head[:1] == b"%":
        return "application/pdf"
    if b"\0" in head:
        return "application/octet-stream"
    start = head.lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    if start.startswith(b"<?xml") or (start.startswith(b"<") and start.rstrip().endswith(b">")):
        return "application/xml"
    if FIELD_LINE.match(head) and len(MAIL_FIELD.findall(head)) >= 2:
        return "message/rfc822"
    return "text/plain"


def _text(kind: str, data: bytes) -> str | None:
    if kind == "application/octet-stream" or kind in CONTAINERS:
        return None
    if kind == "application/xml":
        try:
            return "\n".join(text for text in map(str.strip, ET.fromstring(data).itertext()) if text)  # noqa: S314
        except ET.ParseError:
            kind = "text/plain"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    if kind == "text/html":
        parser = _Html()
        parser.feed(text)
        return "\n".join(parser.texts)
    return text


Children = Iterator[tuple[str, bytes, str | None]]


def _zip(_: str, data: bytes) -> Children:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            try:
                yield member.filename, archive.read(member), None
            except Exception as error:  # noqa: BLE001 - encrypted, broken: the others live on
                yield member.filename, b"", str(error)


def _tar(_: str, data: bytes) -> Children:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.issym() or member.islnk():
                yield member.name, member.linkname.encode(), None
            elif (file := archive.extractfile(member)) is not None:
                yield member.name, file.read(), None


def _stream(decompress: Callable[[bytes], bytes]) -> Callable[[str, bytes], "Children"]:
    def child(name: str, data: bytes) -> Children:
        yield name.rpartition(".")[0] or "part 1", decompress(data), None

    return child


def _pdf(_: str, data: bytes) -> Children:
    pdf = pypdfium2.PdfDocument(data)
    try:
        for number in range(len(pdf)):
            page = pdf[number]
            text_page = page.get_textpage()
            text = text_page.get_text_bounded(errors="replace").replace("\r\n", "\n")
            text_page.close()
            page.close()
            yield f"page {number + 1}", text.encode("utf-8", "replace"), None
    finally:
        pdf.close()


def _mail(_: str, data: bytes) -> Children:
    message = email.message_from_bytes(data, policy=policy.compat32)
    for number, part in enumerate(_leaves(message), 1):
        name = part.get_filename() or f"part {number}"
        if part.get_content_type() == "message/rfc822":
            yield name, part.get_payload(0).as_bytes(), None  # type: ignore[union-attr]
        else:
            yield name, part.get_payload(decode=True) or b"", None  # type: ignore[misc]


def _leaves(message: email.message.Message) -> Iterator[email.message.Message]:
    if message.is_multipart() and message.get_content_type() != "message/rfc822":
        for part in message.get_payload():
            yield from _leaves(part)  # type: ignore[arg-type]
    else:
        yield message


CONTAINERS = {
    "application/zip": _zip,
    "application/x-tar": _tar,
    "application/gzip": _stream(gzip.decompress),
    "application/x-bzip2": _stream(bz2.decompress),
    "application/x-xz": _stream(lzma.decompress),
    "application/pdf": _pdf,
    "message/rfc822": _mail,
}
