"""Rows written to a sink: each once in the sessions that can be read, or the job fails and nothing can be read."""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from attempts import failing_first
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, MapType, StringType, StructType

from penstock.errors import SparkError
from penstock.pipestream import Server, Session, SinkReader
from penstock.spark import PART_SCHEMA, dehydrate
from penstock.spark._options import Options
from penstock.spark.pipestream import PipeStreamDataSource
from penstock.spark.pipestream.owner import of_job, of_stream
from penstock.spark.pipestream.peer import read_peer
from penstock.spark.pipestream.rows import COMMIT, Written
from penstock.spark.pipestream.writer import PipeStreamWriter

pytestmark = pytest.mark.timeout(300)

ORDERS = "application/vnd.penstock."
TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "array<string>": ArrayType(StringType()),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}
LONG = os.environ.get("PENSTOCK_LONG_TESTS") == "1"


def lines(sink: Path) -> list[dict[str, object]]:
    """What whoever reads a sink finds: the entities of sessions that were closed with 0, orders left out."""
    found = []
    for log in sink.glob("*/entities.jsonl"):
        text = log.read_text()
        if text.endswith('{"closed":0}\n'):
            entities = [json.loads(line) for line in text.splitlines()[:-1]]
            found += [line for line in entities if not line["content_type"].startswith(ORDERS)]
    assert all(line["status"] == "COMPLETE" for line in found)
    return found


def contents(sink: Path) -> list[str]:
    """The payloads that can be read, in order."""
    return sorted((sink / str(line["file"])).read_text() for line in lines(sink) if line["file"])


def schema(columns: str) -> StructType:
    """What Spark makes of `NAME TYPE, ...`, without Spark."""
    made = StructType()
    for column in columns.split(", "):
        made.add(column.split()[0], TYPES[column.split()[1]])
    return made


def rows(*texts: str, **columns: object) -> pa.RecordBatch:
    return pa.record_batch({"content": pa.array([text.encode() for text in texts], pa.binary()), **columns})


def writer(sink, columns: str = "content binary", **options: str) -> PipeStreamWriter:
    given = {"address": sink.address, "fingerprint": sink.fingerprint, **options}
    written = PipeStreamDataSource(given).writer(schema(columns), overwrite=False)
    assert isinstance(written, PipeStreamWriter)
    return written


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        yield server


