"""The data source "documents"."""

import os
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from penstock.errors import SparkError
from penstock.spark import DocumentsSource


def partitions(folder: Path, **options: str) -> list[list[str]]:
    source = DocumentsSource({"path": str(folder), **options})
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))  # noqa: S301 - made here
    return [[file.document for file in partition.files] for partition in reader.partitions()]


def write(folder: Path, name: str, size: int) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))


def test_every_file_is_in_exactly_one_partition_and_a_file_is_never_divided(tmp_path):
    for number in range(40):
        write(tmp_path, f"{number:02}", 1000 * number)
    found = partitions(tmp_path, minPartitions="6")
    assert len(found) == 6
    assert sorted(name for partition in found for name in partition) == [f"{number:02}" for number in range(40)]


def test_a_large_file_has_a_partition_for_itself(tmp_path):
    write(tmp_path, "large", 10_000_000)
    for number in range(9):
        write(tmp_path, f"small {number}", 1000)
    assert ["large"] in partitions(tmp_path, minPartitions="2")


def test_partitions_weigh_about_the_same(tmp_path):
    for number in range(100):
        write(tmp_path, str(number), 10_000 * (1 + number % 7))
    sizes = [sum((tmp_path / name).stat().st_size for name in part) for part in partitions(tmp_path, minPartitions="4")]
    assert max(sizes) < 1.1 * min(sizes)


def test_there_are_as_many_partitions_as_the_bytes_ask_for(tmp_path):
    for number in range(10):
        write(tmp_path, str(number), 1_000_000)
    assert len(partitions(tmp_path, minPartitions="1")) == 1
    assert len(partitions(tmp_path, minPartitions="1", targetPartitionBytes="3000000")) == 4


def test_there_are_no_more_partitions_than_files(tmp_path):
    write(tmp_path, "only", 1)
    assert partitions(tmp_path, minPartitions="8") == [["only"]]
    assert partitions(tmp_path / "only", minPartitions="8") == [["only"]]


def test_an_empty_folder_has_no_partitions(tmp_path):
    assert partitions(tmp_path) == []


def test_what_cannot_be_read_is_listed_too_and_links_to_folders_are_not_followed(tmp_path):
    write(tmp_path, "sub/file", 1)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "cycle").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to("sub/file")
    assert partitions(tmp_path, minPartitions="1") == [["fifo", "link", "nowhere", "sub/file"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "requires a directory"),
        ({"path": "/no/such/folder"}, "path does not exist: /no/such/folder"),
        ({"path": "ftp://bucket/folder"}, "only local paths"),
        ({"path": "file://elsewhere/folder"}, "another host"),
        ({"path": "/", "minPartitions": "none"}, "minPartitions"),
        ({"path": "/", "targetPartitionBytes": "0"}, "targetPartitionBytes"),
    ],
)
def test_wrong_options_are_named(options, message):
    source = DocumentsSource(options)
    with pytest.raises(SparkError, match=message):
        source.reader(source.schema())


def test_spark_reads_names_with_blanks_other_scripts_and_bytes_that_are_not_utf8(spark, tmp_path):
    names = [b"with blank", "übung #1?%41.txt".encode(), b"bytes \xff\xfe", "日本語/Ω".encode()]
    for name in names:
        path = Path(os.fsdecode(os.fsencode(tmp_path / "in") + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name)
    rows = spark.read.format("documents").load(str(tmp_path / "in")).collect()
    documents = {row.document: row for row in rows}
    assert set(documents) == {"with blank", "übung #1?%41.txt", "bytes \\xff\\xfe", "日本語/Ω"}
    assert all(row.length == len(name) for row, name in zip(map(documents.get, map(_shown, names)), names, strict=True))
    assert documents["bytes \\xff\\xfe"].path.startswith("file:///")
    assert documents["with blank"].path == str(tmp_path / "in" / "with blank")
    modified = (tmp_path / "in" / "with blank").stat().st_mtime
    assert documents["with blank"].modified.timestamp() == pytest.approx(modified, abs=1e-3)


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def test_spark_reads_several_folders_and_uris(spark, tmp_path):
    write(tmp_path, "one/a", 1)
    write(tmp_path, "two folders/b", 1)
    rows = spark.read.format("documents").load([str(tmp_path / "one"), (tmp_path / "two folders").as_uri()]).collect()
    assert sorted(row.document for row in rows) == ["a", "b"]


def test_spark_reads_an_empty_folder_as_no_rows(spark, tmp_path):
    read = spark.read.format("documents").load(str(tmp_path))
    assert (read.columns, read.collect()) == (["path", "document", "length", "modified"], [])


def test_a_partition_of_another_source_is_refused(tmp_path):
    source = DocumentsSource({"path": str(tmp_path)})
    reader = source.reader(source.schema())
    assert list(reader.read(InputPartition(None))) == []
    with pytest.raises(TypeError, match="not a partition of this source"):
        list(reader.read(InputPartition(1)))
