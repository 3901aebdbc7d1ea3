"""Makes the starts of Spark in the tests cheap: an archive of the JVM's classes, and bytecode of the workers' PySpark.

Java calls the archive class data sharing: a JVM maps it, and need not read, check and link 20,000 classes. It does so
only where Java and the jars are those that wrote the archive, and does without elsewhere.

Spark's Python workers import PySpark from a zip of sources, whatever is installed: each process of them would compile a
hundred modules, and throw the bytecode away. It is put beside the sources in the zip. A Python of another version does
not take it, and compiles.
"""

import importlib.util
import marshal
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ARCHIVE", "BRIEF", "MOUNTS", "NODE", "NODE_ARCHIVE", "OPTIONS", "mounts", "unshare_command", "zips"]

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
"""Options of a JVM that lives for seconds: it ends before the second compiler, half of its cost, has paid for itself.

What Java has to say of an archive that does not fit would come between the lines that tests compare.
"""

OPTIONS = f"{BRIEF} -XX:SharedArchiveFile={ARCHIVE}"
"""Those and the archive, for Spark where it is installed."""

NODE = Path("/mnt")
"""Where a node of the tests' clusters has Spark, Java and an archive, in mounts of its own.

An archive fits the paths alone with which it was written, so they are the same on each node of each run.
"""

NODE_ARCHIVE = Path(sys.prefix) / "spark-classes-node.jsa"
"""The archive for Spark in `NODE`."""

MOUNTS = f"""
set -eu
mount -t tmpfs none {NODE}
mkdir {NODE}/spark {NODE}/java
mount --bind "$REAL_SPARK" {NODE}/spark
mount --bind "$REAL_JAVA" {NODE}/java
if [ -e "$REAL_ARCHIVE" ]; then
    touch {NODE}/spark-classes.jsa
    mount --bind "$REAL_ARCHIVE" {NODE}/spark-classes.jsa
fi
"""
"""Shell commands that fill `NODE`, for a process with mounts of its own and the environment of `mounts`."""

_TRAINING = """
import sys
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "number long, text string"

    def reader(self, schema):
        return Reader()

class Reader(DataSourceReader):
    def partitions(self):
        return [InputPartition(number) for number in range(2)]

    def read(self, partition):
        yield pa.record_batch({"number": [1, 2, 3], "text": ["a", "b", "c"]})

def same(batches):
    yield from batches

def one(table):
    return table

folder = Path(sys.argv[1])
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": str(folder / "warehouse"),
}
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
with builder.getOrCreate() as spark:
    spark.dataSource.register(Numbers)
    rows = spark.read.format("numbers").load().mapInArrow(same, "number long, text string")
    rows.cache().count()
    rows.groupBy("number").applyInArrow(one, "number long, text string").collect()
    rows.write.parquet(str(folder / "rows"))
    read = spark.read.parquet(str(folder / "rows"))
    read.selectExpr("text", "count(*) over (partition by text) as count").orderBy("text").collect()
    read.createOrReplaceTempView("read")
    spark.sql("select number, collect_list(struct(text)) from read group by number").toArrow()
    read.join(rows, "number").where("number > 1").limit(3).toPandas()
    stream = spark.readStream.schema("number long, text string").parquet(str(folder / "rows"))
    query = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    query.foreachBatch(lambda batch, number: batch.count()).start().awaitTermination()

# It writes the archive at its end, for which Python does not wait.
jvm = SparkContext._gateway.proc
jvm.stdin.close()
jvm.wait()
"""


# Flags of bytecode whose source is not looked at again (PEP 552).
_UNCHECKED = (1).to_bytes(4, "little")


def zips() -> Iterator[Path]:
    """Find the archives from which the Python workers of the installed Spark import."""
    import pyspark

    yield from Path(pyspark.__file__).parent.glob("python/lib/*.zip")


def unshare_command() -> list[str]:
    """Return how this user gets mounts of its own: as root, with a user namespace, or (an empty list) not at all."""
    for command in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        try:
            if subprocess.run([*command, "mount", "-t", "tmpfs", "none", NODE], capture_output=True).returncode == 0:
                return command
        except OSError:
            break
    return []


def mounts(java_home: Path) -> dict[str, str]:
    """Return the environment of `MOUNTS`."""
    import pyspark

    return {
        "REAL_SPARK": str(Path(pyspark.__file__).parent),
        "REAL_JAVA": str(java_home),
        "REAL_ARCHIVE": str(NODE_ARCHIVE),
    }


def _compile(path: Path) -> None:
    """Put bytecode beside each module of a zip, and leave PySpark's own tests out: each task reads the directory."""
    new = path.with_suffix(".new")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(new, "w") as archive:
        for info in old.infolist():
            if info.filename.endswith(".pyc") or "/tests/" in info.filename:
                continue
            source = old.read(info)
            archive.writestr(info, source)
            if info.filename.endswith(".py"):
                code = compile(source, str(path / info.filename), "exec", dont_inherit=True)
                head = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
                archive.writestr(f"{info.filename}c", head + marshal.dumps(code))
    new.replace(path)


def _train(archive: Path, command: list[str], **environment: str) -> None:
    """Run `_TRAINING` in a JVM that writes the archive at its end."""
    new = archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": folder,
            "SPARK_SUBMIT_OPTS": f"{BRIEF} -XX:ArchiveClassesAtExit={new} -Djava.io.tmpdir={folder}",
            **environment,
        }
        program = [*command, sys.executable, "-c", _TRAINING, folder]
        ran = subprocess.run(program, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"spark_classes: {ran.stderr[-2000:]}")
    if not new.exists():
        print("spark_classes: this Java writes no archive; the tests take longer", file=sys.stderr)
        new.touch()
    new.rename(archive)


def main() -> None:
    """Write the bytecode and both archives; `ARCHIVE` last, because the file is what `make` looks at."""
    from penstock.spark.session import _has_module, _java_home, _shim, require_java

    for path in zips():
        _compile(path)
    java = require_java().path.resolve()
    NODE_ARCHIVE.unlink(missing_ok=True)
    if unshare := unshare_command():
        home = NODE / "java"
        home = home if _has_module(java) else _shim(home / "bin" / "java")
        node = [*unshare, "sh", "-c", f'{MOUNTS}exec "$@"', "node"]
        _train(NODE_ARCHIVE, node, SPARK_HOME=f"{NODE}/spark", JAVA_HOME=str(home), **mounts(java.parents[1]))
    with _java_home(require_java()):
        _train(ARCHIVE, [])


if __name__ == "__main__":
    main()
