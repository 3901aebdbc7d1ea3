"""dehydrate and rehydrate on the driver: what they check, and that they travel."""

import pickle

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock import receipts
from penstock.documents import Limits, Privacy
from penstock.errors import SparkError
from penstock.pipestream import Limits as SessionLimits
from penstock.pipestream import Server
from penstock.spark import COMPOSITE_ARROW_SCHEMA, PART_ARROW_SCHEMA, PART_SCHEMA, dehydrate, rehydrate
from penstock.spark._batches import resize

PIN = "ab" * 32


@pytest.mark.parametrize(
    ("sink", "options", "message"),
    [
        ("nowhere", {"fingerprint": PIN}, "HOST:PORT"),
        ("host:0", {"fingerprint": PIN}, "HOST:PORT"),
        ("host:65536", {"fingerprint": PIN}, "HOST:PORT"),
        ("::1:4433", {"fingerprint": PIN}, "HOST:PORT"),
        ("host:1", {}, "to verify the sink"),
        ("host:1", {"fingerprint": PIN, "system_ca": True}, "exactly one"),
        ("host:1", {"fingerprint": "abc"}, "64 digits"),
        ("host:1", {"system_ca": True, "cert": "c.pem"}, "cert and key"),
        ("host:1", {"system_ca": True, "in_flight": 0}, "in_flight"),
        ("host:1", {"system_ca": True, "receipts": "ftp://bucket"}, "only local paths"),
        (
            "host:1",
            {"system_ca": True, "session_limits": SessionLimits(max_connections=2)},
            "session_limits: max_connections is a limit of servers",
        ),
    ],
)
def test_wrong_options_are_named_on_the_driver(sink, options, message):
    with pytest.raises(SparkError, match=message):
        dehydrate(sink, **options)


@pytest.mark.parametrize("sink", ["127.0.0.1:4433", "[::1]:4433", "sink.example.org:1"])
@pytest.mark.parametrize("fingerprint", [PIN, f"sha256:{PIN}", ":".join(["AB"] * 32)])
def test_every_form_of_address_and_fingerprint_is_taken(sink, fingerprint):
    made = dehydrate(sink, fingerprint=fingerprint)
    assert (made.sink, made.fingerprint) == (sink, PIN)


