"""The child process that reads PDFs: ``python -m penstock._pdf_worker``, started by ``penstock._pdf`` alone.

A broken PDF can crash pdfium, make it hang, or make it use all memory. So it runs in this separate process with its own
limits; the parent kills it if it is late, and starts another one. It extracts text and renders nothing.

Requests are read from stdin and answers are written to stdout, one for each request. Both are frames::

    +-------+----------------+----------------------+
    | tag 1 | length 4 (BE)  | length bytes        |
    +-------+----------------+----------------------+

    O  open    JSON {path, max_memory, max_text, seconds}   D JSON {pages, metadata} | E reason
    P  page    4 bytes BE, counted from 0                  T the page's text in UTF-8 | E reason
    C  close   nothing                                      D JSON {}

``X reason`` instead of any other answer is the last one: this process ends.
"""

import gc
import json
import os
import resource
import signal
import struct
import sys
from typing import BinaryIO

import pypdfium2
from pypdfium2 import raw

from penstock._pdf import HEADER

__all__: list[str] = []

_MAX_REQUEST = 1 << 20
_GRACE = 5.0
"""The seconds after the parent's timeout at which this process kills itself; needed only if the parent has died."""
_EVERYWHERE = 1e7
"""Half the side, in points, of the square whose text is extracted: it includes text outside of the page."""


def _read_frame(stream: BinaryIO, limit: int) -> tuple[bytes, bytes] | None:
    """Read one frame; return ``None`` at the end of the stream. A body longer than ``limit`` is a ``ValueError``."""
    header = stream.read(HEADER.size)
    if not header:
        return None
    tag, length = HEADER.unpack(header)
    if length > limit:
        raise ValueError(f"a frame of {length} bytes, more than {limit}")
    body = stream.read(length)
    if len(body) != length:
        raise EOFError("the stream ended inside a frame")
    return tag, body


def _write_frame(stream: BinaryIO, tag: bytes, body: bytes) -> None:
    """Write one frame and flush it."""
    stream.write(HEADER.pack(tag, len(body)) + body)
    stream.flush()


class _Refused(Exception):
    """The PDF, or one page of it, cannot be read; the text is the reason."""


def _limit_memory(size: int) -> None:
    """Limit the address space to ``size`` bytes more than this process uses now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            taken = int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        # No /proc: Python and pdfium map far less than this before they read anything.
        taken = 1 << 30
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = taken + size
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    except (OSError, ValueError):
        # macOS sometimes rejects the limit; the time limit still applies.
        return


class _Reader:
    """The open PDF, if any, and the answers about it."""

    def __init__(self) -> None:
        self.pdf: pypdfium2.PdfDocument | None = None
        self.max_text = 0
        self.seconds = 0.0

    def answer(self, tag: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Execute one request and return the answer."""
        if tag == b"P" and self.pdf is not None:
            return b"T", self._page(self.pdf, body)
        self._close()
        return b"D", self._open(body) if tag == b"O" else b"{}"

    def _close(self) -> None:
        if self.pdf is not None:
            self.pdf.close()
            self.pdf = None
            gc.collect()

    def _open(self, body: bytes) -> bytes:
        request = json.loads(body)
        self.max_text, self.seconds = request["max_text"], request["seconds"]
        _arm(self.seconds)
        _limit_memory(request["max_memory"])
        try:
            self.pdf = pypdfium2.PdfDocument(request["path"])
        except pypdfium2.PdfiumError as error:
            raise _Refused(_why(error.err_code)) from error
        except OSError as error:
            raise _Refused("the PDF cannot be read") from error
        pages = len(self.pdf)
        if pages < 1:
            raise _Refused("the PDF has no pages")
        metadata = {key.lower(): value for key, value in self.pdf.get_metadata_dict(skip_empty=True).items()}
        return json.dumps({"pages": pages, "metadata": metadata}).encode()

    def _page(self, pdf: pypdfium2.PdfDocument, body: bytes) -> bytes:
        _arm(self.seconds)
        (index,) = struct.unpack(">I", body)
        try:
            page = pdf[index]
        except pypdfium2.PdfiumError as error:
            raise _Refused("the page does not load") from error
        try:
            data = _text(page).encode("utf-8", "replace")
        except pypdfium2.PdfiumError as error:
            raise _Refused("the page's text cannot be read") from error
        finally:
            page.close()
        if len(data) > self.max_text:
            raise _Refused(f"the page's text has more than {self.max_text} bytes, the limit")
        return data


def _text(page: pypdfium2.PdfPage) -> str:
    text_page = page.get_textpage()
    try:
        # By area, because pdfium's other function does not support characters above U+FFFF.
        text = text_page.get_text_bounded(-_EVERYWHERE, -_EVERYWHERE, _EVERYWHERE, _EVERYWHERE, errors="replace")
    finally:
        text_page.close()
    return str(text).rstrip("\0").replace("\r\n", "\n")


def _arm(seconds: float) -> None:
    """Make the kernel end this process if it takes too long, in case the parent has died; 0 disarms the timer."""
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE if seconds else 0)


def _why(code: int | None) -> str:
    match code:
        case raw.FPDF_ERR_PASSWORD:
            return "the PDF is encrypted"
        case raw.FPDF_ERR_SECURITY:
            return "the PDF is encrypted, by an unsupported security handler"
        case raw.FPDF_ERR_FILE:
            return "the PDF cannot be read"
        case _:
            return "the PDF does not parse"


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    reader = _Reader()
    while (frame := _read_frame(requests, _MAX_REQUEST)) is not None:
        try:
            tag, body = reader.answer(*frame)
        except _Refused as refusal:
            tag, body = b"E", str(refusal).encode()
        except MemoryError:
            # The state of this process is unreliable now; the parent receives the reason and starts another one.
            _write_frame(answers, b"X", b"the PDF reader ran out of memory, within its limit")
            return
        _arm(0)
        _write_frame(answers, tag, body)


def _confine() -> None:
    """Drop what reading a PDF does not need: no core dumps, no written files, and Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))


def _main() -> None:
    _confine()
    # Exclude the imported modules from garbage collection, which would otherwise scan them after each PDF.
    gc.freeze()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output of a library must not get between two frames.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    _serve(requests, answers)


if __name__ == "__main__":
    _main()
