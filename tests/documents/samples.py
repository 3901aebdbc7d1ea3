"""Real sample files, made by Python's own libraries, and PDFs written by hand."""

import bz2
import csv
import gzip
import io
import json
import lzma
import mailbox
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from email.message import EmailMessage
from pathlib import Path

import pytest

__all__ = [
    "bz2_file",
    "csv_file",
    "gzip_file",
    "json_file",
    "mail",
    "mbox",
    "pdf",
    "repeated",
    "tar_file",
    "xz_file",
    "zip_bomb",
    "zip_file",
]

Members = Mapping[str, bytes] | Iterable[tuple[str, bytes]]


def _pairs(members: Members) -> Iterable[tuple[str, bytes]]:
    return members.items() if isinstance(members, Mapping) else members


def repeated(names: Collection[str]) -> AbstractContextManager[object]:
    """Expect zipfile to warn where a name is written twice, and hide no warning where none is."""
    return pytest.warns(UserWarning, match="^Duplicate name: ") if len(set(names)) < len(names) else nullcontext()


def zip_file(members: Members) -> bytes:
    """A zip archive; names may repeat."""
    out, pairs = io.BytesIO(), list(_pairs(members))
    with repeated([name for name, _ in pairs]), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in pairs:
            # A ZipInfo takes any name as it is, and its date is always the same one.
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def zip_bomb(size: int) -> bytes:
    """A zip archive with one member of so many zeros."""
    return zip_file({"zeros.bin": bytes(size)})


def tar_file(members: Members, links: Mapping[str, str] | None = None) -> bytes:
    """A tar archive, with symbolic links if wanted."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in _pairs(members):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return out.getvalue()


def gzip_file(data: bytes) -> bytes:
    """A gzip stream without name and date."""
    return gzip.compress(data, mtime=0)


def bz2_file(data: bytes) -> bytes:
    """A bzip2 stream."""
    return bz2.compress(data)


def xz_file(data: bytes) -> bytes:
    """An xz stream."""
    return lzma.compress(data)


def csv_file(rows: Iterable[Iterable[object]]) -> bytes:
    """A table."""
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


def json_file(value: object) -> bytes:
    """A JSON text."""
    return json.dumps(value, indent=1).encode()


def mail(subject: str, body: str, attachments: Members = ()) -> bytes:
    """A mail with attachments."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", subject
    message["Date"] = "Thu, 01 Jan 2026 00:00:00 +0000"
    message.set_content(body)
    for name, data in _pairs(attachments):
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


def mbox(mails: Iterable[bytes]) -> bytes:
    """A mailbox."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "box")
        box = mailbox.mbox(path)
        for data in mails:
            box.add(data)
        box.close()
        return path.read_bytes()


def pdf(pages: Iterable[str], *, title: str = "A title", trailer: str = "") -> bytes:
    """A PDF with a line of text on each page; ``trailer`` goes into its trailer, ``/Encrypt`` for example."""
    texts = list(pages)
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(texts)))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(texts):
        escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        stream = f"BT /F1 24 Tf 72 720 Td ({escaped}) Tj ET"
        bodies.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * index} 0 R >>"
        )
        bodies.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    bodies.append(f"<< /Title ({title}) >>")
    out = bytearray(b"%PDF-1.7\n")
    offsets = []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    start = len(out)
    out += f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    entries = f"/Size {len(bodies) + 1} /Root 1 0 R /Info {len(bodies)} 0 R {trailer}"
    out += f"trailer\n<< {entries} >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)