@contextmanager
def application(folder: Path, refuse: str = "nothing") -> Iterator[tuple[Server, list[tuple[str, str]]]]:
    """A server that is no sink and knows of no transactions: it takes entities, but for one document's."""
    taken: list[tuple[str, str]] = []

    def serve(session: Session) -> None:
        for entity in session:
            if entity.header.metadata.get("penstock.document") == refuse:
                entity.fail("not this one", code=0x46)
                continue
            taken.append((entity.header.content_type, entity.read().decode()))
            entity.complete()

    with Server(state_dir=folder) as server:
        threads: list[threading.Thread] = []

        def accept() -> None:
            for session in server:
                threads.append(threading.Thread(target=serve, args=(session,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield server, taken
        server.close()
        accepting.join()
        for thread in threads:
            thread.join()


def test_a_row_is_an_entity_with_its_names(server, tmp_path):
    batch = pa.record_batch(
        {
            "content": pa.array(["Grüße", ""], pa.string()),
            "document": ["Übung/ä.zip", None],
            "path": pa.array([["a b", "ü"], None], pa.list_(pa.string())),
            "type": ["text/plain", None],
            "metadata": pa.array(
                [[("k", "v"), ("penstock.transaction", "of a sink that was read"), ("none", None)], None],
                pa.map_(pa.string(), pa.string()),
            ),
            "length": [1, 2],
        }
    )
    columns = (
        "content string, document string, path array<string>, type string, metadata map<string,string>, length int"
    )
    sink = writer(server, columns, ignoreExtra="true", transaction="t")
    message = sink.write(iter([batch]))
    assert (message.rows, message.bytes, message.transaction) == (2, 7, "t")
    assert lines(tmp_path / "sink") == []
    sink.commit([message])
    named, plain = sorted(lines(tmp_path / "sink"), key=lambda line: line["entity"])
    # A document has an identifier, made from its name where it is given none.
    assert named["metadata"].pop("pipestream.doc")
    assert named["metadata"] == {
        "k": "v", "penstock.document": "Übung/ä.zip", "penstock.path": '["a b","ü"]', "penstock.transaction": "t",
    }  # fmt: skip
    assert (named["content_type"], plain["content_type"]) == ("text/plain", "application/octet-stream")
    assert plain["metadata"] == {"penstock.transaction": "t"}
    assert contents(tmp_path / "sink") == ["", "Grüße"]


def test_only_the_attempts_that_are_committed_can_be_read(server, tmp_path):
    sink = writer(server)
    first, again, second = (sink.write(iter([rows(text)])) for text in ("one", "one", "two"))
    empty = sink.write(iter([]))
    assert empty == Written(None, sink.transaction, 0, 0)
    assert contents(tmp_path / "sink") == []
    sink.commit([first, second, empty])
    assert contents(tmp_path / "sink") == ["one", "two"]
    late = sink.write(iter([rows("two")]))
    with pytest.raises(SparkError, match=r"was committed before, with other sessions.*rows of this job are not stored"):
        sink.commit([again, late])
    sink.commit([second, first])
    sink.abort([first, second])
    assert contents(tmp_path / "sink") == ["one", "two"]


def test_a_job_that_has_failed_leaves_nothing_to_read(server, tmp_path):
    sink = writer(server)
    message = sink.write(iter([rows("one")]))
    sink.write(iter([rows("a task whose word never came")]))
    sink.abort([message, None])
    with pytest.raises(SparkError, match="is not prepared in the transaction"):
        sink.commit([message])
    assert contents(tmp_path / "sink") == []
    last = [log.read_text().splitlines()[-1] for log in (tmp_path / "sink").glob("*/entities.jsonl")]
    assert last.count('{"closed":65}') == 2
    assert not any((tmp_path / "sink" / ".transactions").iterdir())


@pytest.mark.parametrize(
    "options",
    [{}, {"transactionSecret": "a secret of the job's"}, {"transactionSecretFile": "secret"}],
    ids=["a secret that is kept", "a secret", "a file"],
)
def test_a_second_job_of_the_same_name_fails_and_writes_nothing(server, tmp_path, monkeypatch, options):
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    (tmp_path / "secret").write_text("a secret of the job's\n")
    given = {name: str(tmp_path / value) if "File" in name else value for name, value in options.items()}
    first = writer(server, transaction="nightly 2026-11-21", **given)
    message = first.write(iter([rows("one")]))
    first.commit([message])
    second = writer(server, transaction="nightly 2026-11-21", **given)
    other = second.write(iter([rows("two")]))
    with pytest.raises(SparkError, match=r"was committed before, with other sessions.*rows of this job are not stored"):
        second.commit([other])
    second.abort([other])
    # The same commit, said again by a driver that has not heard the answer.
    writer(server, transaction="nightly 2026-11-21", **given).commit([message])
    assert contents(tmp_path / "sink") == ["one"]


def test_a_second_job_of_the_same_name_that_has_no_rows_fails_as_well(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    for _ in range(2):
        empty = writer(server, transaction="nightly")
        empty.commit([empty.write(iter([])), None])
    first = writer(server, transaction="nightly")
    first.commit([first.write(iter([rows("one")]))])
    with pytest.raises(SparkError, match=r"was committed before, with other sessions"):
        empty.commit([empty.write(iter([]))])
    nameless = writer(server)
    nameless.commit([nameless.write(iter([]))])
    assert contents(tmp_path / "sink") == ["one"]


def test_a_job_whose_driver_has_another_secret_fails_and_writes_nothing(server, tmp_path, monkeypatch):
    for number, folder in enumerate(("here", "there")):
        monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / folder))
        sink = writer(server, transaction="nightly")
        message = sink.write(iter([rows("one")]))
        if number == 0:
            sink.commit([message])
            continue
        with pytest.raises(SparkError, match="another owner has committed it"):
            sink.commit([message])
    assert contents(tmp_path / "sink") == ["one"]


def test_a_stranger_who_knows_the_name_neither_commits_nor_stands_in_the_way(server, tmp_path):
    mine = writer(server, transaction="guessed", transactionSecret="a secret of the job's")
    message = mine.write(iter([rows("one")]))
    for secret in ("another job's secret", "yet another's secret"):
        stranger = writer(server, transaction="guessed", transactionSecret=secret)
        with pytest.raises(SparkError, match="was prepared by another owner"):
            stranger.commit([message])
        with pytest.raises(SparkError, match="was prepared by another owner"):
            stranger.abort([message])
        stranger.commit([stranger.write(iter([rows(secret)]))])
    mine.commit([message])
    assert contents(tmp_path / "sink") == ["another job's secret", "one", "yet another's secret"]
    secret = mine.sink.owner.token
    assert secret not in repr(mine)
    assert not any(secret in path.read_text() for path in (tmp_path / "sink").rglob("*") if path.is_file())


def test_the_secret_of_a_stream_is_kept_beside_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    (tmp_path / "checkpoint").mkdir()
    checkpoint = str(tmp_path / "checkpoint")
    first, again = of_stream(None, checkpoint), of_stream(None, f"file://{checkpoint}")
    assert (first, first.exclusive) == (again, False)
    (kept,) = (tmp_path / "checkpoint").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert first.token not in kept.read_text()
    kept.unlink()
    (tmp_path / "checkpoint" / "commits").mkdir()
    (tmp_path / "checkpoint" / "commits" / "7").write_text("{}")
    lost = of_stream(None, checkpoint)
    assert (lost.token != first.token, lost.exclusive, of_stream(None, checkpoint)) == (True, True, lost)
    elsewhere = of_stream(None, "s3a://bucket/checkpoint")
    assert (elsewhere, elsewhere.exclusive) == (of_stream(None, None), True)
    given = of_stream("a secret of the stream's", checkpoint)
    assert (given, given.exclusive) == (of_job("a secret of the stream's", named=True), False)
    assert of_job(None, named=False) != of_job(None, named=False)


def test_documents_are_scopes_if_one_likes(server, tmp_path):
    sink = writer(server, "content binary, document string", scopes="document")
    batches = [rows("1", "2", document=["a", "a"]), rows("3", "4", document=["a", "b"]), rows("5", document=["a"])]
    sink.commit([sink.write(iter(batches))])
    found = lines(tmp_path / "sink")
    roots = {line["entity"]: line["metadata"]["penstock.document"] for line in found if line["scope"] == 0}
    assert sorted(roots.values()) == ["a", "a", "b"]
    below = sorted((roots[line["parent"]], line["bytes"]) for line in found if line["scope"] != 0)
    assert [document for document, _ in below] == ["a", "a", "a", "a", "b"]
    assert contents(tmp_path / "sink") == ["1", "2", "3", "4", "5"]


def test_without_scopes_in_the_protocol_a_sink_takes_rows_as_well(tmp_path):
    """At layer 0 there is no digest to wait for: a session is prepared when its client has closed it."""
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, layers=0) as server:
        sink = writer(server, "content binary, document string", scopes="document")
        sink.commit([sink.write(iter([rows("1", "2", document=["a", "b"])])) for _ in range(2)])
    assert contents(tmp_path / "sink") == ["1", "1", "2", "2"]


def test_large_rows_and_many(server, tmp_path):
    sink = writer(server)
    many = [rows(*(f"{batch} {row}" for row in range(3000))) for batch in range(3)]
    large = rows(*("x" * (10 << 20) for _ in range(3)))
    message = sink.write(iter([*many, large.slice(1), many[0].slice(0, 0)]))
    assert (message.rows, message.bytes > 20 << 20) == (9002, True)
    sink.commit([message])
    found = contents(tmp_path / "sink")
    assert (len(found), len(set(found)), max(map(len, found))) == (9002, 9001, 10 << 20)


def test_a_row_without_content_fails_the_task_and_says_what_to_do(server, tmp_path):
    batch = pa.record_batch({"content": pa.array([b"x", None], pa.binary()), "document": ["a", "b"]})
    sink = writer(server, "content binary, document string")
    with pytest.raises(SparkError, match=r"a row of the document b has no content \(null\); filter"):
        sink.write(iter([batch]))
    sink.abort([])
    assert contents(tmp_path / "sink") == []


def test_the_limits_of_a_session_hold_for_the_tasks_that_write(server, tmp_path):
    sink = writer(server, max_entities_per_scope="2")
    sink.commit([sink.write(iter([rows("a", "b")]))])
    with pytest.raises(SparkError, match="has had 2 entities, all it may have"):
        sink.write(iter([rows("c", "d", "e")]))
    assert contents(tmp_path / "sink") == ["a", "b"]


def test_another_server_gets_every_row_and_may_refuse_one(tmp_path):
    with application(tmp_path, refuse="bad") as (server, taken):
        sink = writer(server, atomic="false")
        sink.commit([sink.write(iter([rows("one", "two")]))])
        assert sorted(taken) == [("application/octet-stream", "one"), ("application/octet-stream", "two")]
        sink = writer(server)
        sink.commit([sink.write(iter([rows("three")]))])
        assert [kind for kind, _ in taken[3:]] == [COMMIT]
        sink = writer(server, "content binary, document string, path array<string>")
        paths = pa.array([["a"], ["b"]], pa.list_(pa.string()))
        with pytest.raises(SparkError, match=r"document 'bad', path \[\"b\"\]: .*\(0x46\): not this one") as refused:
            sink.write(iter([rows("four", "five", document=["good", "bad"], path=paths)]))
        assert "1 rows were not accepted by" in str(refused.value)


def test_a_sink_that_is_not_there_or_not_trusted_is_said_so(server):
    with pytest.raises(SparkError, match=r"no session with .*do both ends trust each other's certificates"):
        writer(server, fingerprint="00" * 32).write(iter([rows("one")]))
    server.close()
    with pytest.raises(SparkError, match=r"no session with .*Does a server run there"):
        writer(server).write(iter([rows("one")]))


def test_a_client_certificate_lets_rows_in(tmp_path):
    from penstock.tls import write_certificates

    write_certificates(tmp_path / "tls")
    ca, cert, key = (str(tmp_path / "tls" / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    with Server(sink=tmp_path / "sink", cert=cert, key=key, client_ca=ca) as server:
        given = {"path": server.address, "ca": ca, "cert": cert, "key": key}
        sink = PipeStreamDataSource(given).writer(schema("content binary"), overwrite=False)
        sink.commit([sink.write(iter([rows("one")]))])
        with pytest.raises(SparkError, match="certificate"):
            PipeStreamDataSource({"path": server.address, "ca": ca}).writer(
                schema("content binary"), overwrite=False
            ).write(iter([rows("two")]))
    assert contents(tmp_path / "sink") == ["one"]


PIN = {"address": "sink:4433", "fingerprint": "ab" * 32}


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({}, "content binary", 'requires an address: .option("address", "HOST:PORT")'),
        ({**PIN, "path": "other:1"}, "content binary", "and the path 'other:1' are mutually exclusive"),
        ({"address": "sink"}, "content binary", "must be HOST:PORT, not 'sink'"),
        ({"address": "sink:1"}, "content binary", "exactly one of the options fingerprint, ca and system_ca"),
        ({"address": "sink:1", "fingerprint": "ab"}, "content binary", "the option fingerprint of the pipestream sink"),
        ({**PIN, "cert": "c"}, "content binary", "cert and key of the pipestream sink must be used together"),
        ({**PIN, "atomic": "yes"}, "content binary", "the option atomic of the pipestream sink must be true or false"),
        ({**PIN, "scopes": "all"}, "content binary", "must be none or document, not 'all'"),
        ({**PIN, "scopes": "document"}, "content binary", "scopes=document requires a column document"),
        ({**PIN, "transaction": "t", "atomic": "false"}, "content binary", "mutually exclusive"),
        ({**PIN, "transaction": "t" * 257}, "content binary", "must have 1 to 256 bytes"),
        ({**PIN, "transactionSecret": "short"}, "content binary", "transactionSecret has fewer than 16 bytes"),
        (
            {**PIN, "transactionSecretFile": "/none"},
            "content binary",
            "transactionSecretFile of the pipestream sink cannot",
        ),
        (
            {**PIN, "transactionSecret": "s" * 16, "transactionSecretFile": "/none"},
            "content binary",
            "and transactionSecretFile are mutually exclusive",
        ),
        (
            {**PIN, "max_header": "1000"},
            "content binary",
            "max_header of the pipestream sink must be a number from 1024 to 1048576",
        ),
        ({**PIN, "max_connections": "5"}, "content binary", "unknown option 'max_connections'"),
        (
            {**PIN, "colour": "red"},
            "content binary",
            "unknown option 'colour' for the pipestream sink; valid options: address,",
        ),
        (PIN, "value binary", "requires a column content; the columns are value"),
        (PIN, "content binary, length int", "unknown column 'length' for the pipestream sink; valid columns: content,"),
        (PIN, "content int", "must be binary, or string, which is sent as UTF-8, not int"),
        (PIN, "content binary, path string", "path of the pipestream sink must be array<string>, not string"),
        (PIN, "content binary, metadata map<string,int>", "must be map<string,string>, not map<string,int>"),
    ],
)
def test_what_is_wrong_is_refused_on_the_driver(options, columns, message):
    with pytest.raises(SparkError) as refused:
        PipeStreamDataSource(options).writer(schema(columns), overwrite=False)
    assert message in str(refused.value)


def test_a_sink_that_is_killed_while_it_commits_has_committed_all_or_nothing(start_sink, tmp_path):
    chance = random.Random(4)
    for turn in range(20 if LONG else 3):
        folder = tmp_path / str(turn)
        sink = start_sink(folder).__enter__()
        before = writer(sink, transaction="t")
        messages = [before.write(iter([rows(text)])) for text in ("one", "two", "three")]
        # A task ends before the sink has prepared its session, and a commit waits for that.
        while not all(any(folder.rglob(f".transactions/**/{each.session}")) for each in messages):
            time.sleep(0.001)
        killer = threading.Timer(chance.random() * 0.02, os.kill, (sink.pid, signal.SIGKILL))
        killer.start()
        try:
            before.sink._tell("t", COMMIT, json.dumps({"sessions": [each.session for each in messages]}).encode())
            heard = True
        except Exception:  # noqa: BLE001 - the sink is dead
            heard = False
        killer.join()
        with pytest.raises(Exception, match="exit code -9"):
            sink.__exit__(None, None, None)
        seen = [row for batch in SinkReader(folder).read() for row in batch.column("content").to_pylist()]
        assert sorted(seen) in ([], [b"one", b"three", b"two"]), "readers see a part of it"
        with start_sink(folder) as sink:
            found = contents(folder)
            assert found in ([], ["one", "three", "two"])
            assert found or not heard
            writer(sink, transaction="t").commit(messages)
            assert contents(folder) == ["one", "three", "two"]


@pytest.fixture(scope="module")
def retrying(start_spark):
    with start_spark("local[2,3]") as session:
        yield session


def test_tasks_that_are_tried_again_write_each_row_once(retrying, sink, tmp_path):
    texts = retrying.range(0, 400, 1, 3).selectExpr("cast(id as string) as content")
    failing = texts.mapInArrow(failing_first(), "content string")
    to = failing.write.format("pipestream").mode("append").option("fingerprint", sink.fingerprint)
    to.save(sink.address)
    assert sorted(map(int, contents(tmp_path / "sink"))) == list(range(400))
    with pytest.raises(Exception, match="only appends"):
        to.mode("overwrite").save(sink.address)


def test_a_second_job_of_the_same_transaction_fails_in_spark_with_rows_and_without(retrying, sink, tmp_path):
    texts = retrying.range(0, 4, 1, 2).selectExpr("cast(id as string) as content")
    given = {"fingerprint": sink.fingerprint, "transaction": "nightly", "transactionSecret": "a secret of the job's"}
    texts.write.format("pipestream").mode("append").options(**given).save(sink.address)
    for again in (texts, texts.where("content = 'none'")):
        with pytest.raises(Exception, match="was committed before, with other sessions"):
            again.write.format("pipestream").mode("append").options(**given).save(sink.address)
    assert sorted(contents(tmp_path / "sink")) == ["0", "1", "2", "3"]


def test_a_strict_policy_needs_no_layer_2(retrying, tmp_path):
    (tmp_path / "note.txt").write_text("A line of text.")
    with Server(sink=tmp_path / "plain", state_dir=tmp_path, layers=1) as server:
        trust = {"fingerprint": server.fingerprint, "policy": "strict"}
        sent = retrying.createDataFrame([("1", "a"), ("2", "a")], "content string, document string")
        sent.write.format("pipestream").mode("append").options(**trust, scopes="document").save(server.address)
        documents = retrying.createDataFrame([(str(tmp_path / "note.txt"),)], "path string")
        parts = documents.mapInArrow(dehydrate(server.address, **trust), PART_SCHEMA).collect()
    assert {part.status for part in parts} == {"COMPLETE"}
    assert {"1", "2", "A line of text."} <= set(contents(tmp_path / "plain"))


def test_a_micro_batch_that_is_run_again_writes_nothing_twice(retrying, sink, tmp_path):
    (tmp_path / "in").mkdir()
    checkpoint = tmp_path / "checkpoint"

    def run(**options: str) -> None:
        query = (
            retrying.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(tmp_path / "in"))
            .selectExpr("value as content").writeStream.format("pipestream").options(**options)
            .option("fingerprint", sink.fingerprint).option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True).start(sink.address)
        )  # fmt: skip
        query.awaitTermination()

    (tmp_path / "in" / "0.txt").write_text("zero\n")
    with pytest.raises(Exception, match="each micro-batch has its own"):
        run(transaction="t")
    run()
    (tmp_path / "in" / "1.txt").write_text("one\ntwo\n")
    run()
    assert contents(tmp_path / "sink") == ["one", "two", "zero"]
    # As a driver leaves it that dies between the sink's commit and its own.
    newest = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda p: int(p.name)
    )
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    (tmp_path / "in" / "2.txt").write_text("three\n")
    run()
    assert contents(tmp_path / "sink") == ["one", "three", "two", "zero"]


def test_the_interval_of_stream_0_is_an_option_and_is_checked():
    given = {"address": "sink:4433", "fingerprint": "ab" * 32}
    assert read_peer(Options(given, "sink")).status_interval is None
    assert read_peer(Options({**given, "status_interval": "0.05"}, "sink")).status_interval == 0.05
    for wrong in ("0", "11", "-1", "nan", "soon"):
        with pytest.raises(SparkError, match=r"status_interval of the pipestream sink: must be from 0\.001 to 10"):
            read_peer(Options({**given, "status_interval": wrong}, "sink"))
