"""Spark finds the data sources by itself, and what it imports for that is light and cannot fail."""

import os
import pickle
import subprocess
import sys

import pytest

import pyspark_penstock
import pyspark_penstock_documents
from penstock.spark import DocumentsSource, PipeStreamDataSource

_IMPORT = """
import sys
sys.modules["penstock"] = None
import pyspark_penstock, pyspark_penstock_documents
print(pyspark_penstock.DefaultSource.name(), pyspark_penstock_documents.DefaultSource.name())
"""

_SESSION = """
import sys
from pyspark.sql import SparkSession
from penstock.spark import register
from penstock.spark.session import _java_home, require_java
with _java_home(require_java()):
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
documents = spark.read.format("documents")
print(documents.load(sys.argv[1]).count())
register(spark)
print(documents.load(sys.argv[1]).count())
"""


def test_the_look_up_imports_nothing_of_penstock():
    ran = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["pipestream", "documents"]


@pytest.mark.parametrize(
    ("module", "source"), [(pyspark_penstock, PipeStreamDataSource), (pyspark_penstock_documents, DocumentsSource)]
)
def test_what_is_found_makes_the_source_itself(module, source):
    found = pickle.loads(pickle.dumps(module.DefaultSource))  # noqa: S301 - made here
    assert found.name() == source.name()
    assert type(found(options={"path": "/data"})) is source


@pytest.mark.timeout(300)
def test_a_session_without_register_reads_documents_and_register_changes_nothing(tmp_path):
    (tmp_path / "note.txt").write_text("A line of text.")
    command = [sys.executable, "-c", _SESSION, str(tmp_path)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.split() == ["1", "1"]
