"""Read PDFs in child processes: the parent's side of ``penstock._pdf_worker``, called by the Rust core.

A child reads one PDF at a time, and many one after another. A PDF of many pages uses two children, which read alternate
pages ahead of the requests. A child that is late, crashes or runs out of memory is killed; its current page fails with
the reason, and the next page gets a new child. After a fork the children stay with the parent, and the forked process
starts its own.
"""

import atexit
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import suppress

__all__ = ["HEADER", "PdfError", "PdfPages", "open_pdf"]

HEADER = struct.Struct(">cI")
"""The header of a frame: its tag and the number of bytes that follow."""

_START_SECONDS = 30.0
"""The time in which a child must start, in addition to the time for its first request."""
_KEPT = 4
"""The most idle children that are kept for the next PDF."""
_MANY_PAGES = 16
"""The fewest pages for which a PDF is read by two children, and ahead: then that saves more than opening it twice
costs."""
_AHEAD = 4
"""The number of pages that are then requested from a child at once."""
_RECYCLED_AFTER = 500
"""The number of PDFs after which a child is replaced, because pdfium's memory is fragmented by then."""
_DOCUMENT_FACTOR = 10
"""How many times longer than one page a whole PDF may take."""
_MALLOC = "glibc.malloc.trim_threshold=67108864:glibc.malloc.top_pad=16777216:glibc.malloc.tcache_count=1024"
"""Pdfium makes and frees millions of small objects: it needs a tenth less time if the allocator keeps more memory."""
_MAX_CRASHES = 3
"""The number of dead children after which the rest of a PDF is given up."""


class PdfError(Exception):
    """The PDF, or one page of it, cannot be read; the text is the reason."""


class _Died(Exception):
    """The child has died or was killed; the text is the reason."""


class _Child:
    """A running child process, with which frames are exchanged."""

    def __init__(self) -> None:
        if not sys.executable:
            raise PdfError("no PDF reader: this Python does not know its executable")
        # -P keeps the working folder out of the child's path; PYTHONPATH passes the parent's own path.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        environment.setdefault("GLIBC_TUNABLES", _MALLOC)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock._pdf_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                close_fds=True,
                process_group=0,
                bufsize=0,
            )
        except OSError as error:
            raise PdfError(f"no PDF reader: {error.strerror}") from error
        self.opened = 0
        self.fresh = True
        self._unwanted = 0
        self._ahead = bytearray()
        self._poll = select.poll()
        if self.process.stdout is not None:
            self._poll.register(self.process.stdout, select.POLLIN)
        _children.add(self)

    def send(self, tag: bytes, body: bytes) -> None:
        """Send one request. Requests for a few pages may wait in the pipe."""
        requests = self.process.stdin
        if requests is None:
            raise _Died("the PDF reader has ended")
        try:
            requests.write(HEADER.pack(tag, len(body)) + body)
        except OSError:
            raise _Died(self._epitaph()) from None
        except BaseException:
            self.kill()
            raise

    def answer(self, limit: int, seconds: float) -> tuple[bytes, bytes]:
        """Wait for the next answer, of at most ``limit`` bytes; kill the child if it is late."""
        deadline = time.monotonic() + seconds + (_START_SECONDS if self.fresh else 0)
        try:
            answer, data = self._frame(limit, deadline)
            while self._unwanted and answer != b"X":
                self._unwanted -= 1
                answer, data = self._frame(limit, deadline)
        except TimeoutError:
            self.kill()
            raise _Died(f"took longer than {seconds:g} s") from None
        except (OSError, EOFError):
            raise _Died(self._epitaph()) from None
        except BaseException:
            # Ctrl-C, for example: the answer has yet to arrive, so the child cannot be reused.
            self.kill()
            raise
        self.fresh = False
        if answer == b"X":
            self.kill(wait_first=True)
            raise _Died(data.decode("utf-8", "replace"))
        return answer, data

    def close_pdf(self) -> None:
        """Ask the child to close the PDF, without waiting for the answer."""
        self.send(b"C", b"")
        self._unwanted += 1

    def _frame(self, limit: int, deadline: float) -> tuple[bytes, bytes]:
        answer, length = HEADER.unpack(self._read(HEADER.size, deadline))
        if length > limit:
            raise _Died("the PDF reader returned invalid data")
        return answer, self._read(length, deadline)

    def _read(self, count: int, deadline: float) -> bytes:
        answers = self.process.stdout
        if answers is None:
            raise EOFError
        data = self._ahead
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if self._poll.poll(left * 1000):
                piece = os.read(answers.fileno(), max(count - len(data), 1 << 16))
                if not piece:
                    raise EOFError
                data += piece
        taken = bytes(data[:count])
        del data[:count]
        return taken

    def _epitaph(self) -> str:
        self.kill(wait_first=True)
        code = self.process.returncode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"the PDF reader crashed ({signal.Signals(-code).name})"
        return f"the PDF reader ended with code {code}"

    def kill(self, *, wait_first: bool = False) -> None:
        """Kill the process and forget it. With ``wait_first`` a dying process can first end with its own exit code."""
        if wait_first:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        self.process.kill()
        self.process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Close the pipes, which ends the process if it still runs."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.stdin = self.process.stdout = None
        _children.discard(self)

    @property
    def alive(self) -> bool:
        return self.process.stdin is not None


_children: "weakref.WeakSet[_Child]" = weakref.WeakSet()
_idle: list[_Child] = []
_lock = threading.Lock()


def _take() -> _Child:
    with _lock:
        while _idle:
            child = _idle.pop()
            if child.process.poll() is None:
                return child
            child.abandon()
    return _Child()