def test_the_functions_are_options_and_travel_by_any_pickle(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = {"limits": Limits(max_depth=3), "session_limits": SessionLimits(max_header=4096)}
    apart = dehydrate("[::1]:4433", fingerprint=PIN, receipts="receipts", in_flight=2, **options)
    assert apart.receipts == str(tmp_path / "receipts")
    together = rehydrate(text=False, order_by="position")
    for function in (apart, together):
        for pickler in (pickle, cloudpickle):
            assert pickler.loads(pickler.dumps(function)) == function


def test_privacy_changes_what_the_sink_sees_and_no_row(tmp_path):
    (tmp_path / "a-name.html").write_text("<p>A page.<img src='data:text/plain,part'>")
    (tmp_path / "key").write_bytes(b"a key for pseudonyms")
    paths = [pa.record_batch({"path": [str(tmp_path / "a-name.html")]})]
    privacy = Privacy(pad_children=4, opaque_types=True, pseudonym_key_file=tmp_path / "key")
    rows = {}
    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        for name, chosen in (("plain", None), ("private", privacy)):
            options = {"fingerprint": server.fingerprint, "receipts": str(tmp_path / name), "privacy": chosen}
            made = cloudpickle.loads(cloudpickle.dumps(dehydrate(server.address, **options)))
            rows[name] = [row for batch in made(iter(paths)) for row in batch.to_pylist()]
    assert rows["private"] == rows["plain"]
    assert [row["type"] for row in rows["private"]] == ["text/html", "text/plain"]
    assert list(receipts.verify(tmp_path / "private", tmp_path / "sink")) == []
    (receipt,) = (tmp_path / "private").glob("*.json")
    made = receipts.load(receipt)
    list_ = (tmp_path / "sink" / made["session"] / "entities.jsonl").read_text()
    assert "a-name" not in list_
    assert (list_.count("penstock.padding"), len(made["scopes"][0]["padding"])) == (3, 3)


def test_the_columns_of_a_part_are_those_that_are_promised():
    promised = (
        "document string, key string, path array<string>, type string, bytes bigint, sha256 string, status string, "
        "reason string, attempts int, depth int, scope int, entity bigint, text string, content binary, doc_id string"
    )
    owner = "owner:struct<owner_id:string,group_id:string,scopes:array<string>>"
    assert PART_SCHEMA.simpleString() == f"struct<{promised.replace(', ', ',').replace(' ', ':')},{owner}>"


def test_batches_are_put_together_and_divided_to_a_few_megabytes():
    small = pa.record_batch({"text": ["x" * 1000] * 10})
    large = pa.record_batch({"text": ["y" * 100_000] * 300})
    sized = list(resize([small] * 50 + [large] + [small]))
    assert sum(batch.num_rows for batch in sized) == 50 * 10 + 300 + 10
    assert all(batch.nbytes <= 8 << 20 for batch in sized)
    assert len(sized) < 12
    assert [text[0] for batch in sized for text in batch.column("text").to_pylist()] == list(
        "x" * 500 + "y" * 300 + "x" * 10
    )


def part(
    path: list[str], text: str | None = None, status: str = "COMPLETE", document: str = "a.zip"
) -> dict[str, object]:
    reason = None if status == "COMPLETE" else "it is broken"
    return {
        "document": document, "key": "k", "path": path, "type": "text/plain", "bytes": 1, "sha256": "00" * 32,
        "status": status, "reason": reason, "attempts": 1, "depth": len(path), "scope": 0, "entity": 1, "text": text,
    }  # fmt: skip


def composites(rows: list[dict[str, object]], at: int = 2, **options: object) -> list[dict[str, object]]:
    """Put the rows together, handed over in batches of `at` rows."""
    pieces = [
        pa.RecordBatch.from_pylist(rows[start : start + at], PART_ARROW_SCHEMA) for start in range(0, len(rows), at)
    ]
    batches = list(rehydrate(**options)(iter(pieces)))
    assert all(batch.schema == COMPOSITE_ARROW_SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_document_is_put_together_from_rows_that_span_batches():
    rows = [
        part([]), part(["b.zip"]), part(["b.zip", "c"], "one"), part(["d"], "two"),
        part([], "alone", document="e.txt"),
        part([], document="f.zip", status="FAILED"), part(["g"], document="f.zip", status="FAILED"),
    ]  # fmt: skip
    for at in (1, 2, 3, 100):
        first, second, third = composites(rows, at)
        assert (first["document"], first["parts"], first["failed"], first["status"]) == ("a.zip", 3, 0, "COMPLETE")
        assert first["text"] == "one\n\ntwo"
        assert [(node["path"], node["depth"], node["text"]) for node in first["tree"]] == [
            (["b.zip"], 1, None), (["b.zip", "c"], 2, "one"), (["d"], 1, "two"),
        ]  # fmt: skip
        assert (second["document"], second["text"], second["tree"]) == ("e.txt", "alone", [])
        assert (third["status"], third["failed"], third["tree"][0]["reason"]) == ("FAILED", 1, "it is broken")


def test_text_is_cut_where_it_is_too_much_and_says_so():
    rows = [part([]), part(["a"], "12345"), part(["b"], "67890"), part(["c"], "x")]
    (cut,) = composites(rows, max_text=7)
    assert (cut["text"], cut["text_cut"]) == ("12345\n\n67", True)
    assert [node["text"] for node in cut["tree"]] == ["12345", "67", None]
    (whole,) = composites(rows)
    assert not whole["text_cut"]
    (without,) = composites(rows, text=False)
    assert (without["text"], without["text_cut"], without["tree"][0]["text"]) == (None, False, None)
    assert without["content_root"] == whole["content_root"]


@pytest.mark.parametrize("order", [[1, 0], [0, 2, 1], [0, 2]])
def test_rows_that_are_out_of_order_or_missing_are_refused(order):
    rows = [part([]), part(["b.zip"]), part(["b.zip", "c"])]
    with pytest.raises(SparkError, match=r"a\.zip.*order_by"):
        composites([rows[index] for index in order])


def test_rows_without_the_columns_are_refused():
    with pytest.raises(SparkError, match=r"missing columns: .*depth"):
        list(rehydrate()(iter([pa.record_batch({"document": ["a"]})])))


def test_a_group_is_sorted_by_the_column_that_numbers_it():
    rows = [part([]), part(["b.zip"]), part(["b.zip", "c"], "one"), part(["d"], "two")]
    shuffled = pa.Table.from_pylist([rows[index] for index in (2, 0, 3, 1)], PART_ARROW_SCHEMA)
    numbered = shuffled.append_column("position", pa.array([2, 0, 3, 1], pa.int64()))
    batches = rehydrate(order_by="position")(iter(numbered.to_batches(max_chunksize=3)))
    assert [row["text"] for batch in batches for row in batch.to_pylist()] == ["one\n\ntwo"]
    with pytest.raises(SparkError, match="order by missing"):
        list(rehydrate(order_by="missing")(iter(numbered.to_batches())))
