"""The PDF reader in its child process: crashes, hangs, memory, damage, forks, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import samples

from penstock import _pdf
from penstock.documents import Limits, dehydrate

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _no_idle_children() -> Iterator[None]:
    yield
    for child in list(_pdf._children):
        child.kill()
    _pdf._idle.clear()


def _open(path: Path, seconds: float = 30, memory: int = GIB, text: int = 1 << 20, pages: int = 1000) -> _pdf.PdfPages:
    return _pdf.open_pdf(path, memory, text, pages, seconds)


def _child(pages: _pdf.PdfPages) -> _pdf._Child:
    child = pages._lanes[0].child
    assert child is not None
    return child


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    path = tmp_path / "a.pdf"
    path.write_bytes(samples.pdf(["one", "two", "three"]))
    return path


def test_pages_come_in_order_and_the_child_is_used_again(pdf: Path) -> None:
    pages = _open(pdf)
    first = _child(pages).process.pid
    assert [pages.next_page() for _ in range(4)] == ["one", "two", "three", None]
    again = _open(pdf)
    assert _child(again).process.pid == first
    again.close()


def test_two_pdfs_at_once_have_two_children(pdf: Path) -> None:
    one, two = _open(pdf), _open(pdf)
    assert _child(one).process.pid != _child(two).process.pid
    assert (one.next_page(), two.next_page(), one.next_page()) == ("one", "one", "two")
    one.close()
    two.close()


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    path = tmp_path / "many.pdf"
    path.write_bytes(samples.pdf([f"page {number}" for number in range(40)]))
    return path


def test_a_pdf_of_many_pages_has_two_children_and_its_pages_come_in_order(many: Path) -> None:
    pages = _open(many)
    assert [pages.next_page() for _ in range(41)] == [*(f"page {number}" for number in range(40)), None]
    assert len(_pdf._idle) == 2
    early = _open(many)
    assert early.next_page() == "page 0"
    early.close()
    # What was asked for ahead is still being read, so these cannot be used again.
    assert not _pdf._idle


def test_a_crash_of_one_of_two_children_fails_one_page(many: Path) -> None:
    pages = _open(many)
    read: list[str | None] = [pages.next_page()]
    child = pages._lanes[1].child
    assert child is not None
    os.kill(child.process.pid, signal.SIGKILL)
    failed = {}
    for number in range(1, 40):
        try:
            read.append(pages.next_page())
        except _pdf.PdfError as error:
            failed[number] = str(error)
            read.append(f"page {number}")
    assert read == [f"page {number}" for number in range(40)]
    assert [(number % 2, "SIGKILL" in reason) for number, reason in failed.items()] == [(1, True)]
    assert pages.next_page() is None


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_fails_one_page_and_the_next_one_gets_a_fresh_child(pdf: Path, number: signal.Signals) -> None:
    pages = _open(pdf)
    assert pages.next_page() == "one"
    os.kill(_child(pages).process.pid, number)
    with pytest.raises(_pdf.PdfError, match=number.name):
        pages.next_page()
    assert pages.next_page() == "three"
    assert pages.next_page() is None


def test_a_pdf_that_crashes_again_and_again_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(samples.pdf([str(number) for number in range(6)]))
    pages = _open(path)
    reasons = []
    for _ in range(6):
        if pages._lanes[0].child is None:
            pages._open(pages._lanes[0])
        os.kill(_child(pages).process.pid, signal.SIGKILL)
        with pytest.raises(_pdf.PdfError) as caught:
            pages.next_page()
        reasons.append(str(caught.value))
    assert "gave up" in reasons[-1]
    assert reasons[0].startswith("the PDF reader crashed")


def test_a_hang_is_ended(pdf: Path) -> None:
    pages = _open(pdf, seconds=0.5)
    child = _child(pages).process
    os.kill(child.pid, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(_pdf.PdfError, match=r"^took longer than 0\.5 s$"):
        pages.next_page()
    assert time.monotonic() - begun < 5
    assert child.poll() == -signal.SIGKILL
    assert pages.next_page() == "two"
    pages.close()


def _pdf_with_stream(path: Path, stream: bytes, filters: str) -> None:
    """A PDF whose only page is drawn by ``stream``."""
    whole = samples.pdf(["x"])
    start = whole.index(b"5 0 obj")
    end = whole.index(b"endobj", start)
    body = b"5 0 obj\n<< /Length %d /Filter %s >>\nstream\n%s\nendstream\n" % (len(stream), filters.encode(), stream)
    path.write_bytes(whole[:start] + body + whole[end:])


def test_memory_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pdf"
    # 1 GiB of spaces, in two layers of deflate.
    inner = zlib.compressobj(9)
    squeezed = b"".join(inner.compress(b" " * (1 << 20)) for _ in range(1024)) + inner.flush()
    _pdf_with_stream(path, zlib.compress(squeezed, 9), "[/FlateDecode /FlateDecode]")
    pages = _open(path, memory=64 << 20)
    child = _child(pages).process
    try:
        text: str | None = pages.next_page()
    except _pdf.PdfError as error:
        text = str(error)
    # pdfium caps a stream by itself, or runs into the limit; either way this process has not grown, and goes on.
    assert text is not None
    peak = (
        int(Path(f"/proc/{child.pid}/status").read_text().split("VmPeak:")[1].split()[0]) if child.poll() is None else 0
    )
    assert peak < 1 << 20, "KiB"
    pages.close()
    other = tmp_path / "good.pdf"
    other.write_bytes(samples.pdf(["fine"]))
    assert _open(other).next_page() == "fine"


def test_text_and_pages_are_limited(pdf: Path) -> None:
    pages = _open(pdf, text=3)
    assert pages.next_page() == "one"
    pages.next_page()
    with pytest.raises(_pdf.PdfError, match="more than 3 bytes"):
        pages.next_page()
    few = _open(pdf, pages=1)
    assert [few.next_page() for _ in range(3)] == ["one", "two", None]


def test_encrypted_and_broken_ones_say_why() -> None:
    encrypt = "/Encrypt << /Filter /Standard /V 1 /R 2 /O <{}> /U <{}> /P -4 >> /ID [<00><00>]".format(
        "41" * 32, "42" * 32
    )
    cases = {
        "encrypted.pdf": (samples.pdf(["x"], trailer=encrypt), "the PDF is encrypted"),
        "cut.pdf": (b"%PDF-1.7\n%\xff\xff\n1 0 obj", "the PDF does not parse"),
        "none.pdf": (samples.pdf([]), "the PDF does not parse"),
    }
    for name, (data, reason) in cases.items():
        (part,) = dehydrate(name, data)
        assert (part.type, part.status) == ("application/pdf", "FAILED"), name
        assert part.reason == reason, name
        assert part.sha256 is not None


def test_damage_never_raises() -> None:
    whole = samples.pdf(["one", "two"])
    for position in range(0, len(whole), 41):
        data = whole[:position] + bytes([whole[position] ^ 0x15]) + whole[position + 1 :]
        assert all(part.reason for part in dehydrate("a.pdf", data) if part.status != "COMPLETE")


def test_a_time_limit_reaches_the_reader() -> None:
    parts = list(dehydrate("a.pdf", samples.pdf(["x"]), limits=Limits(part_seconds=0)))
    assert parts[-1].status == "FAILED"


def test_the_child_has_nothing_of_its_parent(pdf: Path) -> None:
    secret = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        pages = _open(pdf)
        process = Path(f"/proc/{_child(pages).process.pid}")
        files = [os.readlink(name) for name in (process / "fd").iterdir()]  # noqa: PTH115
        assert len(files) >= 3
        assert not any("socket" in name for name in files)
        # stderr, and what stdout was made to be; the PDF; nothing that was only inherited.
        assert files.count(os.devnull) == 2
        limits = (process / "limits").read_text()
        assert "Max core file size        0" in limits
        assert "Max file size             0" in limits
        pages.close()
    finally:
        os.close(secret)


PROGRAM = """
import os, sys, signal
from penstock import _pdf
pages = _pdf.open_pdf({path!r}, 1 << 30, 1 << 20, 100, 30)
pages.close()
{rest}
"""


def _run(path: Path, rest: str) -> str:
    program = PROGRAM.format(path=os.fspath(path), rest=rest)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return run.stdout


def test_a_forked_process_has_children_of_its_own(pdf: Path) -> None:
    rest = """
before = _pdf._idle[0].process.pid
if os.fork() == 0:
    assert not _pdf._idle
    pages = _pdf.open_pdf({path!r}, 1 << 30, 1 << 20, 100, 30)
    print(pages.next_page(), pages._lanes[0].child.process.pid != before, flush=True)
    pages.close()
    _pdf._at_exit()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), _pdf._idle[0].process.poll(), flush=True)
print(_pdf.open_pdf({path!r}, 1 << 30, 1 << 20, 100, 30).next_page())
""".format(path=os.fspath(pdf))
    assert _run(pdf, rest).split("\n")[:3] == ["one True", "0 None", "one"]


def test_the_child_ends_with_its_parent(pdf: Path) -> None:
    pid = int(_run(pdf, "print(_pdf._idle[0].process.pid, flush=True)\nos.kill(os.getpid(), 0)\nos._exit(0)"))
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.05)
    pytest.fail("the child outlived its parent")


def test_ctrl_c_is_the_parents(pdf: Path) -> None:
    pages = _open(pdf)
    os.kill(_child(pages).process.pid, signal.SIGINT)
    assert pages.next_page() == "one"
    pages.close()
