"""What the tests with Spark share: sessions, sinks, and a folder of documents with everything in it."""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from email.message import EmailMessage
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock._demo.sink import SinkProcess
from penstock.spark import PART_SCHEMA, dehydrate, local_session

StartSpark = Callable[..., AbstractContextManager[SparkSession]]
StartSink = Callable[[Path], SinkProcess]


class _Spark:
    """The session of this process. It stays from module to module for as long as its settings are what is wanted."""

    def __init__(self) -> None:
        self._running: tuple[SparkSession, dict[str, str]] | None = None

    @contextmanager
    def start(self, master: str = "local[2]", **config: str) -> Iterator[SparkSession]:
        settings = {
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "FATAL",
            # The default is 200 tasks for each shuffle, whose start costs more than the tests' few rows.
            "spark.sql.shuffle.partitions": "4",
            **config,
        }
        wanted = {**settings, "master": master}
        if self._running is None or self._running[1] != wanted:
            self.stop()
            self._running = local_session("tests", master=master, config=settings), wanted
        session, _ = self._running
        try:
            yield session
        finally:
            # What the end of a session would end.
            for query in session.streams.active:
                query.stop()
            for table in session.catalog.listTables():
                session.catalog.dropTempView(table.name)

    def stop(self) -> None:
        if self._running is not None:
            self._running[0].stop()
            self._running = None


_SPARK = _Spark()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop Spark before tests of another folder: some start their own, or want the memory."""
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        _SPARK.stop()


@pytest.fixture(scope="session")
def start_spark(java: None) -> StartSpark:  # noqa: ARG001 - it skips
    """Start Spark with the settings of a module; without Java its tests are skipped, and the summary says so."""
    return _SPARK.start


@pytest.fixture
def no_spark() -> None:
    """Stop the session of this process."""
    _SPARK.stop()


@pytest.fixture(scope="module")
def spark(start_spark: StartSpark) -> Iterator[SparkSession]:
    with start_spark() as session:
        yield session


@pytest.fixture
def start_sink(tmp_path: Path) -> StartSink:
    """Make a sink in a process of its own, to be entered with `with`."""

    def start(folder: Path) -> SinkProcess:
        return SinkProcess(folder, tmp_path / "events.jsonl", tmp_path / "sink.log")

    return start


@pytest.fixture
def sink(start_sink: StartSink, tmp_path: Path) -> Iterator[SinkProcess]:
    """A sink whose folder is `sink` in tmp_path."""
    with start_sink(tmp_path / "sink") as process:
        yield process


@pytest.fixture
def rows_of(tmp_path: Path) -> Callable[..., DataFrame]:
    """Take a folder apart: rows that are computed when they are asked for; receipts in `receipts` of tmp_path."""

    def rows(
        spark: SparkSession, sink: SinkProcess, folder: Path, receipts: Path | None = None, **options: object
    ) -> DataFrame:
        where = str(receipts or tmp_path / "receipts")
        apart = dehydrate(sink.address, fingerprint=sink.fingerprint, receipts=where, **options)
        documents = spark.read.format("documents").option("minPartitions", "2").load(str(folder))
        return documents.mapInArrow(apart, PART_SCHEMA)

    return rows


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Run a program with arguments in a fresh interpreter and give what it printed."""

    def run(program: str, *arguments: str) -> str:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    return run


def zip_of(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def tar_of(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def mail_with(name: str, attachment: bytes) -> bytes:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = "Figures", "a@example.org", "b@example.org"
    mail.set_content("See the attachment.\n")
    mail.add_attachment(attachment, maintype="application", subtype="octet-stream", filename=name)
    return mail.as_bytes()


def encrypted_zip() -> bytes:
    """A zip whose only member says that it is encrypted: bit 0 of its flags, in both of its headers."""
    data = bytearray(zip_of({"secret.txt": b"hidden"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def pdf_of(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for index, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        page = "/Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Resources<</Font<</F1 3 0 R>>>>"
        objects.append(f"<<{page}/Contents {5 + 2 * index} 0 R>>")
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    out, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(out)}\n%%EOF\n"
    return f"{out}xref\n0 {size}\n0000000000 65535 f \n{table}{end}".encode()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with nested containers, documents of every kind, and two that are broken."""
    html = b"<html><head><title>Page</title></head><body><p>Some words.</p></body></html>"
    pdf = pdf_of("First page", "Second page")
    inner = zip_of({"letter.eml": mail_with("report.pdf", pdf), "page.html": html})
    whole = zip_of({"readme.txt": b"plain text\n", "inner.zip": inner, "table.csv": b"a,b\n1,2\n"})
    files = {
        "nested.zip": whole,
        "sub folder/übung.tar.gz": tar_of({"a.txt": b"one\n", "inner.zip": inner, "data.json": b'{"a": 1}\n'}),
        "letter.eml": mail_with("archive.zip", zip_of({"deep.txt": b"deep\n"})),
        "report.pdf": pdf,
        "page.html": html,
        "broken.zip": whole[: len(whole) // 2],
        "encrypted.zip": encrypted_zip(),
        "empty": b"",
        "notes.txt": b"nothing but text\n",
    }
    folder = tmp_path / "documents"
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A folder with so many documents that a job takes seconds."""
    folder = tmp_path / "many"
    folder.mkdir()
    for index in range(300):
        members = {f"{number}.txt": f"{index} {number}\n".encode() * 200 for number in range(50)}
        (folder / f"{index:03}.zip").write_bytes(zip_of(members))
    return folder


def read_receipts(folder: Path) -> dict[str, dict[str, object]]:
    """The receipts in a folder by the names of their documents."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return {receipt["document"]: receipt for receipt in found}


@pytest.fixture
def receipts_of() -> Callable[[Path], dict[str, dict[str, object]]]:
    return read_receipts


@pytest.fixture
def differences() -> Callable[[Path, Path], list[str]]:
    """Verify every receipt of a folder against a sink."""
    from penstock import receipts

    def verify(folder: Path, sink_folder: Path) -> list[str]:
        return [
            f"{path.name}: {found.text}"
            for path, all_found in receipts.verify_all(folder, sink_folder)
            for found in all_found
        ]

    return verify