def _give_back(child: _Child) -> None:
    if not child.alive:
        return
    with _lock:
        if len(_idle) < _KEPT and child.opened < _RECYCLED_AFTER:
            _idle.append(child)
            return
    child.kill()


def _after_fork() -> None:
    """Leave the children to the parent: copies of their pipes in this process would keep them alive after it."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()
    for child in list(_children):
        # It is not a child of this process, so Popen must not wait for it when it is collected.
        child.process.returncode = 0
        child.abandon()


def _at_exit() -> None:
    for child in list(_children):
        child.kill()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


class _Lane:
    """A child that reads every ``step``-th page of a PDF, and the pages that were requested from it."""

    def __init__(self, first: int, step: int) -> None:
        self.child: _Child | None = None
        self.opening = False
        self.fate: _Died | None = None
        self.asked: deque[int] = deque()
        self._next = first
        self._step = step

    def open(self, request: bytes) -> None:
        """Ask a child process to open the PDF."""
        self.child, self.opening = _take(), True
        self.child.opened += 1
        self.child.send(b"O", request)

    def ask_ahead(self, request: bytes, last: int, ahead: int) -> None:
        """Request the next pages, at most ``ahead`` at a time. If the child has died, its next page reports it."""
        try:
            if self.child is None:
                self.open(request)
            while self.child is not None and self._next < last and len(self.asked) < ahead:
                self.child.send(b"P", struct.pack(">I", self._next))
                self.asked.append(self._next)
                self._next += self._step
        except _Died as died:
            self.fate = self.fate or died

    def lost(self, page: int) -> None:
        """Discard the child after it has failed at a page; the next child starts at the following page."""
        child, self.child, self.fate = self.child, None, None
        if child is not None and child.alive:
            child.kill()
        self.asked.clear()
        self._next = page + self._step


class PdfPages:
    """The pages of one PDF, read in order."""

    def __init__(
        self, path: os.PathLike[str], max_memory: int, max_text: int, max_pages: int, page_seconds: float
    ) -> None:
        """Open ``path``, or raise :class:`PdfError` with the reason."""
        self._max_text = max_text
        self._seconds = page_seconds
        self._left = page_seconds * _DOCUMENT_FACTOR
        self._request = json.dumps(
            {"path": os.fspath(path), "max_memory": max_memory, "max_text": max_text, "seconds": page_seconds}
        ).encode()
        self._next = 0
        self._crashes = 0
        self._lanes = [_Lane(0, 1)]
        try:
            answer = json.loads(self._open(self._lanes[0]))
        except _Died as died:
            raise PdfError(str(died)) from None
        except PdfError:
            self.close()
            raise
        self.page_count: int = answer["pages"]
        self.metadata: dict[str, str] = answer["metadata"]
        # Read at most one page more than allowed, so that the dehydrator notices that there are too many.
        self._last = min(self.page_count, max_pages + 1)
        self._ahead = 1
        if self._last >= _MANY_PAGES and (os.cpu_count() or 1) > 1:
            self._ahead = _AHEAD
            first, second = _Lane(0, 2), _Lane(1, 2)
            first.child = self._lanes[0].child
            self._lanes = [first, second]

    def _open(self, lane: _Lane) -> bytes:
        lane.open(self._request)
        return self._opened(lane)

    def _opened(self, lane: _Lane) -> bytes:
        lane.opening = False
        return self._answer(lane.child, 1 << 20)

    def _answer(self, child: _Child | None, limit: int) -> bytes:
        if child is None:
            raise _Died("the PDF reader has ended")
        begun = time.monotonic()
        answer, data = child.answer(max(limit, 1 << 16), min(self._left, self._seconds))
        self._left -= time.monotonic() - begun
        if answer == b"E":
            raise PdfError(data.decode("utf-8", "replace"))
        return data

    def next_page(self) -> str | None:
        """Return the next page's text; ``None`` after the last one. A page that fails raises :class:`PdfError`."""
        if self._next >= self._last:
            self.close()
            return None
        index = self._next
        self._next += 1
        if self._left <= 0:
            self.close()
            raise PdfError(f"the PDF took longer than {self._seconds * _DOCUMENT_FACTOR:g} s")
        if self._crashes >= _MAX_CRASHES:
            raise PdfError(f"gave up after the PDF reader failed {self._crashes} times")
        lane = self._lanes[index % len(self._lanes)]
        try:
            return self._page(lane, index)
        except _Died as died:
            self._crashes += 1
            lane.lost(index)
            raise PdfError(str(died)) from None

    def _page(self, lane: _Lane, index: int) -> str:
        # All children have requests before this process waits for one of them.
        for each in self._lanes:
            each.ask_ahead(self._request, self._last, self._ahead)
        if lane.fate is not None:
            raise lane.fate
        if lane.opening:
            try:
                self._opened(lane)
            except PdfError:
                # The first child has opened the PDF, but this one cannot, so it cannot read its pages either.
                lane.lost(index)
                raise
        lane.asked.popleft()
        return self._answer(lane.child, self._max_text).decode("utf-8", "replace")

    def close(self) -> None:
        """Return the children to the pool for the next PDF."""
        for lane in self._lanes:
            child, lane.child = lane.child, None
            if child is None or not child.alive:
                continue
            if lane.asked:
                # The PDF was left early, and the child is still reading pages that are not needed.
                child.kill()
                continue
            try:
                child.close_pdf()
            except _Died:
                continue
            _give_back(child)


def open_pdf(path: os.PathLike[str], max_memory: int, max_text: int, max_pages: int, page_seconds: float) -> PdfPages:
    """Open the PDF at ``path``; raise :class:`PdfError` with the reason if it cannot be read."""
    return PdfPages(path, max_memory, max_text, max_pages, page_seconds)
